#pragma once

#include "agent/output/output_hub.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace acc::agent::testing {

namespace fs = std::filesystem;
inline constexpr std::chrono::seconds kPatience{20};

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "acc-output-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

inline std::string content(const fs::path& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

inline void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// The reading end of a console: collects what arrives on a thread of its own.
class Console {
 public:
  Console() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    in_.reset(ends[0]);
    out_.reset(ends[1]);
    reader_ = std::thread{[this] { collect(); }};
  }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console() {
    is_stopping_ = true;  // no end of file: a sink may have opened the pipe anew
    reader_.join();
  }
  [[nodiscard]] int fd() const { return out_.get(); }
  std::string text() {
    const std::lock_guard guard{mutex_};
    return text_;
  }

 private:
  void collect() {
    char buffer[65536];
    while (!is_stopping_) {
      pollfd ready{in_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 10) <= 0) continue;
      const ssize_t n = ::read(in_.get(), buffer, sizeof buffer);
      if (n <= 0) return;
      const std::lock_guard guard{mutex_};
      text_.append(buffer, static_cast<std::size_t>(n));
    }
  }

  UniqueFd in_;
  UniqueFd out_;
  std::atomic<bool> is_stopping_{false};
  std::mutex mutex_;
  std::string text_;
  std::thread reader_;
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// A loop, and a hub whose workers are descriptors that the test writes to.
struct Bench {
  Folder folder;
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  std::unique_ptr<OutputHub> hub;

  void start(const OutputPlan& plan, std::uint32_t workers, const ConsoleFacts& facts,
             OutputOptions options) {
    hub = std::make_unique<OutputHub>(io, plan, workers, facts, std::move(options));
    hub->set_job("job", "default");
    hub->begin_round(Round{0}, run_folder());
  }
  [[nodiscard]] std::string run_folder() const { return (folder.path / "run_1").string(); }

  struct Worker {
    UniqueFd out;
    UniqueFd err;
  };
  Worker open(std::uint32_t local, std::uint32_t rank) {
    const auto streams = hub->open(LocalRank{local}, Rank{rank});
    REQUIRE(streams.has_value());
    Worker worker;
    if (streams->out >= 0) worker.out.reset(::fcntl(streams->out, F_DUPFD_CLOEXEC, 3));
    if (streams->err >= 0) worker.err.reset(::fcntl(streams->err, F_DUPFD_CLOEXEC, 3));
    hub->close_child_ends(LocalRank{local});
    return worker;
  }
  Worker open(std::uint32_t local) { return open(local, local); }

  /// Runs the loop until the claim holds.
  bool run_until(const std::function<bool()>& claim) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!claim()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      io.run_one_for(Millis{5});
    }
    return true;
  }
};

}  // namespace acc::agent::testing
