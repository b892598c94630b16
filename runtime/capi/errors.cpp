#include "runtime/capi/handles.hpp"

#include <algorithm>

namespace acc::capi {

namespace {

struct LastError {
  std::string what = "no call of this thread has failed";
  std::string operation;
  std::uint64_t sequence = 0;
  std::vector<int> ranks;
  bool without_memory = false;  // then `what` is what was before
};

LastError& last() noexcept {
  static thread_local LastError error;
  return error;
}

acc_status status_of(runtime::ErrorCode code) noexcept {
  using runtime::ErrorCode;
  switch (code) {
    case ErrorCode::timed_out:
      return ACC_TIMED_OUT;
    case ErrorCode::peer_lost:
      return ACC_PEER_LOST;
    case ErrorCode::mismatch:
      return ACC_MISMATCH;
    case ErrorCode::aborted:
      return ACC_ABORTED;
    case ErrorCode::invalid_argument:
      return ACC_INVALID_ARGUMENT;
    case ErrorCode::system:
      return ACC_SYSTEM;
    case ErrorCode::corrupt:
      return ACC_CORRUPT;
    case ErrorCode::cuda:
      return ACC_CUDA;
    case ErrorCode::nccl:
      return ACC_NCCL;
  }
  return ACC_INTERNAL;
}

acc_status keep_all(acc_status status, std::string_view what, std::string_view operation,
                    std::uint64_t sequence, const std::vector<int>& ranks) noexcept {
  LastError& error = last();
  error.sequence = sequence;
  try {
    error.what = what;
    error.operation = operation;
    error.ranks = ranks;
    error.without_memory = false;
  } catch (const std::bad_alloc&) {
    error.without_memory = true;
    error.operation.clear();
    error.ranks.clear();
  }
  return status;
}

}  // namespace

acc_status keep(const runtime::Error& error) noexcept {
  return keep_all(status_of(error.code()), error.what(), error.operation(), error.sequence(),
                  error.ranks());
}

acc_status keep(acc_status status, std::string_view what) noexcept {
  return keep_all(status, what, {}, 0, {});
}

}  // namespace acc::capi

using acc::capi::last;
using acc::runtime::ErrorCode;

#ifdef ACC_PROJECT_VERSION
static_assert(ACC_VERSION == ACC_PROJECT_VERSION, "acc.h and CMakeLists.txt say other versions");
#endif

extern "C" {

int32_t acc_version(void) { return ACC_VERSION; }

const char* acc_status_name(acc_status status) {
  if (status == ACC_OK) return "ok";
  if (status == ACC_INTERNAL) return "internal";
  for (int i = 0; i <= static_cast<int>(ErrorCode::nccl); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    if (acc::capi::status_of(code) == status) return to_string(code).data();  // a literal's
  }
  return "unknown";
}

const char* acc_last_error(void) {
  return last().without_memory ? "a call failed, and no memory was left to say how"
                               : last().what.c_str();
}

const char* acc_last_error_operation(void) { return last().operation.c_str(); }

uint64_t acc_last_error_sequence(void) { return last().sequence; }

size_t acc_last_error_ranks(int32_t* ranks, size_t capacity) {
  const auto& known = last().ranks;
  if (ranks != nullptr) std::copy_n(known.begin(), std::min(capacity, known.size()), ranks);
  return known.size();
}

}  // extern "C"
