// acc-bench-collectives --ranks N [--budget-ms B] [--points op[:bytes],…] [--registered] [--peer
// NAME] [--board FILE]
//
// --board: be one rank of a job that a launcher started; FILE, which all ranks can map, takes their
// times. So the ranks may sit in several network namespaces of one machine (hosts_bench.py).
//
// The program behind ACC_BENCH of the collectives yardstick: starts N ranks as processes, verifies
// and then times each point, and prints a JSON line for each; bytes and latencies as nccl-tests
// counts them. What is timed is the public ProcessGroup with all its checks on.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <acc/process_group.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using acc::runtime::DType;
using acc::runtime::ProcessGroup;
using acc::runtime::ReduceOp;
using acc::runtime::SharedBuffer;

constexpr int kMostRanks = 256;
constexpr int kMostBatches = 200;
constexpr std::size_t kLarge = 1 << 20;  ///< bytes from which a batch is one call

struct Point {
  std::string op;
  std::size_t bytes = 0;
};

struct Options {
  int ranks = 2;
  double budget_ms = 60;
  bool registered = false;
  std::string peer = "ours";
  std::string board;
  std::vector<Point> points;
};

/// What the ranks tell each other outside of what is measured.
struct Board {
  struct PerRank {
    std::uint64_t start[kMostBatches];  ///< ns, CLOCK_MONOTONIC
    std::uint64_t end[kMostBatches];
    std::uint64_t wrong;
    long grown_kb;  ///< of VmHWM since the buffers were touched
  };
  PerRank of[kMostRanks];
};

std::uint64_t now_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

long peak_kb() {
  std::ifstream status{"/proc/self/status"};
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::strtol(line.c_str() + 6, nullptr, 10);
  return 0;
}

double bus_factor(const std::string& op, int ranks) {
  const double n = ranks;
  if (op == "allreduce") return 2 * (n - 1) / n;
  return op == "allgather" || op == "gather" ? (n - 1) / n : 1;
}

/// Small whole numbers: their sum is exact in any order; another for each rank, index and round.
float value(std::size_t index, int rank, std::size_t round) {
  return static_cast<float>((index * 7 + static_cast<std::size_t>(rank) * 13 + round * 5) % 31);
}

class Bench {
 public:
  Bench(ProcessGroup group, Board& board, const Options& options)
      : group_{std::move(group)},
        rank_{group_.rank()},
        size_{group_.size()},
        board_{board},
        mine_{board.of[rank_]},
        options_{options} {
    std::size_t most = 4096;
    for (const auto& point : options.points) most = std::max(most, point.bytes);
    if (options.registered) shared_ = group_.allocate_shared(most);
    x_ = options.registered ? shared_.as<float>().data() : private_memory(most);
    y_ = private_memory(most);
    std::memset(x_, 0, most);
    std::memset(y_, 0, most);
    peak_before_kb_ = peak_kb();
  }

  void run() {
    std::size_t round = 0;
    for (const auto& point : options_.points) {
      verify(point, ++round);
      time(point);
    }
    mine_.grown_kb = peak_kb() - peak_before_kb_;
    group_.barrier();
    if (rank_ == 0) print_memory();
  }

 private:
  static float* private_memory(std::size_t bytes) {
    void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (memory == nullptr) throw std::bad_alloc{};
    return static_cast<float*>(memory);
  }

  void call(const Point& point) {
    const auto count = point.bytes / sizeof(float);
    const auto share = count / static_cast<std::size_t>(size_);
    if (point.op == "allreduce") return group_.all_reduce(x_, x_, count, DType::f32);
    if (point.op == "broadcast") return group_.broadcast(x_, count, DType::f32, 0);
    if (point.op == "allgather") return group_.all_gather(x_, y_, share, DType::f32);
    if (point.op == "gather")
      return group_.gather(x_, rank_ == 0 ? y_ : nullptr, share, DType::f32, 0);
    group_.barrier();
  }

