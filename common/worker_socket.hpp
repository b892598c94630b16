#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/ids.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Protocol between a worker and its agent: lines of text, so that a shell or three lines of Python
/// can use it (docs/worker-socket.md). Both sides read it with the classes below, which are total:
/// any bytes give messages or an error.
namespace acc::worker_socket {

inline constexpr std::size_t kMaxLine = 1024;  ///< bytes, including the newline
inline constexpr std::size_t kMaxKey = 256;    ///< bytes; printable, no space
inline constexpr std::size_t kMaxValue = 256 * 1024;
inline constexpr std::size_t kMaxAnswer = 16 * 1024 * 1024;  ///< bytes of the value of an answer
inline constexpr Millis kLongestWait = std::chrono::hours{24 * 7};

/// Notifications (hello to section_end) have no answer, unless they are malformed; every request
/// has exactly one, in the order of the requests.
enum class Verb : std::uint8_t {
  hello,       ///< first message: the sender's identity
  beat,        ///< alive, at this step
  checkpoint,  ///< a checkpoint of this step is complete
  no_restart,  ///< a restart would not help
  section,     ///< begins a part of the program that may take longer than a step
  section_end,
  set,
  get,
  add,
  wait,
  barrier,
  remove,
  compare_set,
  table,    ///< the ranks of each node
  lost,     ///< the ranks that failed, or were lost with their node; waits for the first
  current,  ///< may this round still write? Answered by the job's coordinator
};

struct Request {
  Verb verb = Verb::table;
  Rank rank{0};                ///< hello
  std::optional<Round> round;  ///< hello: refused if another one runs; current: this one
  std::uint64_t step = 0;      ///< beat, checkpoint
  std::string text;            ///< no_restart: the reason; section: its name
  std::string key;             ///< or the name of a barrier
  std::string value;           ///< set; compare_set: the new one
  std::string expected;        ///< compare_set; empty: the key must not exist
  std::int64_t delta = 0;      ///< add
  std::uint32_t count = 0;     ///< barrier: number of participants
  Millis timeout{0};           ///< get, wait, barrier, lost, current; 0: answer immediately;
                               ///< section: its limit, 0: none
  friend bool operator==(const Request&, const Request&) = default;
};

struct Answer {
  enum class Word : std::uint8_t {
    ok,
    number,   ///< add: the sum; barrier: order of arrival from 0; current: it may, for that many ms
    value,    ///< get, table, lost
    differs,  ///< compare_set: with the current value
    missing,
    timed_out,  ///< with a number: barrier: the number that had arrived
    too_big,
    full,
    wrong_round,
    bad_request,  ///< from the store: not a number, another count
    error,        ///< malformed for the agent, which sends the reason and closes the connection
  };
  Word word = Word::ok;
  std::int64_t number = 0;
  std::string value;  ///< value, differs; error: the message
  friend bool operator==(const Answer&, const Answer&) = default;
};

/// One node of the table; a worker of rank R is on the last node with ranks.first <= R.
struct TableRow {
  RankRange ranks{Rank{0}, 0};
  std::string node;
  std::string host;
  std::string address;
  friend bool operator==(const TableRow&, const TableRow&) = default;
};

/// A worker of this round that failed, or whose node was lost.
struct LostRank {
  Rank rank{0};
  std::int64_t pid = 0;  ///< on its own node; 0: unknown
  std::string how;       ///< "killed by SIGKILL", "exit code 3", "its node b was lost"
  friend bool operator==(const LostRank&, const LostRank&) = default;
};

[[nodiscard]] std::string to_text(const Request& request);
[[nodiscard]] std::string to_text(const Answer& answer);
/// One row per line: "FIRST_RANK SLOTS NODE HOST ADDRESS". Bytes that could break a line become
/// '_'.
[[nodiscard]] std::string to_text(const std::vector<TableRow>& table);
[[nodiscard]] Result<std::vector<TableRow>> parse_table(std::string_view text);
/// One rank per line: "RANK PID HOW".
[[nodiscard]] std::string to_text(const std::vector<LostRank>& lost);
[[nodiscard]] Result<std::vector<LostRank>> parse_lost(std::string_view text);
[[nodiscard]] std::string_view to_string(Answer::Word word);
/// True if this may be the name of a key or barrier.
[[nodiscard]] bool is_key(std::string_view text);

/// Received bytes that are not consumed yet.
class ByteQueue {
 public:
  void feed(std::string_view bytes);
  /// The next line without its newline; nothing: incomplete; an error: too long.
  Result<std::optional<std::string>> line();
  /// `size` bytes and the newline after them; nothing: incomplete.
  Result<std::optional<std::string>> value(std::size_t size);
  [[nodiscard]] std::size_t size() const { return bytes_.size() - used_; }

 private:
  std::string bytes_;
  std::size_t used_ = 0;
};

/// Decodes a worker's messages. After an error the stream is unusable: close the connection.
class RequestReader {
 public:
  void feed(std::string_view bytes) { queue_.feed(bytes); }
  [[nodiscard]] Result<std::optional<Request>> next();
  /// Bytes held; at most one request plus the input of one feed.
  [[nodiscard]] std::size_t size() const { return queue_.size(); }

 private:
  ByteQueue queue_;
  std::optional<Request> begun_;  ///< its line was read, values follow
  std::vector<std::pair<std::string Request::*, std::size_t>>
      values_;  ///< to be read, last one first
};

/// Decodes the agent's answers.
class AnswerReader {
 public:
  void feed(std::string_view bytes) { queue_.feed(bytes); }
  [[nodiscard]] Result<std::optional<Answer>> next();

 private:
  ByteQueue queue_;
  std::optional<Answer> begun_;
  std::size_t value_size_ = 0;
};

}  // namespace acc::worker_socket
