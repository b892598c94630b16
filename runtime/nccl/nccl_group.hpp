#pragma once

#include "runtime/backend.hpp"
#include "runtime/group/group.hpp"
#include "runtime/nccl/communicator.hpp"
#include "runtime/nccl/desync.hpp"
#include "runtime/nccl/desync_diagnosis.hpp"
#include "runtime/nccl/device.hpp"
#include "runtime/nccl/watchdog.hpp"
#include "runtime/nccl/work_ring.hpp"
#include "runtime/net/store.hpp"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

namespace acc::runtime::nccl {

/// State shared by a backend, its watchdog and the handles of its calls: the communicator, the
/// calls in progress, and the first cause of failure.
class NcclGroup final : public Watched {
 public:
  NcclGroup(const Api& nccl, const cuda::Api& cuda, std::shared_ptr<Store> store, GroupFacts facts,
            int device, Millis abort_limit);
  ~NcclGroup() override;
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  [[nodiscard]] Communicator& comm() noexcept { return comm_; }
  [[nodiscard]] WorkRing& ring() noexcept { return ring_; }
  [[nodiscard]] const cuda::OwnedStream& stream() const noexcept { return stream_; }
  [[nodiscard]] const GroupFacts& facts() const noexcept { return facts_; }
  [[nodiscard]] const cuda::Api& cuda() const noexcept { return cuda_; }
  [[nodiscard]] DesyncDiagnosis& diagnosis() noexcept { return diagnosis_; }

  enum class Origin : std::uint8_t { here, peer };
  /// Breaks the group on this rank for good; the first cause counts. Any thread, never blocks. The
  /// peers are notified, and other groups on the device are broken as well unless the cause is a
  /// call of abort().
  void break_with(const Error& cause, Origin origin) noexcept;

  /// Waits until a call is done. @throws Error the cause of the group's failure, or timed_out after
  /// `limit` (the call continues)
  void wait(std::uint64_t ticket, std::optional<Millis> limit);
  /// Waits until the device has completed everything enqueued on the stream. For the enqueuing
  /// thread. @throws Error the cause of the group's failure
  void wait_for_stream();
  [[nodiscard]] bool done(std::uint64_t ticket) noexcept;
  /// Did it complete before the group broke?
  [[nodiscard]] bool succeeded(std::uint64_t ticket) const noexcept;

  /// For a broken group: waits until the peers know the cause, as the store may end with this
  /// process.
  void await_telling(Millis limit) noexcept;

  void probe() noexcept override;
  Clock::time_point talk() noexcept override;
  Clock::time_point judge() noexcept override;
  [[nodiscard]] int device() const noexcept override { return comm_.who().device; }
  void neighbour_broke(const Error& cause) noexcept override;

 private:
  [[nodiscard]] RankProgress progress() const;
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
  DesyncDiagnosis diagnosis_;

  /// Calls completed before it broke: an abort ends the others, whose events then look completed.
  std::atomic<std::uint64_t> sound_{0};
  std::mutex breaking_;

  std::mutex found_mutex_;
  std::optional<Error> found_;              ///< by probe()
  std::atomic<Clock::rep> probe_began_{0};  ///< 0: none runs
  std::atomic<Clock::rep> probed_{0};       ///< start of the last one that ended

  std::mutex telling_;
  std::condition_variable told_;
  std::optional<Error> to_tell_;
  bool acknowledged_ = false;
};

}  // namespace acc::runtime::nccl
