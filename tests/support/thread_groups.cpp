#include "tests/support/thread_groups.hpp"

#include "runtime/group/group.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/support/reference_math.hpp"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

namespace acc::testing {

using namespace acc::runtime;  // NOLINT: this is a part of it, for tests

namespace {

// What the ranks of a group share. Everything under the one mutex.
struct Room {
  Room(int n, std::string group_name)
      : name{std::move(group_name)}, calls(static_cast<std::size_t>(n)), last(calls.size()) {}

  const std::string name;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Error> cause;  // broken
  std::vector<const Call*> calls;
  std::vector<Descriptor> last;  // completed, by rank
  std::vector<int> arrived;      // at the barrier
  std::uint64_t barriers = 0;    // passed
  std::shared_ptr<void> shared;  // of the allocation under way
  struct Message {
    Descriptor what;
    std::vector<std::byte> bytes;
  };
  std::map<std::pair<int, int>, std::deque<Message>> mail;  // by sender and receiver
  std::map<std::string, std::shared_ptr<Room>> children;    // by key

  void break_with(const Error& e) {
    if (!cause) cause = e;
    changed.notify_all();
  }
  void check() const {
    if (cause) throw *cause;
  }
};

std::byte* at(const void* base, std::size_t offset) {
  return static_cast<std::byte*>(const_cast<void*>(base)) + offset;
}

class ThreadBackend final : public Backend {
 public:
  ThreadBackend(std::shared_ptr<Room> room, int rank)
      : room_{std::move(room)}, rank_{rank}, size_{static_cast<int>(room_->calls.size())} {}
  ~ThreadBackend() override {
    const std::lock_guard lock{room_->mutex};
    if (!room_->cause)
      room_->break_with({ErrorCode::peer_lost,
                         "rank " + std::to_string(rank_) + " of group '" + room_->name + "' left",
                         {rank_}});
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "cpu"; }
  [[nodiscard]] const std::shared_ptr<Room>& room() const { return room_; }

  void run(const Call& call) override {
    std::unique_lock lock{room_->mutex};
    room_->check();
    const auto deadline = deadline_of(call);
    if (call.what.operation == Operation::send) return send(call);
    if (call.what.operation == Operation::recv) return recv(call, lock, deadline);
    meet(call, lock, deadline);
    std::vector<std::byte> result = compute(call);  // the others' buffers are still untouched
    barrier(call, lock, deadline);
    write(call, result);
    room_->last[index(rank_)] = call.what;
  }

  SharedBuffer allocate(std::size_t bytes, const Call& call) override {
    std::unique_lock lock{room_->mutex};
    room_->check();
    const auto deadline = deadline_of(call);
    meet(call, lock, deadline);
    // Threads need nothing special to share memory: a part of one block for each.
    const std::size_t part = (bytes + 63) / 64 * 64;
    if (rank_ == 0)
      room_->shared = std::shared_ptr<void>(
          std::aligned_alloc(64, std::max<std::size_t>(part * index(size_), 64)), std::free);
    barrier(call, lock, deadline);
    auto keep = room_->shared;
    barrier(call, lock, deadline);
    if (rank_ == 0) room_->shared.reset();
    void* mine = at(keep.get(), part * index(rank_));
    std::memset(mine, 0, bytes);
    return {mine, bytes, std::move(keep)};
  }

  void abort(const Error& cause) noexcept override {
    const std::lock_guard lock{room_->mutex};
    room_->break_with(cause);
  }
  [[nodiscard]] std::optional<Error> cause() const override {
    const std::lock_guard lock{room_->mutex};
    return room_->cause;
  }
  void lost(int rank, const std::string& how) noexcept override {
    const std::lock_guard lock{room_->mutex};
    room_->break_with(
        {ErrorCode::peer_lost,
         "rank " + std::to_string(rank) + " of group '" + room_->name + "' was lost: " + how,
         {rank}});
  }
  [[nodiscard]] std::vector<int> waits_for() const override {
    const std::lock_guard lock{room_->mutex};
    return missing();
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  static Clock::time_point deadline_of(const Call& call) {
    return call.limit == Millis{0} ? Clock::time_point::max() : Clock::now() + call.limit;
  }

  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int r = 0; r < size_; ++r)
      if (std::find(room_->arrived.begin(), room_->arrived.end(), r) == room_->arrived.end())
        ranks.push_back(r);
    return ranks;
  }

