#pragma once

#include "common/kept_fd.hpp"
#include "common/worker_socket.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace acc {

/// A worker's connection to its agent: blocking, for one thread, every call with a deadline. After
/// a call that failed with timed_out or system the connection is closed, and each further call
/// reports that. A heartbeat thread needs its own connection, as a request blocks.
class AgentClient {
 public:
  /// Time limit for an answer, in addition to the timeout that a request allows.
  static constexpr Millis kPatience{10'000};

  /// @param address  the value of ACC_AGENT_SOCKET.
  static Result<AgentClient> connect(const std::string& address, Rank rank,
                                     std::optional<Round> round, Millis patience = kPatience);
  /// From ACC_AGENT_SOCKET, RANK (none: 0) and ACC_ROUND; not_found: this process was not started
  /// by an agent.
  static Result<AgentClient> from_environment(Millis patience = kPatience);

  // Notifications return immediately. A heartbeat that finds the send buffer full is dropped: the
  // next one carries the same information.
  Result<void> beat(std::uint64_t step);
  Result<void> checkpoint(std::uint64_t step);
  Result<void> no_restart(const std::string& why);
  /// @param limit  0: none
  Result<void> section(const std::string& name, Millis limit);
  Result<void> section_end();

  Result<void> set(const std::string& key, std::string value);
  /// not_found: the key doesn't exist (no timeout given); timed_out: it was not set in time.
  Result<std::string> get(const std::string& key, Millis timeout = Millis{0});
  Result<std::int64_t> add(const std::string& key, std::int64_t delta);
  Result<void> wait(const std::string& key, Millis timeout);
  /// @return the order of arrival, from 0; timed_out names the number that arrived.
  Result<std::uint32_t> barrier(const std::string& name, std::uint32_t count, Millis timeout);
  /// @return whether it existed
  Result<bool> remove(const std::string& key);
  /// Sets `key` to `value` if it holds `expected` (empty: if it doesn't exist). @return whether it
  /// was set
  Result<bool> compare_set(const std::string& key, std::string expected, std::string value);
  Result<std::vector<worker_socket::TableRow>> table();
  /// Waits until a worker of this round has failed, or a node was lost: at least one rank;
  /// timed_out: none. The agent answers before it stops the other workers, so a dedicated thread
  /// learns here why a peer is silent.
  Result<std::vector<worker_socket::LostRank>> lost(Millis timeout);
  /// Whether processes of this round may still make something valid for the job. The answer comes
  /// from the job's coordinator, with a proof that it is still the coordinator.
  /// @return a duration: no later round begins for that long from the request; nothing: another
  /// round has begun, or may begin at any moment; timed_out: no coordinator could prove anything in
  /// time.
  Result<std::optional<Millis>> current(Round round, Millis timeout);

 private:
  AgentClient(KeptFd fd, Millis patience) : fd_{std::move(fd)}, patience_{patience} {}

  enum class WhenFull : std::uint8_t { wait, leave_out };
  Result<void> say(const worker_socket::Request& request, WhenFull when_full = WhenFull::wait);
  Result<worker_socket::Answer> ask(const worker_socket::Request& request);
  Result<worker_socket::Answer> read_answer(Instant deadline);
  /// unavailable: the program has closed the descriptor, whose number may be another file's.
  Result<void> check_owner();
  Result<void> await(short events, Instant deadline);
  Error hang_up(Error error);

  KeptFd fd_;
  Millis patience_;
  worker_socket::AnswerReader reader_;
};

}  // namespace acc
