#pragma once

#include "runtime/backend.hpp"
#include "runtime/bootstrap/store.hpp"
#include "runtime/group/group.hpp"
#include "runtime/nccl/communicator.hpp"
#include "runtime/nccl/desync.hpp"
#include "runtime/nccl/device.hpp"
#include "runtime/nccl/inquiry.hpp"
#include "runtime/nccl/watchdog.hpp"
#include "runtime/nccl/work_ring.hpp"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

namespace acc::runtime::nccl {

/// What a backend, its watchdog and the handles of its calls share: the communicator, the calls
/// under way, and the first cause of its end.
class Core final : public Watched {
 public:
  Core(const Api& nccl, const cuda::Api& cuda, std::shared_ptr<Store> store, GroupFacts facts,
       int device, Millis abort_limit);
  ~Core() override;
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] Communicator& comm() noexcept { return comm_; }
  [[nodiscard]] WorkRing& ring() noexcept { return ring_; }
  [[nodiscard]] const cuda::OwnedStream& stream() const noexcept { return stream_; }
  [[nodiscard]] const GroupFacts& facts() const noexcept { return facts_; }
  [[nodiscard]] const cuda::Api& cuda() const noexcept { return cuda_; }
  [[nodiscard]] Inquiry& inquiry() noexcept { return inquiry_; }

  enum class Told : std::uint8_t { to_peers, by_peer };
  /// Breaks the group here for good; the first cause counts. From any thread, at once; the peers
  /// are told, what else is on the device is broken as well unless somebody just called abort().
  void break_with(const Error& cause, Told told) noexcept;

  /// Waits until a call is done. @throws Error the cause of the group's end, or timed_out after
  /// `limit` (the call goes on then)
  void wait(std::uint64_t ticket, std::optional<Millis> limit);
  /// Waits until the device is through with all that is on the stream now. For the thread that
  /// enqueues. @throws Error the cause of the group's end
  void wait_for_stream();
  [[nodiscard]] bool done(std::uint64_t ticket) noexcept;
  /// Was it done before the group broke?
  [[nodiscard]] bool well(std::uint64_t ticket) const noexcept;

  /// Of a broken group: waits until the peers know why, as the store may end with this process.
  void await_telling(Millis limit) noexcept;

  void probe() noexcept override;
  Clock::time_point talk() noexcept override;
  Clock::time_point judge() noexcept override;
  [[nodiscard]] int device() const noexcept override { return comm_.who().device; }
  void neighbour_broke(const Error& cause) noexcept override;

 private:
  [[nodiscard]] Position position() const;
  void break_by(const char* call, cuda::Status status) noexcept;
  [[nodiscard]] std::optional<WorkRing::Entry> overdue(Clock::time_point now,
                                                       Clock::time_point& next) const;
  [[nodiscard]] bool probed_since(Clock::time_point moment) const noexcept;
  [[nodiscard]] std::string trouble(Clock::time_point now) const;
  void judge_calls(Clock::time_point now, Clock::time_point& next);
  void judge_driver(Clock::time_point now) const;
  void tell_peers() noexcept;
  void keep_to_tell(const Error& cause) noexcept;

  const cuda::Api& cuda_;
  const GroupFacts facts_;
  Communicator comm_;
  cuda::OwnedStream stream_;
  WorkRing ring_;
  cuda::Event through_ = nullptr;  ///< of wait_for_stream
  Inquiry inquiry_;

  /// Calls that were done when it broke: an abort lets the device run through the others, whose
  /// events then look as if they had ended well.
  std::atomic<std::uint64_t> sound_{0};
  std::mutex breaking_;

  std::mutex found_mutex_;
  std::optional<Error> found_;              ///< by probe()
  std::atomic<Clock::rep> probe_began_{0};  ///< 0: none runs
  std::atomic<Clock::rep> probed_{0};       ///< when the last one that ended began

  std::mutex telling_;
  std::condition_variable told_;
  std::optional<Error> to_tell_;
  bool acknowledged_ = false;
};

}  // namespace acc::runtime::nccl
