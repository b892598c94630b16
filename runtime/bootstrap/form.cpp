#include "runtime/bootstrap/form.hpp"

#include "common/duration.hpp"
#include "runtime/bootstrap/circle.hpp"
#include "runtime/bootstrap/lost_watch.hpp"
#include "runtime/bootstrap/roll.hpp"
#include "runtime/nccl/nccl_backend.hpp"
#include "runtime/shm/shm_backend.hpp"
#include "runtime/tcp/hosts_backend.hpp"

#include <unistd.h>

#include <acc/cuda.hpp>
#include <algorithm>
#include <utility>

namespace acc::runtime {

namespace {

Deadline deadline_of(const GroupOptions& options) {
  const auto limit = options.init_timeout.value_or(Millis{0});
  if (limit == Millis{0}) return Deadline::max();
  return Clock::now() + limit;
}

/// For the word of a rank that failed, when others only see that it is gone.
constexpr auto kCauseTime = std::chrono::milliseconds{300};

/// Ranks agreed on who they are, and then one failed: the first cause, for all of them. Each that
/// failed writes what it knows unless another has; that a connection ended is no cause as long as
/// another may still write why.
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

std::string wish_of(const GroupOptions& options) {
  if (options.backend == BackendKind::cpu) return kWantsCpu;
  if (options.backend == BackendKind::nccl) return kWantsNccl;
  // Loading CUDA takes longer than all the rest: not where there is no driver at all.
  const bool driver = ::access("/dev/nvidiactl", F_OK) == 0;
  return driver && cuda::available() ? kCanNccl : kCannotNccl;
}

/// One rank's way into a group.
class Forming {
 public:
  explicit Forming(Formation formation)
      : formation_{std::move(formation)}, deadline_{deadline_of(formation_.options)} {}

  std::shared_ptr<Group> run() {
    meet();
    facts_.name = formation_.options.name;
    facts_.key = formation_.key;
    facts_.rank = formation_.rank;
    facts_.size = formation_.size;
    describe_ranks();
    formation_.options.check = roll_.check;
    auto backend = make_backend_or_tell();
    return watched(std::make_unique<Group>(facts_, std::move(backend), formation_.store,
                                           formation_.options, sub_groups()));
  }

 private:
  [[nodiscard]] Member introduce() {
    Member me;
    me.rank = formation_.rank;
    me.size = formation_.size;
    me.job_rank = formation_.job_rank;
    me.pid = ::getpid();
    me.host = formation_.host ? *formation_.host : host_facts();
    me.backend = wish_of(formation_.options);
    return me;
  }

  void meet() {
    Member me = introduce();
    if (formation_.size == 1) {
      roll_.backend = me.backend == kWantsNccl || me.backend == kCanNccl ? "nccl" : "cpu";
      roll_.check = formation_.options.check.value_or(roll_.backend == "cpu");
      roll_.members = {std::move(me)};
      return;
    }
    try {
      door_ = Circle::open_door();
      me.circle = Circle::name_of_door(door_);
    } catch (const Error& error) {
      excuse(*formation_.store, formation_.key, me, error);
      throw;
    }
    roll_ = call_the_roll(*formation_.store, formation_.key, me, formation_.options, deadline_);
  }

  void describe_ranks() {
    const auto local = roll_.local_ranks(formation_.rank);
    facts_.local_size = static_cast<int>(local.size());
    for (const auto& member : roll_.members) {
      const auto near = roll_.local_ranks(member.rank);
      const auto at = std::find(near.begin(), near.end(), member.rank) - near.begin();
      facts_.ranks.push_back({member.rank, member.host.name, member.pid, static_cast<int>(at)});
    }
    facts_.local_rank = facts_.ranks[static_cast<std::size_t>(formation_.rank)].local_rank;
  }

  std::unique_ptr<Backend> make_backend_or_tell() {
    try {
      return make_backend();
    } catch (const Error& error) {
      if (formation_.size == 1) throw;
      throw first_cause(*formation_.store, formation_.key, error);
    }
  }

  std::unique_ptr<Backend> make_backend() {
    if (roll_.backend == "nccl") return make_nccl();
    if (formation_.size == 1) {
      const auto alone = [](std::size_t bytes, Clock::time_point) { return make_memory(bytes); };
      return make_shm_backend(make_memory(segment_bytes(1)), shm_options(alone));
    }
    if (!roll_.one_host()) return make_hosts();
    return make_local();
  }

