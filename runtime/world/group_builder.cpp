#include "runtime/world/group_builder.hpp"

#include "common/duration.hpp"
#include "runtime/bootstrap/local_group.hpp"
#include "runtime/bootstrap/manifest.hpp"
#include "runtime/fork.hpp"
#include "runtime/group/agent_slot.hpp"
#include "runtime/nccl/nccl_backend.hpp"
#include "runtime/net/error_text.hpp"
#include "runtime/net/recorded_store.hpp"
#include "runtime/shm/shm_backend.hpp"
#include "runtime/tcp/hosts_backend.hpp"
#include "runtime/world/peer_failure_listener.hpp"

#include <unistd.h>

#include <acc/cuda.hpp>
#include <algorithm>
#include <exception>
#include <utility>

namespace acc::runtime {

namespace {

Deadline deadline_of(const GroupOptions& options) {
  const auto limit = options.init_timeout.value_or(Millis{0});
  if (limit == Millis{0}) return Deadline::max();
  return Clock::now() + limit;
}

/// For the cause of a failed rank to arrive, when this one knows only that it is gone.
constexpr auto kCauseTime = std::chrono::milliseconds{300};

/// The first cause of a failure after the manifest was made, the same on all ranks. A rank that
/// failed writes its error unless another has; the end of a connection is no cause as long as
/// another rank may still write one.
Error first_cause(Store& store, const std::string& key, const Error& error) {
  const bool knows_why = error.operation() != kNoCause;
  const Error ours{error.code(), error.what(), error.ranks()};
  const auto written = [&] {
    return parse_error(store.get(key + "/failure", Clock::now() + kCauseTime)).value_or(ours);
  };
  try {
    if (!knows_why) {
      try {
        return written();
      } catch (const Error& none) {
        if (none.code() != ErrorCode::timed_out) return ours;
      }
    }
    if (store.add(key + "/failures", 1) == 1) store.set(key + "/failure", to_text(ours));
    return ours;
  } catch (const std::exception&) {
    return ours;  // the store is gone: rank 0 ended
  }
}

std::string requested_backend(const GroupOptions& options) {
  if (options.backend == BackendKind::cpu) return kWantsCpu;
  if (options.backend == BackendKind::nccl) return kWantsNccl;
  // Loading CUDA takes longer than everything else, so it is skipped without a driver.
  const bool driver = ::access("/dev/nvidiactl", F_OK) == 0;
  return driver && cuda::available() ? kCanNccl : kCannotNccl;
}

/// Forms one rank's side of a group.
class GroupBuilder {
 public:
  explicit GroupBuilder(GroupConfig config)
      : config_{std::move(config)}, deadline_{deadline_of(config_.options)} {
    if (config_.size == 1 || !is_sub_group()) return;
    job_store_ = config_.store;
    recorded_ = std::make_shared<RecordedStore>(config_.store);
    config_.store = recorded_;
  }

  std::shared_ptr<Group> run() {
    meet();
    facts_.name = config_.options.name;
    facts_.key = config_.key;
    facts_.rank = config_.rank;
    facts_.size = config_.size;
    describe_ranks();
    config_.options.check = manifest_.check;
    auto backend = make_backend_or_tell();
    return with_failure_listener(std::make_unique<Group>(facts_, std::move(backend), config_.store,
                                                         config_.options, sub_groups()));
  }

 private:
  /// Of those a program may make any number; the keys of others stay until the round ends.
  [[nodiscard]] bool is_sub_group() const { return static_cast<bool>(config_.check_parent); }

  [[nodiscard]] Member introduce() {
    Member me;
    me.rank = config_.rank;
    me.size = config_.size;
    me.job_rank = config_.job_rank;
    me.pid = ::getpid();
    me.host = config_.host ? *config_.host : host_facts();
    me.backend = requested_backend(config_.options);
    me.group = config_.options.name;
    me.check = config_.options.check;
    return me;
  }

