#pragma once

#include "runtime/nccl/nccl_calls.hpp"
#include "runtime/nccl/nccl_group.hpp"
#include "runtime/nccl/registration.hpp"

#include <acc/cuda.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace acc::runtime::nccl {

/// See nccl_backend.hpp.
class NcclBackend final : public Backend {
 public:
  NcclBackend(std::shared_ptr<NcclGroup> group, bool check, Millis close_limit);
  ~NcclBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }
  [[nodiscard]] Device device() const noexcept override {
    return {Device::Kind::cuda, group_->device()};
  }
  void run(const Call& call) override;
  [[nodiscard]] std::shared_ptr<Pending> begin(const Call& call) override;
  [[nodiscard]] std::shared_ptr<Pending> begin_as_one(std::span<const Call> calls) override;
  SharedBuffer allocate(std::size_t bytes, const Call& call) override;
  void abort(const Error& cause) noexcept override;
  [[nodiscard]] std::optional<Error> cause() const override;
  void lost(int rank, const std::string& how) noexcept override;
  [[nodiscard]] bool asynchronous() const noexcept override { return true; }

  [[nodiscard]] const std::shared_ptr<NcclGroup>& group() const noexcept { return group_; }

 private:
  std::uint64_t enqueue(const Call& call);
  std::uint64_t enqueue(const Call& call, const std::function<void()>& work);
  void order_behind(const Call& call, const WorkRing::Events& events);
  void order_before(const Call& call, const WorkRing::Events& events);
  void await_room();
  void compare(const Call& call);
  std::uint64_t run_staged(const Call& call);
  [[nodiscard]] bool in_host_memory(const Call& call) const noexcept;
  [[nodiscard]] bool is_captured(cuda::Stream stream) const;
  [[nodiscard]] Lane lane(Comm comm) const;
  [[noreturn]] void rethrow(const Error& error, const Call& call);

  const std::shared_ptr<NcclGroup> group_;
  const bool check_;
  const Millis close_limit_;
  std::mutex enqueuing_;              ///< a send may come from a second thread
  acc::cuda::DeviceBuffer scratch_;   ///< a token for barriers, then a descriptor of each rank
  acc::cuda::PinnedBuffer compared_;  ///< the descriptors on the host
  acc::cuda::DeviceBuffer staged_;    ///< of calls with host memory; grows
  std::vector<std::weak_ptr<Registration>> registrations_;
};

}  // namespace acc::runtime::nccl