  std::unique_ptr<Backend> make_local() {
    auto circle = meet_circle();
    std::unique_ptr<Backend> backend;
    std::optional<Error> failure;
    try {
      auto segment = circle->share(segment_bytes(facts_.local_size), deadline_);
      backend = make_shm_backend(
          std::move(segment), shm_options([circle](std::size_t bytes, Clock::time_point deadline) {
            return circle->share(bytes, deadline);
          }));
    } catch (const Error& error) {
      failure = error;
    }
    circle->agree(failure, deadline_);
    return backend;
  }

  std::shared_ptr<Circle> meet_circle() {
    std::vector<Member> near;
    for (const int rank : roll_.local_ranks(formation_.rank))
      near.push_back(roll_.members[static_cast<std::size_t>(rank)]);
    return std::make_shared<Circle>(Circle::meet(door_, std::move(near),
                                                 static_cast<std::size_t>(facts_.local_rank),
                                                 formation_.key, deadline_));
  }

  ShmOptions shm_options(
      std::function<UniqueFd(std::size_t, Clock::time_point)> share_memory) const {
    ShmOptions options;
    options.rank = facts_.local_rank;
    options.size = facts_.local_size;
    for (const auto& facts : facts_.ranks) {
      const auto& host = roll_.members[static_cast<std::size_t>(facts.rank)].host.key;
      if (host == roll_.members[static_cast<std::size_t>(formation_.rank)].host.key)
        options.ranks.push_back(facts);
    }
    options.group = facts_.name;
    options.check = roll_.check;
    options.share_memory = std::move(share_memory);
    return options;
  }

  std::unique_ptr<Backend> make_nccl();
  std::unique_ptr<Backend> make_hosts();

  GroupMaker sub_groups() const {
    Formation of_child = formation_;
    return [of_child](Group& parent, SubGroup wanted) mutable {
      Formation child = of_child;
      child.rank = wanted.rank;
      child.size = static_cast<int>(wanted.members.size());
      child.key = std::move(wanted.key);
      child.store = parent.store();
      child.options.name = std::move(wanted.name);
      if (wanted.limit) child.options.init_timeout = wanted.limit;
      return form_group(std::move(child));
    };
  }

  std::shared_ptr<Group> watched(std::unique_ptr<Group> group) {
    if (formation_.agent_socket.empty() || formation_.size == 1) return group;
    std::vector<int> job_ranks;
    for (const auto& member : roll_.members) job_ranks.push_back(member.job_rank);
    auto watch = LostWatch::watch(formation_.agent_socket, formation_.job_rank, group->backend(),
                                  std::move(job_ranks));
    // The watch speaks to the backend: it ends before the group does.
    return {group.release(), [watch](Group* owned) mutable {
              watch.reset();
              delete owned;  // NOLINT(cppcoreguidelines-owning-memory)
            }};
  }

  Formation formation_;
  Deadline deadline_;
  UniqueFd door_;
  Roll roll_;
  GroupFacts facts_;
};

std::unique_ptr<Backend> Forming::make_nccl() {
  NcclOptions options;
  options.init_timeout = formation_.options.init_timeout;
  options.check = roll_.check;
  return make_nccl_backend(formation_.store ? formation_.store : make_memory_store(), facts_,
                           options);
}

std::unique_ptr<Backend> Forming::make_hosts() {
  HostsOptions options;
  options.rank = formation_.rank;
  options.group = facts_.name;
  options.key = formation_.key;
  options.roll = roll_;
  options.ranks = facts_.ranks;
  options.lookup = environment();
  options.master_address = formation_.master_address;
  return make_hosts_backend(*formation_.store, meet_circle(), std::move(options), deadline_);
}

void check_formation(const Formation& formation) {
  if (formation.size < 1 || formation.rank < 0 || formation.rank >= formation.size)
    throw Error{ErrorCode::invalid_argument, "there is no rank " + std::to_string(formation.rank) +
                                                 " of " + std::to_string(formation.size)};
  if (formation.size > 1 && (!formation.store || formation.key.empty()))
    throw Error{ErrorCode::invalid_argument, "a group of several ranks needs a store and a key"};
}

}  // namespace

std::shared_ptr<Group> form_group(Formation formation) {
  check_formation(formation);
  const auto store = formation.store;
  const auto key = formation.key;
  const int rank = formation.rank;
  // Rank 0 may serve the store: when it ends the others must have read what went wrong.
  const auto leave = [&] {
    if (store && store->kind() == "tcp") take_leave(*store, key, rank);
  };
  try {
    return Forming{std::move(formation)}.run();
  } catch (const Error&) {
    leave();
    throw;
  } catch (const std::exception& error) {  // no memory, say
    const Error ours{ErrorCode::system, std::string{"form the group: "} + error.what()};
    Member me;
    me.rank = rank;
    if (store) excuse(*store, key, me, ours);
    leave();
    throw ours;
  }
}

}  // namespace acc::runtime