  void verify(const Point& point, std::size_t round) {
    const auto count = point.bytes / sizeof(float);
    const auto share = count / static_cast<std::size_t>(size_);
    for (std::size_t i = 0; i < count; ++i) {
      x_[i] = value(i, rank_, round);
      y_[i] = -1;
    }
    call(point);
    std::uint64_t wrong = 0;
    const auto expect = [&](float got, float wanted) { wrong += got != wanted ? 1 : 0; };
    if (point.op == "allreduce") {
      for (std::size_t i = 0; i < count; ++i) {
        float sum = 0;
        for (int r = 0; r < size_; ++r) sum += value(i, r, round);
        expect(x_[i], sum);
      }
    } else if (point.op == "broadcast") {
      for (std::size_t i = 0; i < count; ++i) expect(x_[i], value(i, 0, round));
    } else if (point.op == "allgather" || (point.op == "gather" && rank_ == 0)) {
      for (std::size_t i = 0; i < share * static_cast<std::size_t>(size_); ++i)
        expect(y_[i], value(i % share, static_cast<int>(i / share), round));
    }
    mine_.wrong = wrong;
    std::memset(x_, 0, point.bytes);
  }

  void batch(int number, int calls, const Point& point) {
    group_.barrier();
    mine_.start[number] = now_ns();
    for (int i = 0; i < calls; ++i) call(point);
    mine_.end[number] = now_ns();
  }
  /// µs of one call: from the first rank's start to the last one's end.
  [[nodiscard]] double latency(int number, int calls) const {
    auto start = board_.of[0].start[number];
    auto end = board_.of[0].end[number];
    for (int r = 1; r < size_; ++r) {
      start = std::min(start, board_.of[r].start[number]);
      end = std::max(end, board_.of[r].end[number]);
    }
    return static_cast<double>(end - start) / calls / 1000;
  }

  void time(const Point& point) {
    const bool large = point.bytes >= kLarge;
    const int trial = large ? 1 : 5;
    batch(0, 1, point);
    batch(1, trial, point);
    group_.barrier();
    const double estimate = std::max(0.2, latency(1, trial));
    group_.barrier();  // no rank overwrites what others still read
    const int calls = large ? 1 : static_cast<int>(std::clamp(4000 / estimate, 1.0, 2000.0));
    const int batches = static_cast<int>(
        std::clamp(options_.budget_ms * 1000 / (estimate * calls), 3.0, double{kMostBatches}));
    for (int i = 0; i < batches; ++i) batch(i, calls, point);
    group_.barrier();
    if (rank_ == 0) print(point, calls, batches);
    group_.barrier();
  }

  void print(const Point& point, int calls, int batches) {
    std::vector<double> all;
    for (int i = 0; i < batches; ++i) all.push_back(latency(i, calls));
    std::sort(all.begin(), all.end());
    const double median = all[all.size() / 2];
    const double algbw = static_cast<double>(point.bytes) / median / 1000;
    std::uint64_t wrong = 0;
    for (int r = 0; r < size_; ++r) wrong += board_.of[r].wrong;
    std::printf(
        "{\"peer\":\"%s\",\"op\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"dtype\":\"float32\","
        "\"lat_us_median\":%.3f,\"lat_us_min\":%.3f,\"algbw_GBps\":%.4f,\"busbw_GBps\":%.4f,"
        "\"batches\":%d,\"per_batch\":%d,\"wrong\":%llu}\n",
        options_.peer.c_str(), point.op.c_str(), point.bytes, size_, median, all.front(), algbw,
        algbw * bus_factor(point.op, size_), batches, calls,
        static_cast<unsigned long long>(wrong));
    std::fflush(stdout);
  }

  void print_memory() const {
    long most = 0;
    for (int r = 0; r < size_; ++r) most = std::max(most, board_.of[r].grown_kb);
    std::printf(
        "{\"peer\":\"%s\",\"op\":\"rss\",\"bytes\":0,\"ranks\":%d,\"rss_over_buffers_kb_max\":%ld}"
        "\n",
        options_.peer.c_str(), size_, most);
    std::fflush(stdout);
  }

  ProcessGroup group_;
  int rank_;
  int size_;
  Board& board_;
  Board::PerRank& mine_;
  const Options& options_;
  SharedBuffer shared_;
  float* x_;
  float* y_;
  long peak_before_kb_;
};

