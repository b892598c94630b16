#pragma once

#include "common/unique_fd.hpp"
#include "common/worker_socket.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace acc {

/// A worker's line to its agent: blocking, for one thread, every call with a deadline. After a call
/// that failed with timed_out or system the line is closed and each further call says so. A thread
/// of heartbeats takes a line of its own, as a question blocks.
class AgentClient {
 public:
  /// How long the agent may take for an answer, beyond the time that a question allows by itself.
  static constexpr Millis kPatience{10'000};

  /// @param address  the value of ACC_AGENT_SOCKET.
  static Result<AgentClient> connect(const std::string& address, Rank rank,
                                     std::optional<Round> round, Millis patience = kPatience);
  /// By ACC_AGENT_SOCKET, RANK (none: 0) and ACC_ROUND; not_found: no agent started this process.
  static Result<AgentClient> from_environment(Millis patience = kPatience);

  // Tellings return at once. A beat that finds the line full is left out: the next one says as
  // much.
  Result<void> beat(std::uint64_t step);
  Result<void> checkpoint(std::uint64_t step);
  Result<void> no_restart(const std::string& why);

  Result<void> set(const std::string& key, std::string value);
  /// not_found: it isn't there (no timeout given); timed_out: it didn't come in time.
  Result<std::string> get(const std::string& key, Millis timeout = Millis{0});
  Result<std::int64_t> add(const std::string& key, std::int64_t delta);
  Result<void> wait(const std::string& key, Millis timeout);
  /// @return the order of arrival, from 0; timed_out says how many came.
  Result<std::uint32_t> barrier(const std::string& name, std::uint32_t count, Millis timeout);
  /// @return was it there?
  Result<bool> remove(const std::string& key);
  /// Sets `key` to `value` if it holds `expected` (empty: if it isn't there). @return was it set?
  Result<bool> compare_set(const std::string& key, std::string expected, std::string value);
  Result<std::vector<worker_socket::TableRow>> table();
  /// Waits until a worker of this round failed, or a node was lost: at least one rank; timed_out:
  /// none was. The agent tells it before it asks the others to end, so for a thread of its own that
  /// is the word on why a peer is silent.
  Result<std::vector<worker_socket::LostRank>> lost(Millis timeout);
  /// May processes of this round still make something valid for the job? The answer comes from the
  /// job's coordinator, with a proof that it is still the coordinator.
  /// @return yes: so long from the asking no later round begins; nothing: another round has begun,
  /// or may begin at any moment; timed_out: no coordinator could prove anything in time.
  Result<std::optional<Millis>> current(Round round, Millis timeout);

 private:
  AgentClient(UniqueFd fd, Millis patience) : fd_{std::move(fd)}, patience_{patience} {}

  enum class WhenFull : std::uint8_t { wait, leave_out };
  Result<void> say(const worker_socket::Request& request, WhenFull when_full = WhenFull::wait);
  Result<worker_socket::Answer> ask(const worker_socket::Request& request);
  Result<worker_socket::Answer> read_answer(Instant deadline);
  Result<void> await(short events, Instant deadline);
  Error hang_up(Error error);

  UniqueFd fd_;
  Millis patience_;
  worker_socket::AnswerReader reader_;
};

}  // namespace acc
