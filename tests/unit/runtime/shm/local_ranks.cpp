#include "tests/unit/runtime/shm/local_ranks.hpp"

#include "tests/support/rank_threads.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <stdexcept>

namespace acc::runtime::testing {
namespace {

UniqueFd new_memory(std::size_t bytes) {
  UniqueFd memory{::memfd_create("acc-test", MFD_CLOEXEC)};
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0)
    throw std::runtime_error{"no memory for the test"};
  return memory;
}

UniqueFd duplicate(const UniqueFd& fd) { return UniqueFd{::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)}; }

/// Gives all threads of a round the same new memory.
class MemoryExchange {
 public:
  explicit MemoryExchange(int size) : rounds_(static_cast<std::size_t>(size)) {}
  UniqueFd next(int rank, std::size_t bytes) {
    const std::lock_guard lock{mutex_};
    const auto round = rounds_[static_cast<std::size_t>(rank)]++;
    if (round == memories_.size()) memories_.push_back(new_memory(bytes));
    return duplicate(memories_[round]);
  }

 private:
  std::mutex mutex_;
  std::vector<std::size_t> rounds_;
  std::vector<UniqueFd> memories_;
};

Outcome run_body(LocalRank& rank, const Body& body) {
  Outcome outcome;
  try {
    body(rank);
  } catch (const Error& error) {
    outcome.threw = true;
    outcome.code = error.code();
    outcome.what = error.what();
    outcome.ranks = error.ranks();
    outcome.operation = error.operation();
    outcome.sequence = error.sequence();
  } catch (const std::exception& error) {
    outcome.threw = true;
    outcome.code = ErrorCode::corrupt;  // not one of a backend: the test's own
    outcome.what = error.what();
  }
  outcome.ended = Clock::now();
  return outcome;
}

std::vector<RankFacts> facts_of(const std::vector<pid_t>& pids) {
  std::vector<RankFacts> all;
  for (std::size_t r = 0; r < pids.size(); ++r)
    all.push_back({static_cast<int>(r), "here", pids[r], static_cast<int>(r)});
  return all;
}

}  // namespace

void LocalRank::run(Operation operation, const void* send, void* recv, std::size_t count,
                    DType type, ReduceOp op, int root) {
  Call call;
  call.what = {++sequence_, count, 0, root, operation, type, op, {}};
  call.send = send;
  call.recv = recv;
  call.limit = limit;
  backend_->run(call);
}

void LocalRank::run_v(Operation operation, const void* send, void* recv,
                      const std::vector<std::size_t>& counts, DType type, int root) {
  Call call;
  call.what = {++sequence_, std::accumulate(counts.begin(), counts.end(), std::size_t{0}),
               0,           root,
               operation,   type,
               {},          {}};
  call.send = send;
  call.recv = recv;
  call.counts = counts;
  call.limit = limit;
  backend_->run(call);
}

void LocalRank::send(const void* data, std::size_t count, DType type, int to) {
  Call call;
  call.what = {++sent_[static_cast<std::size_t>(to)], count, 0, to, Operation::send, type, {}, {}};
  call.send = data;
  call.peer = to;
  call.limit = limit;
  backend_->run(call);
}

void LocalRank::recv(void* data, std::size_t count, DType type, int from) {
  Call call;
  const auto number = ++received_[static_cast<std::size_t>(from)];
  call.what = {number, count, 0, from, Operation::recv, type, {}, {}};
  call.recv = data;
  call.peer = from;
  call.limit = limit;
  backend_->run(call);
}

SharedBuffer LocalRank::allocate(std::size_t bytes) {
  Call call;
  call.what = {++sequence_, bytes, 0, -1, Operation::allocate, DType::u8, {}, {}};
  call.limit = limit;
  return backend_->allocate(bytes, call);
}

std::vector<Outcome> as_threads(int size, const Body& body, Settings settings) {
  const auto segment = new_memory(segment_bytes(size));
  const auto facts = facts_of(std::vector<pid_t>(static_cast<std::size_t>(size), ::getpid()));
  MemoryExchange exchange{size};
  std::vector<Outcome> outcomes(static_cast<std::size_t>(size));
  acc::testing::rethrow_first(acc::testing::on_rank_threads(outcomes.size(), [&](int r) {
    ShmOptions options{
        r, size, facts, "world", settings.check, [&, r](std::size_t bytes, Clock::time_point) {
          return exchange.next(r, bytes);
        }};
    LocalRank rank{r, size, make_shm_backend(duplicate(segment), std::move(options))};
    outcomes[static_cast<std::size_t>(r)] = run_body(rank, body);
  }));
  return outcomes;
}

void on_threads(int size, const Body& body, Settings settings) {
  const auto outcomes = as_threads(size, body, settings);
  for (std::size_t r = 0; r < outcomes.size(); ++r)
    if (outcomes[r].threw)
      throw std::runtime_error{"rank " + std::to_string(r) + ": " + outcomes[r].what};
}

// ---- processes ----

