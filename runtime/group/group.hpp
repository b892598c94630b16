#pragma once

#include "common/heartbeat_slot.hpp"
#include "runtime/backend.hpp"
#include "runtime/group/arguments.hpp"
#include "runtime/group/call_queue.hpp"
#include "runtime/group/flight_recorder.hpp"
#include "runtime/group/group_facts.hpp"
#include "runtime/group/monitor.hpp"
#include "runtime/net/store.hpp"

#include <acc/process_group.hpp>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace acc::runtime {

/// Description of a sub-group; identical on all of its members except `rank`.
struct SubGroup {
  int rank = 0;
  std::vector<int> members;  ///< their ranks in the parent, ordered by the new ranks
  std::string name;
  std::string key;              ///< as GroupFacts::key
  std::optional<Millis> limit;  ///< for all to join; none: as the parent's
  BackendKind backend = BackendKind::automatic;  ///< automatic: as the parent's
};

/// Makes one member's side of a sub-group. Collective over its members.
/// @throws Error  the parent stays usable after invalid_argument alone
using GroupMaker = std::function<std::shared_ptr<class Group>(class Group& parent, SubGroup)>;

/// One rank's side of a group: checks and numbers calls, keeps them in order, records them, and
/// passes them to the backend. Threads: as ProcessGroup.
class Group {
 public:
  /// @param store  may be nullptr where the maker needs none
  /// @param maker  makes the groups of split and sub_group
  Group(GroupFacts facts, std::unique_ptr<Backend> backend, std::shared_ptr<Store> store,
        GroupOptions options, GroupMaker maker = {});
  /// Waits for the calls that were started, each within its limit. During stack unwinding the peers
  /// are notified instead (`aborted`), so that they don't wait for this rank. Does nothing in a
  /// forked process, which doesn't own the group.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] const GroupFacts& facts() const noexcept { return facts_; }
  [[nodiscard]] const GroupOptions& options() const noexcept { return options_; }
  [[nodiscard]] Millis limit() const noexcept { return limit_; }  ///< of a call; 0: none
  [[nodiscard]] Backend& backend() noexcept { return *backend_; }
  [[nodiscard]] const std::shared_ptr<Store>& store() const noexcept { return store_; }
  [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  [[nodiscard]] const FlightRecorder& record() const noexcept { return record_; }

  /// Carries out a call after those started before. Sets its sequence number, limit and stream.
  void run(Call call, const CallOptions& how) { run(call, how, nullptr); }
  [[nodiscard]] Work start(Call call, const CallOptions& how);
  [[nodiscard]] SharedBuffer allocate(std::size_t bytes, const CallOptions& how);
  /// Starts messages to run concurrently. None is started if one of them is refused.
  [[nodiscard]] std::vector<Work> start_messages(std::vector<Call> calls, const CallOptions& how);
  /// As ProcessGroup's.
  void coalesce(const std::function<void()>& body);
  /// Refuses, within coalesce, what needs its result immediately.
  void require_no_coalesce(std::string_view what) const;
  /// Do calls return when enqueued?
  [[nodiscard]] bool asynchronous() const noexcept { return asynchronous_; }

  /// As ProcessGroup's. nullptr: this rank is in none.
  [[nodiscard]] std::shared_ptr<Group> split(int color, int key, std::string name,
                                             const CallOptions& how);
  [[nodiscard]] std::shared_ptr<Group> sub_group(std::span<const int> ranks, std::string name,
                                                 const CallOptions& how);

  void abort(std::string_view why) noexcept;

  [[nodiscard]] std::string flight_record() const {
    return to_json_lines(record_, facts_.name, facts_.rank);
  }

 private:
  void run(Call call, const CallOptions& how, SharedBuffer* buffer);
  void hand_over(const Call& call, SharedBuffer* buffer, FlightRecorder::Ticket ticket);
  [[nodiscard]] Work queue_up(CallQueue& queue, const Call& call, SharedBuffer* buffer);
  void check(const Call& call, bool waits) const;
  void prepare(Call& call, const CallOptions& how, bool waits);
  [[nodiscard]] Work collect(Call call, const CallOptions& how);
  void launch(std::span<const std::shared_ptr<Work::State>> states);
  void carry_out(Work::State& work);
  [[nodiscard]] CallQueue& queue_of(const Call& call) noexcept {
    return call.what.operation == Operation::send ? *sends_ : *calls_;
  }
  [[noreturn]] void fail(const Call& call, FlightRecorder::Ticket ticket);
  void break_with(const Error& cause) noexcept;
  [[noreturn]] void refuse(const Call& call, const char* fault) const;
  [[noreturn]] void refuse_broken() const;
  [[nodiscard]] std::shared_ptr<Group> make(std::vector<int> members, std::string name, int color,
                                            const CallOptions& how);

  const GroupFacts facts_;
  const GroupOptions options_;
  const Millis limit_;
  std::unique_ptr<Backend> backend_;  // empty only in the destructor of a forked process
  const bool asynchronous_;
  const std::shared_ptr<Store> store_;
  const GroupMaker maker_;
  FlightRecorder record_;
  const monitor::Watched watched_;

  // Of the calling thread.
  struct Numbers {
    std::uint64_t sequence = 0;       // of collectives
    std::vector<std::uint64_t> sent;  // messages, by peer
    std::vector<std::uint64_t> received;
  };
  Numbers numbers_;
  std::vector<std::shared_ptr<Work::State>>* collected_ = nullptr;  // within coalesce, asynchronous
  UsedMemory* coalesced_ = nullptr;                                 // within coalesce
  std::uint64_t children_ = 0;                                      // sub-groups requested

  const std::uint64_t made_in_;  // fork_generation()
  /// Of the group of all ranks: here the agent sees which collective this rank is in.
  heartbeat::Slot* const slot_;
  std::atomic<bool> broken_{false};
  mutable std::mutex cause_mutex_;
  std::optional<Error> cause_;  // the first

  std::unique_ptr<CallQueue> calls_;
  std::unique_ptr<CallQueue> sends_;
};

}  // namespace acc::runtime
