// acc-bench-overlap [--ranks N] [--layers L] [--width D] [--bucket_mib B] [--rounds R] [--scatter]
// How much of the reduction of gradients is hidden under the backward pass? Backward waits on a
// timer, as a CPU waits for a GPU: the gradients of a transformer of L layers of width D become
// ready one after the other, after times in proportion to their size. In turn: the reduction alone
// is timed, and backward is made as long as that; all gradients are given to the
// reducer after backward, or each as it becomes ready. Exposed is the time from the last gradient
// to the end of finish(), on the rank that takes longest; the figure is the ratio of the medians.
// One JSON line; exit code 1 when the ratio is above the goal of 0.35.

#include "common/text.hpp"

#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <acc/training.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace acc::runtime;
using SteadyClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kGoal = 0.35;
constexpr int kWarmUp = 3;  ///< rounds that touch all memory and aren't counted

struct Settings {
  int ranks = 2;
  std::size_t layers = 12;
  std::size_t width = 512;
  std::size_t bucket_mib = 25;
  int rounds = 15;
  bool scatter = false;
};

[[noreturn]] void usage(const std::string& why) {
  std::fprintf(stderr,
               "acc-bench-overlap: %s\nusage: acc-bench-overlap [--ranks N] [--layers L] "
               "[--width D] [--bucket_mib B] [--rounds R] [--scatter]\n",
               why.c_str());
  std::exit(2);
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--scatter") {
      settings.scatter = true;
      continue;
    }
    const auto value = i + 1 < argc ? acc::parse_number<unsigned>(argv[++i]) : std::nullopt;
    if (!value || *value == 0) usage(flag + " wants a number above 0");
    if (flag == "--ranks") {
      settings.ranks = static_cast<int>(*value);
    } else if (flag == "--layers") {
      settings.layers = *value;
    } else if (flag == "--width") {
      settings.width = *value;
    } else if (flag == "--bucket_mib") {
      settings.bucket_mib = *value;
    } else if (flag == "--rounds") {
      settings.rounds = static_cast<int>(*value);
    } else {
      usage("unknown flag " + flag);
    }
  }
  return settings;
}

/// Elements of the parameters, in the order of the forward pass.
std::vector<std::size_t> transformer(std::size_t layers, std::size_t width) {
  std::vector<std::size_t> sizes;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (const std::size_t outputs : {3 * width, width}) {  // attention: in, out
      sizes.push_back(outputs * width);
      sizes.push_back(outputs);
    }
    sizes.push_back(2 * width);  // norms
    for (int half = 0; half < 2; ++half) {
      sizes.push_back(4 * width * width);
      sizes.push_back(half == 0 ? 4 * width : width);
    }
  }
  return sizes;
}

class Bench {
 public:
  Bench(ProcessGroup group, const Settings& settings)
      : sizes_{transformer(settings.layers, settings.width)}, group_{std::move(group)} {
    std::vector<Parameter> parameters;
    values_.reserve(sizes_.size());
    for (const std::size_t size : sizes_) {
      values_.emplace_back(size);
      parameters.push_back(
          {"p" + std::to_string(parameters.size()), std::span<float>{values_.back()}, {}});
      elements_ += size;
    }
    ReducerOptions options;
    options.bucket_bytes = settings.bucket_mib << 20;
    if (settings.scatter) options.mode = GradientMode::reduce_scatter;
    reducer_ = std::make_unique<GradientReducer>(group_, std::move(parameters), options);
  }

  void run(const Settings& settings) {
    check();
    for (int i = 0; i < kWarmUp; ++i) exposed(Seconds{0}, false);
    // What a backward of no time at all leaves exposed is the reduction itself. It is timed anew in
    // each round, as the machine's other work may come and go.
    std::vector<double> alone, after, overlapped;
    for (int i = 0; i < settings.rounds; ++i) {
      alone.push_back(exposed(Seconds{0}, false));
      const std::size_t recent = alone.size() - std::min<std::size_t>(alone.size(), 5);
      const Seconds backward{
          median({alone.begin() + static_cast<std::ptrdiff_t>(recent), alone.end()})};
      after.push_back(exposed(backward, false));
      overlapped.push_back(exposed(backward, true));
    }
    const Seconds backward{median(alone)};
    report(settings, backward, median(after), median(overlapped));
  }
  [[nodiscard]] bool good() const { return good_; }