  template <class Ready>
  void wait(const Call& call, Lock& lock, Clock::time_point deadline, std::vector<int> for_whom,
            Ready ready) {
    const auto stop = [&] { return room_->cause.has_value() || ready(); };
    bool came = true;
    if (deadline == Clock::time_point::max())
      room_->changed.wait(lock, stop);
    else
      came = room_->changed.wait_until(lock, deadline, stop);
    if (!came) {
      auto late = for_whom.empty() ? missing() : std::move(for_whom);
      std::string text = to_string(call.what) + " on group '" + room_->name + "' timed out after " +
                         std::to_string(call.limit.count()) + " ms: " + describe_ranks(late) +
                         " didn't come";
      for (const int r : late) {
        const auto& last = room_->last[index(r)];
        text += "; rank " + std::to_string(r) + " completed last: " +
                (last.operation == Operation::none ? "nothing" : to_string(last));
      }
      room_->break_with({ErrorCode::timed_out, text, std::move(late),
                         std::string{to_string(call.what.operation)}, call.what.sequence});
    }
    if (!ready() || !came) room_->check();
  }

  void barrier(const Call& call, Lock& lock, Clock::time_point deadline) {
    room_->arrived.push_back(rank_);
    const auto passed = room_->barriers;
    if (room_->arrived.size() == room_->calls.size()) {
      room_->arrived.clear();
      ++room_->barriers;
      room_->changed.notify_all();
      return;
    }
    wait(call, lock, deadline, {}, [&] { return room_->barriers != passed; });
  }

  // All have come, and with the same thing.
  void meet(const Call& call, Lock& lock, Clock::time_point deadline) {
    room_->calls[index(rank_)] = &call;
    barrier(call, lock, deadline);
    room_->check();  // after a mismatch the calls of those who have thrown are gone
    std::vector<Descriptor> of_ranks;
    for (const Call* c : room_->calls) of_ranks.push_back(c->what);
    for (const auto& what : of_ranks)
      if (!(what == of_ranks[0])) room_->break_with(mismatch(of_ranks, room_->name));
    room_->check();
  }

  [[nodiscard]] std::size_t part(const Call& call, int r) const {
    return (call.counts.empty() ? call.what.count : call.counts[index(r)]) *
           size_of(call.what.dtype);
  }
  [[nodiscard]] std::size_t before(const Call& call, int r) const {
    std::size_t bytes = 0;
    for (int i = 0; i < r; ++i) bytes += part(call, i);
    return bytes;
  }
  [[nodiscard]] const Call& peer(int r) const { return *room_->calls[index(r)]; }

  static void append(std::vector<std::byte>& to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    to.insert(to.end(), at(from, 0), at(from, bytes));
  }

  std::vector<std::byte> reduced(const Call& call, std::size_t offset, std::size_t bytes) {
    std::vector<const void*> from;
    for (int r = 0; r < size_; ++r) from.push_back(bytes == 0 ? nullptr : at(peer(r).send, offset));
    std::vector<std::byte> made(bytes);
    reference_reduce(from, made.data(), bytes / size_of(call.what.dtype), call.what.dtype,
                     call.what.reduce);
    return made;
  }

  void check_pairs(const Call& call) {
    if (!call.by_pairs()) return;
    const auto each = size_of(call.what.dtype);
    for (int r = 0; r < size_; ++r)
      if (part(peer(r), rank_) != call.recv_counts[index(r)] * each)
        room_->break_with(pair_mismatch(to_string(call.what), r, part(peer(r), rank_) / each, rank_,
                                        call.recv_counts[index(r)]));
    room_->check();
  }

  std::vector<std::byte> compute(const Call& call) {
    std::vector<std::byte> made;
    const bool is_root = call.what.root == rank_;
    switch (call.what.operation) {
      case Operation::all_reduce:
        return reduced(call, 0, call.bytes());
      case Operation::reduce:
        return is_root ? reduced(call, 0, call.bytes()) : made;
      case Operation::reduce_scatter:
        return reduced(call, before(call, rank_), part(call, rank_));
      case Operation::broadcast:
        append(made, peer(call.what.root).send, call.bytes());
        return made;
      case Operation::gather:
        if (!is_root) return made;
        [[fallthrough]];
      case Operation::all_gather:
        for (int r = 0; r < size_; ++r) append(made, peer(r).send, part(call, r));
        return made;
      case Operation::scatter:
        if (part(call, rank_) > 0)
          append(made, at(peer(call.what.root).send, before(call, rank_)), part(call, rank_));
        return made;
      case Operation::all_to_all:
        check_pairs(call);
        for (int r = 0; r < size_; ++r)
          if (const auto bytes = part(peer(r), rank_); bytes > 0)
            append(made, at(peer(r).send, before(peer(r), rank_)), bytes);
        return made;
      default:
        return made;
    }
  }

