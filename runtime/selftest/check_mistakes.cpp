#include "runtime/selftest/checks.hpp"

#include <algorithm>
#include <chrono>

namespace acc::selftest {

using namespace runtime;

namespace {

using Clock = std::chrono::steady_clock;

/// The call must fail with this code; a group that did is broken, so each gets one of its own.
template <class F>
Error must_fail(ErrorCode code, const std::string& what, F&& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.code() == code) return error;
    throw Failed{what + ": reported as " + std::string{to_string(error.code())} + ": " +
                 error.what()};
  }
  throw Failed{what + ": no rank noticed"};
}

}  // namespace

std::string check_mismatch(ProcessGroup& group) {
  if (group.size() == 1) return "one rank: nothing to compare";
  const bool odd = group.rank() == group.size() - 1;
  std::vector<float> data(1000, 1.0F);

  // All groups first: a rank that has something to complain of makes no more of them.
  auto counts = group.split(0, group.rank(), "counts");
  auto types = group.split(0, group.rank(), "types");
  auto operations = group.split(0, group.rank(), "operations");
  must_fail(ErrorCode::mismatch, "all_reduce of 1000 and 900 elements",
            [&] { counts.all_reduce(data.data(), data.data(), odd ? 900 : 1000, DType::f32); });
  must_fail(ErrorCode::mismatch, "all_reduce of f32 and i32", [&] {
    types.all_reduce(data.data(), data.data(), 1000, odd ? DType::i32 : DType::f32);
  });
  must_fail(ErrorCode::mismatch, "all_reduce and broadcast", [&] {
    if (odd)
      operations.broadcast(data.data(), 1000, DType::f32, 0);
    else
      operations.all_reduce(data.data(), data.data(), 1000, DType::f32);
  });
  return "other counts, types and operations are reported on every rank";
}

namespace {

constexpr Millis kLimit{300};

/// Of a rank that waits for the late one in a barrier of theirs.
void wait_in_vain(ProcessGroup& group, int late) {
  constexpr std::chrono::seconds kBusyMachine{5};  // until a rank that waits has the core again
  CallOptions how;
  how.timeout = kLimit;
  const auto began = Clock::now();
  const auto error =
      must_fail(ErrorCode::timed_out, "a rank that doesn't come", [&] { group.barrier(how); });
  const auto taken = Clock::now() - began;
  if (taken > kLimit + kBusyMachine)
    throw Failed{"a timeout of 300 ms came after " +
                 std::to_string(std::chrono::duration_cast<Millis>(taken).count()) + " ms"};
  if (error.ranks() != std::vector<int>{late})
    throw Failed{"the late rank " + std::to_string(late) +
                 " isn't named, or not alone: " + error.what()};
}

}  // namespace

std::string check_timeout(ProcessGroup& group) {
  if (group.size() == 1) return "one rank: nothing to wait for";
  const int late = group.size() - 1;
  auto throwaway = group.split(0, group.rank(), "late");
  std::string complaint;
  try {
    if (group.rank() != late) wait_in_vain(throwaway, late);
  } catch (const Failed& failed) {
    complaint = failed.what();
  }
  // The late one keeps its group until the others have given up, whatever they found.
  group.barrier();
  if (!complaint.empty()) throw Failed{complaint};
  return "rank " + std::to_string(late) + ", which did not arrive, is named by the others in time";
}

}  // namespace acc::selftest