 private:
  /// Whole numbers, so that the mean of all ranks is known exactly.
  void check() {
    const auto rank = static_cast<float>(group_.rank());
    for (std::size_t i = sizes_.size(); i-- > 0;) {
      const auto gradient = gradient_of(i);
      for (std::size_t e = 0; e < gradient.size(); ++e)
        gradient[e] = static_cast<float>((e + i) % 64) + 2 * rank;
      reducer_->ready(i);
    }
    reducer_->finish();
    for (const GradientRange& range : reducer_->ranges()) {
      const auto gradient = gradient_of(range.parameter);
      for (std::size_t e = range.offset; e < range.offset + range.count; ++e) {
        const float mean =
            static_cast<float>((e + range.parameter) % 64) + static_cast<float>(group_.size() - 1);
        if (gradient[e] != mean) throw Error{ErrorCode::system, "a mean is wrong"};
      }
    }
  }

  /// @return seconds from the last gradient to the end, of the slowest rank.
  double exposed(Seconds backward, bool overlap) {
    reducer_->zero_gradients();
    group_.barrier();
    const auto start = SteadyClock::now();
    std::size_t done = 0;
    for (std::size_t i = sizes_.size(); i-- > 0;) {
      done += sizes_[i];
      const Seconds until = backward * (static_cast<double>(done) / static_cast<double>(elements_));
      if (backward > Seconds{0})
        std::this_thread::sleep_until(start +
                                      std::chrono::duration_cast<SteadyClock::duration>(until));
      if (overlap && i > 0) reducer_->ready(i);
    }
    const auto last = SteadyClock::now();
    if (overlap) {
      reducer_->ready(0);
    } else {
      for (std::size_t i = sizes_.size(); i-- > 0;) reducer_->ready(i);
    }
    reducer_->finish();
    double seconds = Seconds{SteadyClock::now() - last}.count();
    group_.all_reduce(std::span<double>{&seconds, 1}, ReduceOp::max);
    return seconds;
  }

  void report(const Settings& settings, Seconds backward, double after, double overlapped) {
    const double ratio = overlapped / after;
    good_ = ratio <= kGoal;
    if (group_.rank() != 0) return;
    std::printf(R"({"bench":"overlap","ranks":%d,"mode":"%s","gradient_bytes":%zu,"buckets":%zu,)"
                R"("backward_ms":%.3f,"exposed_after_ms":%.3f,"exposed_overlapped_ms":%.3f,)"
                R"("ratio":%.3f,"goal":%.2f})"
                "\n",
                group_.size(), settings.scatter ? "reduce_scatter" : "all_reduce",
                elements_ * sizeof(float), reducer_->bucket_count(), 1e3 * backward.count(),
                1e3 * after, 1e3 * overlapped, ratio, kGoal);
    std::fflush(stdout);
  }

  static double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  }
  [[nodiscard]] std::span<float> gradient_of(std::size_t index) const {
    return {static_cast<float*>(reducer_->gradient(index).data), sizes_[index]};
  }

  std::vector<std::size_t> sizes_;
  std::size_t elements_ = 0;
  ProcessGroup group_;
  std::vector<std::vector<float>> values_;
  std::unique_ptr<GradientReducer> reducer_;
  bool good_ = false;
};

/// A port that was free a moment ago, for the ranks to meet at.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    usage("no free port on the loopback interface");
  ::close(fd);
  return ntohs(address.sin_port);
}

int rank_main(int rank, const Settings& settings, int port) {
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // the default of 50 µs is a lot for a small layer
  for (const char* name : {"RANK", "LOCAL_RANK"}) ::setenv(name, std::to_string(rank).c_str(), 1);
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"})
    ::setenv(name, std::to_string(settings.ranks).c_str(), 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  try {
    GroupOptions options;
    options.init_timeout = options.timeout = std::chrono::seconds{60};
    Bench bench{ProcessGroup::from_environment(options), settings};
    bench.run(settings);
    return bench.good() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 3;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  ::unsetenv("ACC_AGENT_SOCKET");  // its ranks are this program's own
  const int port = free_port();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid < 0) usage("fork failed");
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::_Exit(rank_main(rank, settings, port));
    }
    ranks.push_back(pid);
  }
  int worst = 0;
  for (const pid_t pid : ranks) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return worst;
}