  static void write(const Call& call, const std::vector<std::byte>& result) {
    if (!result.empty()) std::memcpy(call.recv, result.data(), result.size());
  }

  void send(const Call& call) {
    auto& box = room_->mail[{rank_, call.peer}];
    box.push_back({call.what, {}});
    append(box.back().bytes, call.send, call.bytes());
    room_->changed.notify_all();
  }

  void recv(const Call& call, Lock& lock, Clock::time_point deadline) {
    auto& box = room_->mail[{call.peer, rank_}];
    wait(call, lock, deadline, {call.peer}, [&] { return !box.empty(); });
    const auto message = std::move(box.front());
    box.pop_front();
    if (message.what.count != call.what.count || message.what.dtype != call.what.dtype) {
      room_->break_with({ErrorCode::mismatch,
                         "rank " + std::to_string(call.peer) + ": " + to_string(message.what) +
                             ", rank " + std::to_string(rank_) + ": " + to_string(call.what),
                         {call.peer},
                         "recv",
                         call.what.sequence});
      room_->check();
    }
    write(call, message.bytes);
  }

  const std::shared_ptr<Room> room_;
  const int rank_;
  const int size_;
};

GroupFacts facts_of(const Room& room, int rank, std::string key) {
  GroupFacts facts;
  facts.rank = facts.local_rank = rank;
  facts.size = facts.local_size = static_cast<int>(room.calls.size());
  facts.name = room.name;
  facts.key = std::move(key);
  for (int r = 0; r < facts.size; ++r) facts.ranks.push_back({r, "here", ::getpid(), r});
  return facts;
}

std::shared_ptr<Group> join(const std::shared_ptr<Room>& room, int rank, const std::string& key,
                            GroupOptions options);

std::shared_ptr<Group> join_child(Group& parent, SubGroup plan) {
  auto& outer = *dynamic_cast<ThreadBackend&>(parent.backend()).room();
  std::shared_ptr<Room> room;
  {
    const std::lock_guard lock{outer.mutex};
    auto& child = outer.children[plan.key];
    if (!child) child = std::make_shared<Room>(static_cast<int>(plan.members.size()), plan.name);
    room = child;
  }
  return join(room, plan.rank, plan.key, parent.options());
}

std::shared_ptr<Group> join(const std::shared_ptr<Room>& room, int rank, const std::string& key,
                            GroupOptions options) {
  options.name = room->name;
  return std::make_shared<Group>(facts_of(*room, rank, key),
                                 std::make_unique<ThreadBackend>(room, rank), nullptr,
                                 std::move(options), join_child);
}

}  // namespace

std::vector<std::unique_ptr<Backend>> thread_backends(int n, const std::string& group) {
  const auto room = std::make_shared<Room>(n, group);
  std::vector<std::unique_ptr<Backend>> backends;
  for (int r = 0; r < n; ++r) backends.push_back(std::make_unique<ThreadBackend>(room, r));
  return backends;
}

std::vector<ProcessGroup> thread_groups(int n, GroupOptions options) {
  if (!options.timeout) options.timeout = std::chrono::seconds{20};
  const auto room = std::make_shared<Room>(n, options.name);
  std::vector<ProcessGroup> groups;
  for (int r = 0; r < n; ++r) groups.emplace_back(join(room, r, "test", options));
  return groups;
}

namespace {

// Does it only say that another thread failed?
bool is_aftermath(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& e) {
    return e.code() == ErrorCode::aborted || e.code() == ErrorCode::peer_lost;
  } catch (...) {
    return false;
  }
}

}  // namespace

void on_all(std::vector<ProcessGroup>& groups, const std::function<void(ProcessGroup&)>& body) {
  const auto failures = on_rank_threads(groups.size(), [&](int rank) {
    auto& group = groups[static_cast<std::size_t>(rank)];
    try {
      body(group);
    } catch (const std::exception& e) {
      group.abort("rank " + std::to_string(rank) + " failed: " + e.what());
      throw;
    } catch (...) {
      group.abort("rank " + std::to_string(rank) + " failed");
      throw;
    }
  });
  for (const auto& failure : failures)
    if (failure && !is_aftermath(failure)) std::rethrow_exception(failure);
  rethrow_first(failures);
}

void on_ranks(int n, const std::function<void(ProcessGroup&)>& body) {
  auto groups = thread_groups(n);
  on_all(groups, body);
}

}  // namespace acc::testing