  void meet() {
    Member me = introduce();
    if (config_.size == 1) {
      manifest_.backend = me.backend == kWantsNccl || me.backend == kCanNccl ? "nccl" : "cpu";
      manifest_.check = config_.options.check.value_or(manifest_.backend == "cpu");
      manifest_.members = {std::move(me)};
      return;
    }
    try {
      listener_ = LocalGroup::open_listener();
      me.local_group = LocalGroup::name_of_listener(listener_);
    } catch (const Error& error) {
      report_failure(*config_.store, config_.key, me, error);
      throw;
    }
    manifest_ = gather_members(*config_.store, config_.key, me, config_.options, deadline_,
                               config_.check_parent);
  }

  void describe_ranks() {
    const auto local = manifest_.local_ranks(config_.rank);
    facts_.local_size = static_cast<int>(local.size());
    for (const auto& member : manifest_.members) {
      const auto near = manifest_.local_ranks(member.rank);
      const auto at = std::find(near.begin(), near.end(), member.rank) - near.begin();
      facts_.ranks.push_back({member.rank, member.host.name, member.pid, static_cast<int>(at)});
    }
    facts_.local_rank = facts_.ranks[static_cast<std::size_t>(config_.rank)].local_rank;
  }

  std::unique_ptr<Backend> make_backend_or_tell() {
    try {
      return make_backend();
    } catch (const Error& error) {
      if (config_.size == 1) throw;
      const auto cause = first_cause(*config_.store, config_.key, error);
      note_failed_peer(cause, config_.rank);
      throw cause;
    }
  }

  std::unique_ptr<Backend> make_backend() {
    if (manifest_.backend == "nccl") return make_nccl();
    if (config_.size == 1) {
      const auto alone = [](std::size_t bytes, Clock::time_point) { return make_memory(bytes); };
      return make_shm_backend(make_memory(segment_bytes(1)), shm_options(alone));
    }
    if (!manifest_.one_host()) return make_hosts();
    return make_local();
  }

  std::unique_ptr<Backend> make_local() {
    auto local_group = connect_local_group();
    std::unique_ptr<Backend> backend;
    std::optional<Error> failure;
    try {
      auto segment = local_group->share(segment_bytes(facts_.local_size), deadline_);
      auto options = shm_options([local_group](std::size_t bytes, Clock::time_point deadline) {
        return local_group->share(bytes, deadline);
      });
      options.require_sharing = [local_group] { local_group->require_open(); };
      backend = make_shm_backend(std::move(segment), std::move(options));
    } catch (const Error& error) {
      failure = error;
    }
    local_group->agree(failure, deadline_);
    return backend;
  }

  std::shared_ptr<LocalGroup> connect_local_group() {
    std::vector<Member> near;
    for (const int rank : manifest_.local_ranks(config_.rank))
      near.push_back(manifest_.members[static_cast<std::size_t>(rank)]);
    return std::make_shared<LocalGroup>(
        LocalGroup::connect(listener_, std::move(near), static_cast<std::size_t>(facts_.local_rank),
                            config_.key, deadline_));
  }

  ShmOptions shm_options(
      std::function<UniqueFd(std::size_t, Clock::time_point)> share_memory) const {
    ShmOptions options;
    options.rank = facts_.local_rank;
    options.size = facts_.local_size;
    for (const auto& facts : facts_.ranks) {
      const auto& host = manifest_.members[static_cast<std::size_t>(facts.rank)].host.key;
      if (host == manifest_.members[static_cast<std::size_t>(config_.rank)].host.key)
        options.ranks.push_back(facts);
    }
    options.group = facts_.name;
    options.check = manifest_.check;
    options.share_memory = std::move(share_memory);
    return options;
  }

  std::unique_ptr<Backend> make_nccl();
  std::unique_ptr<Backend> make_hosts();

