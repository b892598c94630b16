#pragma once

#include "runtime/shm/shm_backend.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Ranks of one node without a group around them: as threads of the test, and as processes.
namespace acc::runtime::testing {

/// What a rank does its calls with; counts them as a group would.
class LocalRank {
 public:
  LocalRank(int rank, int size, std::unique_ptr<Backend> backend)
      : rank_{rank}, size_{size}, backend_{std::move(backend)} {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] Backend& backend() const { return *backend_; }
  void leave() { backend_.reset(); }

  std::chrono::milliseconds limit{20'000};

  /// send and recv are what the operation takes and gives.
  void run(Operation operation, const void* send, void* recv, std::size_t count, DType type,
           ReduceOp op = ReduceOp::sum, int root = -1);
  void run_v(Operation operation, const void* send, void* recv,
             const std::vector<std::size_t>& counts, DType type, int root = -1);
  void barrier() { run(Operation::barrier, nullptr, nullptr, 0, DType::u8); }
  void all_reduce(void* data, std::size_t count, DType type, ReduceOp op = ReduceOp::sum) {
    run(Operation::all_reduce, data, data, count, type, op);
  }
  void send(const void* data, std::size_t count, DType type, int to);
  void recv(void* data, std::size_t count, DType type, int from);
  SharedBuffer allocate(std::size_t bytes);

 private:
  int rank_;
  int size_;
  std::uint64_t sequence_ = 0;
  std::vector<std::uint64_t> sent_ = std::vector<std::uint64_t>(1024);
  std::vector<std::uint64_t> received_ = std::vector<std::uint64_t>(1024);
  std::unique_ptr<Backend> backend_;
};

using Body = std::function<void(LocalRank&)>;

struct Outcome {
  bool threw = false;
  ErrorCode code{};
  std::string what;
  std::vector<int> ranks;
  std::string operation;
  std::uint64_t sequence = 0;
  Clock::time_point ended;  ///< the same clock in all processes
};

struct Settings {
  bool check = true;
  unsigned alarm_s = 60;  ///< processes end after it, if by nothing else
};

/// Runs `body` as `size` ranks, one thread each. What they threw, by rank.
std::vector<Outcome> as_threads(int size, const Body& body, Settings settings = {});
/// The same; throws what the first rank that failed threw.
void on_threads(int size, const Body& body, Settings settings = {});

/// `size` processes. They begin when all have joined.
class Processes {
 public:
  Processes(int size, const Body& body, Settings settings = {});
  ~Processes();
  [[nodiscard]] pid_t pid(int rank) const;
  /// Of a rank that ended by itself; nothing: it was killed.
  std::optional<Outcome> wait(int rank);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// As `as_threads`, in processes.
std::vector<Outcome> as_processes(int size, const Body& body, Settings settings = {});

}  // namespace acc::runtime::testing
