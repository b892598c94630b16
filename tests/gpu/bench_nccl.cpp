// acc-bench-nccl [--min BYTES] [--max BYTES] [--budget SECONDS] [--json FILE] [--goals off]: a
// bandwidth table of our NCCL backend, and beside it what the same calls of NCCL cost when they are
// made directly, in the same run and in turns. Started as the ranks of a job; rank 0 prints. Sizes
// as nccl-tests.

#include "runtime/nccl/device.hpp"
#include "runtime/nccl/library.hpp"
#include "runtime/nccl/nccl_calls.hpp"

#include <unistd.h>

#include <acc/cuda.hpp>
#include <acc/process_group.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using namespace acc::runtime;
using Clock = std::chrono::steady_clock;

namespace {

struct Options {
  std::size_t min = 8;
  std::size_t max = std::size_t{64} << 20;
  double budget = 60;
  std::string json;
  bool goals = true;
};

/// A communicator as one would make it without us.
class Direct {
 public:
  Direct(ProcessGroup& group, cuda::Stream stream) : api_{nccl::library()}, stream_{stream} {
    nccl::UniqueId id{};
    if (group.rank() == 0) check(api_.get_unique_id(&id), "ncclGetUniqueId");
    const auto told = group.broadcast_object({id.bytes, sizeof id.bytes}, 0);
    std::memcpy(id.bytes, told.data(), sizeof id.bytes);
    nccl::Config config;  // blocking, as by default
    config.blocking = 1;
    check(api_.comm_init_rank_config(&comm_, group.size(), id, group.rank(), &config),
          "ncclCommInitRankConfig");
    lane_.emplace(nccl::Lane{.nccl = api_,
                             .cuda = cuda::library(),
                             .comm = comm_,
                             .stream = stream_,
                             .rank = group.rank(),
                             .size = group.size(),
                             .token = nullptr});
  }
  ~Direct() {
    (void)api_.comm_finalize(comm_);
    (void)api_.comm_destroy(comm_);
  }
  Direct(const Direct&) = delete;
  Direct& operator=(const Direct&) = delete;

  void run(const Call& call) const { check(nccl::move(*lane_, call), "a call of NCCL"); }