  GroupMaker sub_groups() const {
    GroupConfig of_child = config_;
    if (job_store_) of_child.store = job_store_;
    return [of_child](Group& parent, SubGroup wanted) mutable {
      GroupConfig child = of_child;
      child.rank = wanted.rank;
      child.size = static_cast<int>(wanted.members.size());
      child.key = std::move(wanted.key);
      child.options.name = std::move(wanted.name);
      // The parent's ranks are watched; a rank that died won't join, nor one that knows of it.
      child.check_parent = [&parent, name = child.options.name] {
        if (const auto cause = parent.backend().cause())
          throw Error{cause->code(), "form group '" + name + "': " + cause->what(), cause->ranks(),
                      "split"};
      };
      if (wanted.limit) child.options.init_timeout = wanted.limit;
      if (wanted.backend != BackendKind::automatic) child.options.backend = wanted.backend;
      return form_group(std::move(child));
    };
  }

  std::shared_ptr<Group> with_failure_listener(std::unique_ptr<Group> group) {
    if (config_.size == 1) return group;
    std::shared_ptr<void> watch;
    if (!config_.agent_socket.empty()) {
      std::vector<int> job_ranks;
      for (const auto& member : manifest_.members) job_ranks.push_back(member.job_rank);
      watch = PeerFailureListener::watch(config_.agent_socket, config_.job_rank, group->backend(),
                                         std::move(job_ranks));
    }
    const auto leave = [recorded = recorded_, key = config_.key, rank = config_.rank,
                        size = config_.size] {
      if (recorded) recorded->leave(key, rank, size);
    };
    // The listener calls the backend, so it ends before the group. Keys of a broken one stay: the
    // store may be as lost as the peers, and nobody should wait for it.
    return {group.release(), [watch, leave, made_in = fork_generation()](Group* owned) mutable {
              watch.reset();
              const bool is_well = !owned->broken() && std::uncaught_exceptions() == 0;
              delete owned;  // NOLINT(cppcoreguidelines-owning-memory)
              if (is_well && made_in == fork_generation()) leave();
            }};
  }

  GroupConfig config_;
  std::shared_ptr<Store> job_store_;         // of a sub-group: what recorded_ writes to
  std::shared_ptr<RecordedStore> recorded_;  // of a sub-group
  Deadline deadline_;
  UniqueFd listener_;
  GroupManifest manifest_;
  GroupFacts facts_;
};

std::unique_ptr<Backend> GroupBuilder::make_nccl() {
  NcclOptions options;
  options.init_timeout = config_.options.init_timeout;
  options.check = manifest_.check;
  options.check_parties = config_.check_parent;
  return make_nccl_backend(config_.store ? config_.store : make_memory_store(), facts_, options);
}

std::unique_ptr<Backend> GroupBuilder::make_hosts() {
  HostsOptions options;
  options.rank = config_.rank;
  options.group = facts_.name;
  options.key = config_.key;
  options.manifest = manifest_;
  options.ranks = facts_.ranks;
  options.lookup = environment();
  options.master_address = config_.master_address;
  options.check_parties = config_.check_parent;
  return make_hosts_backend(*config_.store, connect_local_group(), std::move(options), deadline_);
}

void check_config(const GroupConfig& config) {
  if (config.size < 1 || config.rank < 0 || config.rank >= config.size)
    throw Error{ErrorCode::invalid_argument, "there is no rank " + std::to_string(config.rank) +
                                                 " of " + std::to_string(config.size)};
  if (config.size > 1 && (!config.store || config.key.empty()))
    throw Error{ErrorCode::invalid_argument, "a group of several ranks needs a store and a key"};
}

}  // namespace

std::shared_ptr<Group> form_group(GroupConfig config) {
  check_config(config);
  const auto store = config.store;
  const auto key = config.key;
  const int rank = config.rank;
  // Rank 0 may serve the store, so it must not end before the others have read the error.
  const auto leave = [&] {
    if (store && store->kind() == "tcp") await_readers(*store, key, rank);
  };
  try {
    return GroupBuilder{std::move(config)}.run();
  } catch (const Error&) {
    leave();
    throw;
  } catch (const std::exception& error) {  // out of memory, for example
    const Error ours{ErrorCode::system, std::string{"form the group: "} + error.what()};
    Member me;
    me.rank = rank;
    if (store) report_failure(*store, key, me, ours);
    leave();
    throw ours;
  }
}

}  // namespace acc::runtime
