#include "runtime/tcp/hosts_backend.hpp"

#include "runtime/net/gather.hpp"
#include "runtime/tcp/hosts_collectives.hpp"
#include "runtime/tcp/mesh.hpp"
#include "runtime/tcp/messages.hpp"

#include <mutex>
#include <utility>

namespace acc::runtime {

using namespace tcp;

namespace {

/// What a rank acquires before its backend is made.
struct Parts {
  UniqueFd memory;
  std::vector<UniqueFd> connections;
  Mesh mesh;
};

/// Forwards a break of the group, on whatever thread, to the AbortableWait as long as there is one.
class BreakNotifier {
 public:
  void notify() {
    const std::lock_guard lock{mutex_};
    if (abortable_ != nullptr) abortable_->on_break();
  }
  void attach(AbortableWait* abortable) {
    const std::lock_guard lock{mutex_};
    abortable_ = abortable;
  }

 private:
  std::mutex mutex_;
  AbortableWait* abortable_ = nullptr;
};

class HostsBackend final : public Backend {
 public:
  HostsBackend(Parts parts, std::shared_ptr<LocalGroup> local_group, const HostsOptions& options)
      : placement_{options.manifest, options.rank},
        local_group_{std::move(local_group)},
        mesh_{std::move(parts.mesh)},
        node_{
            std::move(parts.memory), placement_,
            NodeSegment::Options{options.ranks, options.group, [this] { break_notifier_.notify(); },
                                 [this](ActiveCall& active) { abortable_.find_late(active); }}},
        abortable_{node_, placement_, make_detector(parts), connection_of(parts)},
        mux_{abortable_, placement_, std::move(mesh_.rail)},
        collectives_{node_, placement_, mux_, abortable_, options.group, options.manifest.check},
        messages_{mesh_, node_, abortable_, placement_, options.group, options.manifest.check} {
    break_notifier_.attach(&abortable_);
    if (!node_.is_healthy()) break_notifier_.notify();
  }
  ~HostsBackend() override { break_notifier_.attach(nullptr); }
  HostsBackend(const HostsBackend&) = delete;
  HostsBackend& operator=(const HostsBackend&) = delete;

  [[nodiscard]] std::string_view name() const noexcept override { return "cpu"; }

  void run(const Call& call) override {
    ActiveCall active{call};
    try {
      if (call.what.operation == Operation::send) return messages_.send(active);
      if (call.what.operation == Operation::recv) return messages_.recv(active);
      collectives_.run(active);
    } catch (const Error&) {
      abortable_.await_cause_sent();
      throw;
    }
  }

  SharedBuffer allocate(std::size_t bytes, const Call& call) override {
    ActiveCall active{call};
    node_.check_healthy(active);
    try {
      local_group_->require_open();
    } catch (const Error& error) {
      node_.fail(active, error);
    }
    collectives_.meet(active);
    if (bytes == 0) return {};
    const auto each = (bytes + 4095) / 4096 * 4096;
    try {
      auto all = shm::Mapping::of(local_group_->share(each * node_.size(), active.deadline()),
                                  each * node_.size());
      auto* mine = all->data() + each * placement_.index;
      return {mine, bytes, std::move(all)};
    } catch (const Error& error) {  // the others rely on it
      node_.fail(active, error);
    }
  }

  void abort(const Error& cause) noexcept override {
    node_.break_with(cause);
    abortable_.await_cause_sent();  // the caller may exit now, and others would see only that
  }

  [[nodiscard]] std::optional<Error> cause() const override { return node_.peers().cause(); }

  void lost(int rank, const std::string& how) noexcept override {
    try {
      node_.break_with({ErrorCode::peer_lost, node_.describe(rank) + " was lost: " + how, {rank}});
    } catch (const std::exception&) {  // no memory for the text
      node_.break_with({ErrorCode::peer_lost, "a rank was lost"});
    }
  }

 private:
  std::unique_ptr<FailureDetector> make_detector(Parts& parts) {
    if (!placement_.is_leader()) return nullptr;
    return std::make_unique<FailureDetector>(node_, placement_, std::move(mesh_.control),
                                             std::move(parts.connections));
  }
  UniqueFd connection_of(Parts& parts) {
    return placement_.is_leader() ? UniqueFd{} : std::move(parts.connections.front());
  }

  RankPlacement placement_;
  std::shared_ptr<LocalGroup> local_group_;
  Mesh mesh_;
  BreakNotifier break_notifier_;
  NodeSegment node_;
  AbortableWait abortable_;
  SocketMux mux_;
  Collectives collectives_;
  Messages messages_;
};

}  // namespace

std::unique_ptr<Backend> make_hosts_backend(Store& store, std::shared_ptr<LocalGroup> local_group,
                                            HostsOptions options, Deadline deadline) {
  std::unique_ptr<Backend> backend;
  std::optional<Error> failure;
  bool addressed = false;
  const RankPlacement placement{options.manifest, options.rank};
  try {
    Parts parts;
    parts.memory = local_group->share(NodeSegment::bytes(placement), deadline);
    parts.connections = local_group->open_connections(deadline);
    addressed = true;
    parts.mesh = connect_mesh(store, options.key, options.manifest, placement, options.lookup,
                              options.master_address, deadline, options.check_parties);
    backend = std::make_unique<HostsBackend>(std::move(parts), local_group, options);
  } catch (const Error& error) {
    failure = error;
    if (!addressed)
      gather_addresses(store, options.key, options.manifest, placement, deadline)
          .report_failure(error);
  }
  local_group->agree(failure, deadline, [&](const std::optional<Error>& ours) {
    const auto late = [](const Gather::Texts& sent) {
      return Error{ErrorCode::timed_out,
                   std::to_string(sent.size()) + " hosts are ready, the others not in time"};
    };
    Gather ready{store,
                 {options.key + "/ready", static_cast<int>(placement.host),
                  static_cast<int>(placement.hosts.size()), deadline, late, options.check_parties}};
    if (ours) return ready.report_failure(*ours);
    (void)ready.all("ready");
  });
  return backend;
}

}  // namespace acc::runtime