namespace {

struct Slot {  // an Outcome that can lie in shared memory
  std::atomic<int> done;
  bool threw;
  ErrorCode code;
  std::array<char, 4096> what;
  std::array<int, 16> ranks;
  std::size_t ranks_number;
  std::array<char, 32> operation;
  std::uint64_t sequence;
  Clock::time_point ended;
};

struct Board {
  std::atomic<int> joined;
  std::atomic<int> may_begin;
  std::atomic<int> memory_fd;  ///< of rank 0, for the round `memory_round`
  std::atomic<int> memory_round;
  std::atomic<int> memory_taken;
  std::array<pid_t, 64> pids;
  std::array<Slot, 64> slots;
};

template <std::size_t N>
void put(std::array<char, N>& to, const std::string& text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), N - 1));
}

void put(Slot& slot, const Outcome& outcome) {
  slot.threw = outcome.threw;
  slot.code = outcome.code;
  put(slot.what, outcome.what);
  slot.ranks_number = std::min(outcome.ranks.size(), slot.ranks.size());
  std::copy_n(outcome.ranks.begin(), slot.ranks_number, slot.ranks.begin());
  put(slot.operation, outcome.operation);
  slot.sequence = outcome.sequence;
  slot.ended = outcome.ended;
  slot.done = 1;
}

void await(const std::atomic<int>& value, int least) {
  while (value < least) ::sched_yield();
}

/// Rank 0 makes it; the others open it by its number in rank 0's process.
UniqueFd share(Board& board, int rank, int size, std::size_t bytes, int round) {
  if (rank == 0) {
    UniqueFd memory = new_memory(bytes);
    board.memory_fd = memory.get();
    board.memory_taken = 0;
    board.memory_round = round;
    await(board.memory_taken, size - 1);
    return memory;
  }
  await(board.memory_round, round);
  const auto path =
      "/proc/" + std::to_string(board.pids[0]) + "/fd/" + std::to_string(board.memory_fd.load());
  UniqueFd memory{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
  ++board.memory_taken;
  return memory;
}

}  // namespace

struct Processes::State {
  int size;
  Board* board;
  std::vector<pid_t> pids;
  std::vector<bool> reaped;
};

Processes::Processes(int size, const Body& body, Settings settings)
    : state_{std::make_unique<State>()} {
  state_->size = size;
  state_->reaped.resize(static_cast<std::size_t>(size));
  void* memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error{"no memory for the test"};
  state_->board = static_cast<Board*>(memory);
  Board& board = *state_->board;
  const auto segment = new_memory(segment_bytes(size));
  for (int r = 0; r < size; ++r) {
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error{"fork failed"};
    if (pid == 0) {
      ::alarm(settings.alarm_s);
      await(board.may_begin, 1);
      const std::vector<pid_t> pids(board.pids.begin(), board.pids.begin() + size);
      int round = 0;
      ShmOptions options{r,
                         size,
                         facts_of(pids),
                         "world",
                         settings.check,
                         [&](std::size_t bytes, Clock::time_point) {
                           return share(board, r, size, bytes, ++round);
                         }};
      {
        LocalRank rank{r, size, make_shm_backend(duplicate(segment), std::move(options))};
        ++board.joined;
        await(board.joined, size);
        put(board.slots[static_cast<std::size_t>(r)], run_body(rank, body));
      }
      ::_exit(0);
    }
    board.pids[static_cast<std::size_t>(r)] = pid;
    state_->pids.push_back(pid);
  }
  board.may_begin = 1;
}

Processes::~Processes() {
  for (std::size_t r = 0; r < state_->pids.size(); ++r) {
    if (state_->reaped[r]) continue;
    ::kill(state_->pids[r], SIGKILL);
    ::waitpid(state_->pids[r], nullptr, 0);
  }
  ::munmap(state_->board, sizeof(Board));
}

pid_t Processes::pid(int rank) const { return state_->pids[static_cast<std::size_t>(rank)]; }

std::optional<Outcome> Processes::wait(int rank) {
  const auto index = static_cast<std::size_t>(rank);
  ::waitpid(state_->pids[index], nullptr, 0);
  state_->reaped[index] = true;
  const Slot& slot = state_->board->slots[index];
  if (slot.done == 0) return std::nullopt;
  Outcome outcome;
  outcome.threw = slot.threw;
  outcome.code = slot.code;
  outcome.what = slot.what.data();
  outcome.ranks.assign(slot.ranks.begin(),
                       slot.ranks.begin() + static_cast<std::ptrdiff_t>(slot.ranks_number));
  outcome.operation = slot.operation.data();
  outcome.sequence = slot.sequence;
  outcome.ended = slot.ended;
  return outcome;
}

std::vector<Outcome> as_processes(int size, const Body& body, Settings settings) {
  Processes processes{size, body, settings};
  std::vector<Outcome> outcomes;
  for (int r = 0; r < size; ++r) {
    auto outcome = processes.wait(r);
    if (!outcome) {
      outcome.emplace();
      outcome->threw = true;
      outcome->what = "its process was killed";
    }
    outcomes.push_back(std::move(*outcome));
  }
  return outcomes;
}

}  // namespace acc::runtime::testing