template <class T>
std::optional<T> number(std::string_view text) {
  T found{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return found;
}

std::optional<std::vector<Point>> points(std::string_view text) {
  std::vector<Point> all;
  while (!text.empty()) {
    const auto one = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    const auto colon = one.find(':');
    Point point{std::string{one.substr(0, colon)}, 0};
    constexpr std::string_view kOps[] = {"barrier", "allreduce", "broadcast", "allgather",
                                         "gather"};
    if (std::find(std::begin(kOps), std::end(kOps), point.op) == std::end(kOps)) return {};
    if (colon != std::string_view::npos) {
      const auto bytes = number<std::size_t>(one.substr(colon + 1));
      if (!bytes) return {};
      point.bytes = *bytes;
    }
    all.push_back(std::move(point));
  }
  return all;
}

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view key = argv[i];
    if (key == "--registered") {
      options.registered = true;
      continue;
    }
    if (++i == argc) return std::nullopt;
    const std::string_view text = argv[i];
    if (key == "--ranks") {
      const auto ranks = number<int>(text);
      if (!ranks || *ranks < 1 || *ranks > kMostRanks) return std::nullopt;
      options.ranks = *ranks;
    } else if (key == "--budget-ms") {
      const auto budget = number<double>(text);
      if (!budget) return std::nullopt;
      options.budget_ms = *budget;
    } else if (key == "--peer") {
      options.peer = text;
    } else if (key == "--board") {
      options.board = text;
    } else if (key == "--points") {
      auto all = points(text);
      if (!all) return std::nullopt;
      options.points = std::move(*all);
    } else if (key != "--side") {  // a file for peers that need one
      return std::nullopt;
    }
  }
  return options;
}

/// One that is not in use.
std::uint16_t free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const bool bound = ::bind(listener, any, size) == 0 && ::getsockname(listener, any, &size) == 0;
  ::close(listener);
  return bound ? ntohs(address.sin_port) : std::uint16_t{29500};
}

/// By the worker contract, as any launcher would set it.
void set_contract(int rank, const Options& options, std::uint16_t port) {
  const auto set = [](const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);
  };
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(options.ranks));
  set("LOCAL_WORLD_SIZE", std::to_string(options.ranks));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(port));
  ::unsetenv("ACC_AGENT_SOCKET");  // should a job of ours run the benchmark
}

int run_rank(Board& board, const Options& options) {
  try {
    ProcessGroup::Options limits;
    limits.timeout = std::chrono::seconds{30};
    Bench{ProcessGroup::from_environment(limits), board, options}.run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "acc-bench-collectives: %s\n", error.what());
    return 1;
  }
}

/// Its zeroes are the objects; nullptr: errno says why not.
Board* map_board(const std::string& file) {
  const int flags = file.empty() ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  int fd = -1;
  if (!file.empty()) {
    fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ::ftruncate(fd, sizeof(Board)) != 0) return nullptr;
  }
  void* const memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (fd >= 0) ::close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<Board*>(memory);
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = parse(argc, argv);
  if (!options) {
    std::fprintf(
        stderr,
        "usage: acc-bench-collectives [--ranks N] [--budget-ms B] [--registered] "
        "[--peer NAME] [--board FILE] --points op[:bytes],…\n(op: barrier allreduce "
        "broadcast allgather gather; --board: one rank of a job, RANK and so on are set)\n");
    return 2;
  }
  Board* const board = map_board(options->board);
  if (board == nullptr) {
    std::perror("acc-bench-collectives: memory for the ranks' times");
    return 1;
  }
  if (!options->board.empty()) return run_rank(*board, *options);
  const auto port = free_port();
  for (int rank = 0; rank < options->ranks; ++rank) {
    if (::fork() != 0) continue;
    set_contract(rank, *options, port);
    ::_exit(run_rank(*board, *options));
  }
  int failed = 0;
  for (int status = 0; ::wait(&status) > 0;) failed |= status;
  return failed == 0 ? 0 : 1;
}
