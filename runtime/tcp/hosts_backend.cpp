#include "runtime/tcp/hosts_backend.hpp"

#include "runtime/bootstrap/exchange.hpp"
#include "runtime/tcp/hosts_collectives.hpp"
#include "runtime/tcp/mesh.hpp"
#include "runtime/tcp/messages.hpp"

#include <mutex>
#include <utility>

namespace acc::runtime {

using namespace hosts;

namespace {

/// What a rank of a host brings together before its backend can begin.
struct Parts {
  UniqueFd memory;
  std::vector<UniqueFd> lines;
  Mesh mesh;
};

/// Tells the lifeline of a break, from the moment on at which there is one; a room breaks on
/// threads that know nothing of it.
class Bell {
 public:
  void ring() {
    const std::lock_guard lock{mutex_};
    if (lifeline_ != nullptr) lifeline_->broke();
  }
  void hang(Lifeline* lifeline) {
    const std::lock_guard lock{mutex_};
    lifeline_ = lifeline;
  }

 private:
  std::mutex mutex_;
  Lifeline* lifeline_ = nullptr;
};

class HostsBackend final : public Backend {
 public:
  HostsBackend(Parts parts, std::shared_ptr<Circle> circle, const HostsOptions& options)
      : placement_{options.roll, options.rank},
        circle_{std::move(circle)},
        mesh_{std::move(parts.mesh)},
        room_{std::move(parts.memory), placement_, options.ranks, [this] { bell_.ring(); }},
        lifeline_{room_, placement_, make_control(parts), line_of(parts)},
        courier_{lifeline_, placement_, std::move(mesh_.column)},
        collectives_{room_, placement_, courier_, lifeline_, options.group, options.roll.check},
        messages_{mesh_, room_, lifeline_, placement_, options.group, options.roll.check} {
    room_.set_give_up([this](Turn& turn) { lifeline_.find_late(turn); });
    bell_.hang(&lifeline_);
    if (!room_.is_well()) bell_.ring();
  }
  ~HostsBackend() override { bell_.hang(nullptr); }
  HostsBackend(const HostsBackend&) = delete;
  HostsBackend& operator=(const HostsBackend&) = delete;

  [[nodiscard]] std::string_view name() const noexcept override { return "cpu"; }

  void run(const Call& call) override {
    Turn turn{call};
    try {
      if (call.what.operation == Operation::send) return messages_.send(turn);
      if (call.what.operation == Operation::recv) return messages_.recv(turn);
      collectives_.run(turn);
    } catch (const Error&) {
      lifeline_.tell_others_first();
      throw;
    }
  }

  SharedBuffer allocate(std::size_t bytes, const Call& call) override {
    Turn turn{call};
    collectives_.meet(turn);
    if (bytes == 0) return {};
    const auto each = (bytes + 4095) / 4096 * 4096;
    try {
      auto all = shm::Mapping::of(circle_->share(each * room_.size(), turn.deadline()),
                                  each * room_.size());
      auto* mine = all->data() + each * placement_.index;
      return {mine, bytes, std::move(all)};
    } catch (const Error& error) {  // the others count on it
      room_.fail(turn, error);
    }
  }

  void abort(const Error& cause) noexcept override { room_.break_with(cause); }

  void lost(int rank, const std::string& how) noexcept override {
    try {
      room_.break_with({ErrorCode::peer_lost, room_.describe(rank) + " was lost: " + how, {rank}});
    } catch (const std::exception&) {  // no memory for the words
      room_.break_with({ErrorCode::peer_lost, "a rank was lost"});
    }
  }

 private:
  std::unique_ptr<Control> make_control(Parts& parts) {
    if (!placement_.leads()) return nullptr;
    return std::make_unique<Control>(room_, placement_, std::move(mesh_.control),
                                     std::move(parts.lines));
  }
  UniqueFd line_of(Parts& parts) {
    return placement_.leads() ? UniqueFd{} : std::move(parts.lines.front());
  }

  Placement placement_;
  std::shared_ptr<Circle> circle_;
  Mesh mesh_;
  Bell bell_;
  Room room_;
  Lifeline lifeline_;
  Courier courier_;
  Collectives collectives_;
  Messages messages_;
};

}  // namespace

std::unique_ptr<Backend> make_hosts_backend(Store& store, std::shared_ptr<Circle> circle,
                                            HostsOptions options, Deadline deadline) {
  std::unique_ptr<Backend> backend;
  std::optional<Error> failure;
  bool addressed = false;
  const Placement placement{options.roll, options.rank};
  try {
    Parts parts;
    parts.memory = circle->share(Room::bytes(placement.near().size()), deadline);
    parts.lines = circle->open_lines(deadline);
    addressed = true;
    parts.mesh = connect_mesh(store, options.key, options.roll, placement, options.lookup,
                              options.master_address, deadline);
    backend = std::make_unique<HostsBackend>(std::move(parts), circle, options);
  } catch (const Error& error) {
    failure = error;
    if (!addressed) exchange_failure(store, options.key + "/net", error);
  }
  const auto ready = options.key + "/ready";
  circle->agree(failure, deadline, [&](const std::optional<Error>& ours) {
    if (ours) exchange_failure(store, ready, *ours);
    const auto said = ours ? std::vector<std::string>{}
                           : exchange(store, ready, placement.host, placement.hosts.size(), "well",
                                      "the hosts", deadline);
  });
  return backend;
}

}  // namespace acc::runtime
