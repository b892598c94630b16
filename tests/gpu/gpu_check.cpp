// acc-gpu-check probe | MODE…: what NCCL does with real devices, through the public interface; one
// line "ok MODE …" or "not ok MODE …" each, from rank 0 unless another one has the complaint.
// Started as the ranks of a job by tests/gpu/run.sh; `probe` alone, it ends with 77 without a GPU.
//   together: exact objects shared split streams handles counts training
//   alone, as they break the group: mismatch late abort kill

#include "runtime/group/group.hpp"
#include "runtime/nccl/nccl_backend.hpp"
#include "tests/gpu/device_checks.hpp"
#include "tests/support/exact_collectives.hpp"

#include <signal.h>
#include <unistd.h>

#include <acc/cuda.hpp>
#include <acc/process_group.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <thread>

using namespace acc::runtime;
using namespace acc::testing;
using namespace std::chrono_literals;

namespace {

constexpr auto kLate = Millis{3000};  ///< limit of a call that is to run into it

/// Whole lines, so that those of several ranks don't mix.
void say(const std::string& line) {
  const auto text = line + "\n";
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
}

int probe() {
  if (const auto why = why_no_nccl(); !why.empty()) {
    say(why);
    return 77;
  }
  for (const auto& device : acc::cuda::devices()) {
    say("device " + std::to_string(device.index) + ": " + device.name + ", " + device.pci_bus_id +
        ", compute capability " + std::to_string(device.major) + "." +
        std::to_string(device.minor) + ", " + std::to_string(device.total_bytes >> 20) + " MiB");
  }
  say("driver " + std::to_string(acc::cuda::driver_version()) + ", CUDA runtime " +
      std::to_string(acc::cuda::runtime_version()) + ", NCCL " +
      std::to_string(acc::cuda::nccl_version()) + " (" + acc::cuda::nccl_path() + ")");
  return 0;
}

/// All ranks' verdicts in one line of rank 0's.
bool report(ProcessGroup& group, const std::string& mode, const Verdicts& verdicts) {
  std::string mine;
  for (const auto& wrong : verdicts.wrong()) mine += wrong + "\n";
  const auto all = group.all_gather_object(mine);
  const auto wrong = std::accumulate(all.begin(), all.end(), std::string{});
  if (group.rank() == 0) {
    say(wrong.empty() ? "ok " + mode + " on " + std::to_string(group.size()) + " ranks (" +
                            std::to_string(verdicts.checks()) + " checks a rank)"
                      : "not ok " + mode + " on " + std::to_string(group.size()) +
                            " ranks: " + wrong.substr(0, 2000));
  }
  return wrong.empty() && verdicts.checks() > 0;
}

void exact(ProcessGroup& group, Verdicts& verdicts) {
  auto& impl = group.impl();
  const auto run = [&](const Call& call) { impl.run(call, {}); };
  const auto as_one = [&](const std::vector<Call>& calls) {
    (void)impl.backend().begin_as_one(calls);
  };
  ExactCollectives aligned{group.rank(), group.size(), run, as_one, verdicts};
  ExactCollectives shifted{group.rank(), group.size(), run, as_one, verdicts, 1};
  for (std::size_t type = 0; type < kDTypes; ++type) {
    aligned.all(static_cast<DType>(type), 1);
    shifted.all(static_cast<DType>(type), 1021);
  }
  aligned.all(DType::bf16, 0);
  aligned.all(DType::f32, 262'147);
  shifted.all(DType::f16, 100'003);
}

void objects(ProcessGroup& group, Verdicts& verdicts) {
  const auto name = [](int rank) { return std::string(static_cast<std::size_t>(rank) * 7, 'x'); };
  const auto all = group.all_gather_object(name(group.rank()));
  for (int rank = 0; rank < group.size(); ++rank) {
    verdicts.expect(all[static_cast<std::size_t>(rank)] == name(rank), "all_gather_object");
  }
  const int last = group.size() - 1;
  verdicts.expect(
      group.broadcast_object(group.rank() == last ? "the last" : "", last) == "the last",
      "broadcast_object");
}

void shared(ProcessGroup& group, Verdicts& verdicts) {
  for (const std::size_t bytes : {std::size_t{4}, std::size_t{1} << 20, std::size_t{16} << 20}) {
    const auto buffer = group.allocate_shared(bytes);
    const std::vector<float> own(bytes / 4, static_cast<float>(group.rank() + 1));
    acc::cuda::copy(buffer.data(), own.data(), bytes);
    group.all_reduce(buffer.as<float>());
    std::vector<float> read(own.size());
    acc::cuda::copy(read.data(), buffer.data(), bytes);
    const auto sum = static_cast<float>(group.size() * (group.size() + 1) / 2);
    verdicts.expect(read == std::vector<float>(own.size(), sum),
                    "the sum in a shared buffer of " + std::to_string(bytes));
  }
}

void split(ProcessGroup& group, Verdicts& verdicts) {
  auto half = group.split(group.rank() % 2, group.rank(), "half");
  double own = group.rank();
  half.all_reduce(std::span<double>{&own, 1});
  double expected = 0;
  for (int rank = group.rank() % 2; rank < group.size(); rank += 2) expected += rank;
  verdicts.expect(own == expected, "the sum over a half");
  half.barrier();
}

void streams(ProcessGroup& group, Verdicts& verdicts) {
  constexpr std::size_t kCount = 1 << 18;
  const acc::cuda::DeviceBuffer data{kCount * 4};
  acc::cuda::PinnedBuffer host{kCount * 4};
  for (int turn = 1; turn <= 20; ++turn) {
    // Nothing waits in between: each step has to be behind the one before by itself.
    acc::cuda::fill_async(data.data(), 0, data.bytes(), nullptr);
    std::vector<std::int32_t> own(kCount, turn + group.rank());
    acc::cuda::copy_async(data.data(), own.data(), data.bytes(), nullptr);
    group.all_reduce(data.data(), data.data(), kCount, DType::i32);
    group.all_reduce(data.data(), data.data(), kCount, DType::i32, ReduceOp::max);
    acc::cuda::copy_async(host.data(), data.data(), data.bytes(), nullptr);
    acc::cuda::synchronize(nullptr);
    const int n = group.size();
    const std::vector<std::int32_t> expected(kCount, n * turn + n * (n - 1) / 2);
    const auto read = host.as<std::int32_t>();
    verdicts.expect(std::equal(expected.begin(), expected.end(), read.begin()),
                    "turn " + std::to_string(turn));
  }
}

void handles(ProcessGroup& group, Verdicts& verdicts) {
  std::vector<acc::cuda::DeviceBuffer> buffers;
  std::vector<Work> works;
  for (int i = 0; i < 32; ++i) {
    buffers.emplace_back(4096);
    std::vector<std::int32_t> own(1024, i);
    acc::cuda::copy(buffers.back().data(), own.data(), 4096);
  }
  for (auto& buffer : buffers) {
    works.push_back(group.all_reduce_async(buffer.data(), buffer.data(), 1024, DType::i32));
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i].wait(Millis{30'000});
    verdicts.expect(works[i].done() && works[i].error() == nullptr, "a handle after its wait");
    std::vector<std::int32_t> read(1024);
    acc::cuda::copy(read.data(), buffers[i].data(), 4096);
    verdicts.expect(read.front() == static_cast<int>(i) * group.size(), "its result");
  }
}

// ---- what breaks the group: each rank looks for itself ----

/// The error of a body, and how long it took.
struct Failure {
  std::optional<Error> error;
  Millis took{0};
};
template <class Body>
Failure failure_of(Body&& body) {
  const auto began = Clock::now();
  Failure failure;
  try {
    body();
  } catch (const Error& error) {
    failure.error = error;
  }
  failure.took = std::chrono::duration_cast<Millis>(Clock::now() - began);
  return failure;
}

/// A reduction that is waited for.
void reduce(ProcessGroup& group, std::size_t count, Millis limit) {
  static acc::cuda::DeviceBuffer data{1 << 20};
  CallOptions how;
  how.timeout = limit;
  group.all_reduce_async(data.data(), data.data(), count, DType::f32, ReduceOp::sum, how).wait();
}

int judge(ProcessGroup& group, const std::string& mode, const Failure& failure,
          std::initializer_list<ErrorCode> codes, const std::vector<int>& ranks, Millis limit) {
  const auto who = "rank " + std::to_string(group.rank()) + ": ";
  if (!failure.error) {
    say("not ok " + mode + ", " + who + "nothing failed");
    return 1;
  }
  const auto& error = *failure.error;
  const bool code = std::find(codes.begin(), codes.end(), error.code()) != codes.end();
  const bool well = code && (ranks.empty() || error.ranks() == ranks) && failure.took < limit;
  if (!well || group.rank() == 0) {
    say((well ? "ok " : "not ok ") + mode + ", " + who + "after " +
        std::to_string(failure.took.count()) + " ms " + std::string{to_string(error.code())} +
        ": " + error.what());
  }
  return well ? 0 : 1;
}

int mismatch_mode(ProcessGroup& group) {
  const int odd = group.size() - 1;
  const auto failure =
      failure_of([&] { reduce(group, group.rank() == odd ? 900 : 1000, Millis{30'000}); });
  // Of two ranks neither is the odd one.
  return judge(group, "mismatch", failure, {ErrorCode::mismatch},
               group.size() > 2 ? std::vector<int>{odd} : std::vector<int>{}, 5000ms);
}

int late_mode(ProcessGroup& group) {
  const int late = group.size() - 1;
  reduce(group, 1000, Millis{30'000});
  if (group.rank() == late) {
    // It computes, and hears all the same that the others have given up.
    const auto deadline = Clock::now() + 20s;
    while (!group.broken() && Clock::now() < deadline) {
      try {
        std::this_thread::sleep_for(kLate + 2s);
        group.barrier();
      } catch (const Error&) {
        break;
      }
    }
    return 0;
  }
  const auto failure = failure_of([&] { reduce(group, 1000, kLate); });
  return judge(group, "late", failure, {ErrorCode::timed_out}, {late}, kLate + 1000ms);
}

int abort_mode(ProcessGroup& group) {
  const int last = group.size() - 1;
  reduce(group, 1000, Millis{30'000});
  if (group.rank() == last) {
    std::this_thread::sleep_for(500ms);
    group.abort("the test says so");
    return 0;
  }
  const auto failure = failure_of([&] { reduce(group, 1000, Millis{30'000}); });
  return judge(group, "abort", failure, {ErrorCode::aborted}, {}, 500ms + 1500ms);
}

int kill_mode(ProcessGroup& group) {
  ::signal(SIGTERM, SIG_IGN);  // the launcher ends the job; the survivors want to be heard first
  const int last = group.size() - 1;
  // Who is quick dies while others still wait for the end of a call that it has done.
  const auto failure = failure_of([&] {
    for (int i = 0; i < 10; ++i) reduce(group, 1000, kLate);
    if (group.rank() == last) ::kill(::getpid(), SIGKILL);
    reduce(group, 1000, kLate);
  });
  return judge(group, "kill", failure,
               {ErrorCode::peer_lost, ErrorCode::timed_out, ErrorCode::nccl}, {last},
               kLate + 1000ms);
}

int run(const std::vector<std::string>& modes) {
  const std::map<std::string, int (*)(ProcessGroup&)> breaking{
      {"mismatch", mismatch_mode}, {"late", late_mode}, {"abort", abort_mode}, {"kill", kill_mode}};
  const std::map<std::string, void (*)(ProcessGroup&, Verdicts&)> together{
      {"exact", exact},         {"objects", objects},        {"shared", shared},
      {"split", split},         {"streams", streams},        {"handles", handles},
      {"counts", check_counts}, {"training", check_training}};
  GroupOptions options;
  options.backend = BackendKind::nccl;
  options.init_timeout = Millis{60'000};
  options.timeout = Millis{60'000};
  options.check = modes.front() == "mismatch";
  auto group = ProcessGroup::from_environment(options);
  int status = 0;
  for (const auto& mode : modes) {
    if (const auto at = breaking.find(mode); at != breaking.end()) return at->second(group);
    Verdicts verdicts;
    together.at(mode)(group, verdicts);
    if (!report(group, mode, verdicts)) status = 1;
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> modes{argv + 1, argv + argc};
  if (modes.empty()) return 2;
  if (modes.front() == "probe") return probe();
  // Several ranks on one device are several hosts to NCCL, or it refuses them.
  if (const char* rank = std::getenv("RANK"); rank != nullptr && acc::cuda::device_count() == 1) {
    ::setenv("NCCL_HOSTID", rank, 1);
  }
  try {
    return run(modes);
  } catch (const std::exception& error) {
    say("not ok " + modes.front() + ": " + error.what());
    return 1;
  }
}
