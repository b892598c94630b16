#include "runtime/nccl/registration.hpp"

namespace acc::runtime::nccl {
namespace {

/// NCCL may need all ranks for it, and a destructor mustn't wait for ever.
constexpr auto kToDeregister = std::chrono::seconds{5};

/// NCCL wants windows in whole pages.
std::size_t whole_pages(std::size_t bytes) {
  const auto pages = (bytes + kWindowAlignment - 1) / kWindowAlignment;
  return (pages == 0 ? 1 : pages) * kWindowAlignment;
}

}  // namespace

Registration::Registration(std::shared_ptr<NcclGroup> group, std::size_t bytes,
                           Clock::time_point deadline)
    : group_{std::move(group)} {
  const auto& api = group_->comm().api();
  const auto size = whole_pages(bytes);
  if (api.mem_alloc == nullptr) {  // before 2.19: ordinary memory without registration
    cuda::check(group_->cuda(), "cudaMalloc", group_->cuda().malloc(&data_, size));
    return;
  }
  if (const auto status = api.mem_alloc(&data_, size); status != Status::success) {
    throw Error{ErrorCode::nccl, explain(api, "ncclMemAlloc", status)};
  }
  try {
    enroll(size, deadline);
  } catch (...) {
    (void)api.mem_free(data_);
    throw;
  }
}

void Registration::enroll(std::size_t bytes, Clock::time_point deadline) {
  const auto& api = group_->comm().api();
  if (api.window_register != nullptr) {
    try {
      group_->comm().call(
          "ncclCommWindowRegister",
          [&](Comm comm) {
            return api.window_register(comm, data_, bytes, &window_, kWindowCollSymmetric);
          },
          deadline);
      // Without peer access between the devices NCCL reports success but gives no window.
      if (window_ != nullptr) return;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;  // else: unsupported on this machine
    }
  }
  if (api.comm_register == nullptr) return;
  group_->comm().call("ncclCommRegister",
                      [&](Comm comm) { return api.comm_register(comm, data_, bytes, &handle_); });
}

void Registration::deregister() noexcept {
  const std::lock_guard lock{mutex_};
  const auto& api = group_->comm().api();
  auto& comm = group_->comm();
  const auto deadline = Clock::now() + kToDeregister;
  try {
    if (window_ != nullptr && comm.phase() == Phase::ready) {
      comm.call(
          "ncclCommWindowDeregister",
          [&](Comm handle) { return api.window_deregister(handle, window_); }, deadline);
    }
    if (handle_ != nullptr && comm.phase() == Phase::ready) {
      comm.call(
          "ncclCommDeregister", [&](Comm handle) { return api.comm_deregister(handle, handle_); },
          deadline);
    }
  } catch (const Error& error) {
    // The group is broken by now, or should be: NCCL is in an operation that doesn't end.
    group_->break_with(error, NcclGroup::Origin::here);
  }
  window_ = nullptr;
  handle_ = nullptr;
}

Registration::~Registration() {
  deregister();
  try {
    const cuda::DeviceScope here{group_->cuda(), group_->device()};
    const auto& api = group_->comm().api();
    if (api.mem_free != nullptr) {
      (void)api.mem_free(data_);
    } else {
      (void)group_->cuda().free(data_);
    }
  } catch (const std::exception&) {  // the device is gone
  }
}

}  // namespace acc::runtime::nccl