 private:
  static void check(nccl::Status status, const char* what) {
    if (status == nccl::Status::success) return;
    throw Error{ErrorCode::nccl, nccl::explain(nccl::library(), what, status)};
  }
  const nccl::Api& api_;
  cuda::Stream stream_;
  nccl::Comm comm_ = nullptr;
  std::optional<nccl::Lane> lane_;
};

struct Kind {
  Operation operation;
  const char* name;
  bool shared;  ///< the size is of all ranks together
};
constexpr Kind kKinds[] = {
    {Operation::all_reduce, "all_reduce", false},
    {Operation::all_gather, "all_gather", true},
    {Operation::reduce_scatter, "reduce_scatter", true},
    {Operation::broadcast, "broadcast", false},
    {Operation::reduce, "reduce", false},
    {Operation::all_to_all, "all_to_all", true},
};

double busbw_factor(Operation operation, int size) {
  const double n = size;
  if (operation == Operation::all_reduce) return 2 * (n - 1) / n;
  return operation == Operation::broadcast || operation == Operation::reduce ? 1 : (n - 1) / n;
}

struct Cost {
  double total_us = 1e300;  ///< of a call, until the device is done
  double host_us = 1e300;   ///< of a call, until it returns
};

/// `calls` in a row, then the stream is waited for.
template <class Function>
Cost batch(ProcessGroup& group, cuda::Stream stream, int calls, Function&& run) {
  group.barrier();
  const auto began = Clock::now();
  for (int i = 0; i < calls; ++i) run();
  const auto returned = Clock::now();
  acc::cuda::synchronize(stream);
  const auto ended = Clock::now();
  const auto us = [&](auto from, auto to) {
    return std::chrono::duration<double, std::micro>(to - from).count() / calls;
  };
  double costs[] = {us(began, ended), us(began, returned)};
  group.all_reduce(std::span<double>{costs}, ReduceOp::max);
  return {costs[0], costs[1]};
}

Call call_of(const Kind& kind, std::size_t bytes, int size, void* send, void* recv) {
  Call call;
  call.what.operation = kind.operation;
  call.what.dtype = DType::f32;
  call.what.count =
      std::max<std::size_t>(1, bytes / 4 / (kind.shared ? static_cast<std::size_t>(size) : 1));
  if (kind.operation == Operation::broadcast || kind.operation == Operation::reduce) {
    call.what.root = 0;
  }
  call.send = send;
  call.recv = recv;
  return call;
}

void run_ours(ProcessGroup& group, const Call& call, void* stream) {
  CallOptions how;
  how.stream = stream;
  const auto& what = call.what;
  switch (what.operation) {
    case Operation::all_reduce:
      return group.all_reduce(call.send, call.recv, what.count, what.dtype, ReduceOp::sum, how);
    case Operation::all_gather:
      return group.all_gather(call.send, call.recv, what.count, what.dtype, how);
    case Operation::reduce_scatter:
      return group.reduce_scatter(call.send, call.recv, what.count, what.dtype, ReduceOp::sum, how);
    case Operation::broadcast:
      return group.broadcast(call.recv, what.count, what.dtype, 0, how);
    case Operation::reduce:
      return group.reduce(call.send, call.recv, what.count, what.dtype, ReduceOp::sum, 0, how);
    default:
      return group.all_to_all(call.send, call.recv, what.count, what.dtype, how);
  }
}

struct Row {
  const char* op;
  std::size_t bytes;
  Cost ours;
  Cost direct;
};

/// Both in turns, so that what disturbs the machine disturbs both; the least of each counts.
Row measure(ProcessGroup& group, const Direct& direct, cuda::Stream stream, const Kind& kind,
            std::size_t bytes, void* send, void* recv, double seconds) {
  auto call = call_of(kind, bytes, group.size(), send, recv);
  // A broadcast of ours is in place; so is the direct one.
  if (kind.operation == Operation::broadcast) call.send = recv;
  Row row{kind.name, bytes, {}, {}};
  const auto ours = [&] { run_ours(group, call, stream); };
  const auto theirs = [&] { direct.run(call); };
  const auto first = batch(group, stream, 1, ours);
  (void)batch(group, stream, 1, theirs);
  const int calls = std::clamp(static_cast<int>(20'000 / std::max(1.0, first.total_us)), 1, 100);
  // Each batch has a barrier before and a reduction of the times behind it.
  const double turn_us = 2 * (calls + 3) * first.total_us + 1000;
  const int turns = std::clamp(static_cast<int>(seconds * 1e6 / turn_us), 3, 40);
  for (int turn = 0; turn < turns; ++turn) {
    const auto least = [](Cost& kept, const Cost& now) {
      kept.total_us = std::min(kept.total_us, now.total_us);
      kept.host_us = std::min(kept.host_us, now.host_us);
    };
    least(row.ours, batch(group, stream, calls, ours));
    least(row.direct, batch(group, stream, calls, theirs));
  }
  return row;
}

void print(const Row& row, int size, Operation operation) {
  const double algbw = static_cast<double>(row.bytes) / row.ours.total_us / 1e3;
  std::printf("%-15s %12zu %6d %12.1f %12.1f %8.3f %10.2f %10.2f %10.2f %10.2f\n", row.op,
              row.bytes, size, row.ours.total_us, row.direct.total_us,
              row.ours.total_us / row.direct.total_us, row.ours.host_us, row.direct.host_us, algbw,
              algbw * busbw_factor(operation, size));
  std::fflush(stdout);
}

void write_json(const std::string& path, const std::vector<Row>& rows, int size) {
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) throw Error{ErrorCode::system, "can't write " + path};
  for (const auto& row : rows) {
    std::fprintf(file,
                 "{\"op\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"dtype\":\"float32\",\"us\":%.2f,"
                 "\"direct_us\":%.2f,\"host_us\":%.3f,\"direct_host_us\":%.3f}\n",
                 row.op, row.bytes, size, row.ours.total_us, row.direct.total_us, row.ours.host_us,
                 row.direct.host_us);
  }
  std::fclose(file);
}

/// The two goals: at most 2 % over NCCL's own time from 1 MiB on, at most 3 us of the host at 8 B.
int verdict(const std::vector<Row>& rows, int size) {
  double logarithms = 0;
  int large = 0;
  double worst_host = -1e9;
  for (const auto& row : rows) {
    if (row.bytes >= std::size_t{1} << 20) {
      logarithms += std::log(row.ours.total_us / row.direct.total_us);
      ++large;
    }
    if (row.bytes == 8) worst_host = std::max(worst_host, row.ours.host_us - row.direct.host_us);
  }
  int status = 0;
  const auto tell = [&](bool well, const char* what, double found, const char* unit, double goal) {
    std::printf("%s overhead on %d ranks: %s: %.3f%s (goal: %.3f)\n", well ? "ok" : "not ok", size,
                what, found, unit, goal);
    if (!well) status = 1;
  };
  if (large > 0) {
    const double ratio = std::exp(logarithms / large);
    tell(ratio <= 1.02, "ours / direct from 1 MiB, geometric mean", ratio, "", 1.02);
  }
  if (worst_host > -1e9) {
    tell(worst_host <= 3, "host cost beyond NCCL's at 8 B, worst", worst_host, " us", 3);
  }
  std::fflush(stdout);
  return status;
}

int run(const Options& options) {
  GroupOptions wanted;
  wanted.backend = BackendKind::nccl;
  wanted.init_timeout = Millis{60'000};
  wanted.timeout = Millis{60'000};
  auto group = ProcessGroup::from_environment(wanted);
  const cuda::OwnedStream stream{cuda::library()};
  const Direct direct{group, stream.get()};
  const acc::cuda::DeviceBuffer send{options.max};
  const acc::cuda::DeviceBuffer recv{options.max};
  std::vector<std::size_t> sizes;
  for (auto bytes = options.min; bytes <= options.max; bytes *= 8) sizes.push_back(bytes);
  const double each = options.budget / static_cast<double>(sizes.size() * std::size(kKinds));
  if (group.rank() == 0) {
    std::printf("%-15s %12s %6s %12s %12s %8s %10s %10s %10s %10s\n", "# op", "bytes", "ranks",
                "time us", "direct us", "ratio", "host us", "direct", "algbw GB/s", "busbw GB/s");
  }
  std::vector<Row> rows;
  for (const auto& kind : kKinds) {
    for (const auto bytes : sizes) {
      rows.push_back(
          measure(group, direct, stream.get(), kind, bytes, send.data(), recv.data(), each));
      if (group.rank() == 0) print(rows.back(), group.size(), kind.operation);
    }
  }
  group.barrier();
  if (group.rank() != 0) return 0;
  if (!options.json.empty()) write_json(options.json, rows, group.size());
  return options.goals ? verdict(rows, group.size()) : 0;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--min")
      options.min = std::strtoull(argv[i + 1], nullptr, 10);
    else if (name == "--max")
      options.max = std::strtoull(argv[i + 1], nullptr, 10);
    else if (name == "--budget")
      options.budget = std::strtod(argv[i + 1], nullptr);
    else if (name == "--json")
      options.json = argv[i + 1];
    else if (name == "--goals")
      options.goals = std::string{argv[i + 1]} != "off";
    else
      throw Error{ErrorCode::invalid_argument, "unknown option " + name};
  }
  if (options.min < 4 || options.max < options.min) {
    throw Error{ErrorCode::invalid_argument, "--min is at least 4, --max at least --min"};
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  if (const char* rank = std::getenv("RANK"); rank != nullptr && acc::cuda::device_count() == 1) {
    ::setenv("NCCL_HOSTID", rank, 1);  // several ranks on one device: several hosts to NCCL
  }
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::printf("not ok bench: %s\n", error.what());
    return 1;
  }
}
