#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/ids.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The protocol between a worker and its agent: lines of text, so that a shell or three lines of
/// Python speak it (docs/worker-socket.md). Both sides read it with the classes below; they are
/// total: any bytes give messages or an error.
namespace acc::worker_socket {

inline constexpr std::size_t kMaxLine = 1024;  ///< bytes, newline included
inline constexpr std::size_t kMaxKey = 256;    ///< bytes; printable, no space
inline constexpr std::size_t kMaxValue = 256 * 1024;
inline constexpr std::size_t kMaxAnswer = 16 * 1024 * 1024;  ///< bytes of the value of an answer
inline constexpr Millis kLongestWait = std::chrono::hours{24 * 7};

/// Tellings (hello to no_restart) have no answer, unless they can't be understood; every question
/// has exactly one, in the order of asking.
enum class Verb : std::uint8_t {
  hello,       ///< first of all: who speaks
  beat,        ///< alive, at this step
  checkpoint,  ///< a checkpoint of this step is complete
  no_restart,  ///< starting again would not help
  set,
  get,
  add,
  wait,
  barrier,
  remove,
  compare_set,
  table,  ///< which ranks are on which node
  lost,   ///< which ranks failed, or were lost with their node; waits for the first
  current,  ///< may this round still write? Asked of the job's coordinator
};

struct Request {
  Verb verb = Verb::table;
  Rank rank{0};                ///< hello
  std::optional<Round> round;  ///< hello: refused if another one runs; current: which one
  std::uint64_t step = 0;      ///< beat, checkpoint
  std::string text;            ///< no_restart: why
  std::string key;             ///< or the name of a barrier
  std::string value;           ///< set; compare_set: the new one
  std::string expected;        ///< compare_set; empty: the key must not be there
  std::int64_t delta = 0;      ///< add
  std::uint32_t count = 0;     ///< barrier: so many come
  Millis timeout{0};           ///< get, wait, barrier, lost, current; 0: answer at once
  friend bool operator==(const Request&, const Request&) = default;
};

struct Answer {
  enum class Word : std::uint8_t {
    ok,
    number,   ///< add: the sum; barrier: order of arrival from 0; current: it may, for so many ms
    value,    ///< get, table, lost
    differs,  ///< compare_set: with the value that is there
    missing,
    timed_out,  ///< with a number: barrier: so many had come
    too_big,
    full,
    wrong_round,
    bad_request,  ///< of the store: not a number, another count
    error,        ///< the agent can't understand; it says why and hangs up
  };
  Word word = Word::ok;
  std::int64_t number = 0;
  std::string value;  ///< value, differs; error: the words
  friend bool operator==(const Answer&, const Answer&) = default;
};

/// One node of the table; a worker of rank R is on the last node with first_rank <= R.
struct TableRow {
  Rank first_rank{0};
  std::uint32_t slots = 0;
  std::string node;
  std::string host;
  std::string address;
  friend bool operator==(const TableRow&, const TableRow&) = default;
};

/// A worker of this round that failed, or whose node did.
struct LostRank {
  Rank rank{0};
  std::int64_t pid = 0;  ///< on its own node; 0: not known
  std::string how;       ///< "killed by SIGKILL", "exit code 3", "its node b was lost"
  friend bool operator==(const LostRank&, const LostRank&) = default;
};

[[nodiscard]] std::string to_text(const Request& request);
[[nodiscard]] std::string to_text(const Answer& answer);
/// One row a line: "FIRST_RANK SLOTS NODE HOST ADDRESS". What could break a line is written as '_'.
[[nodiscard]] std::string to_text(const std::vector<TableRow>& table);
[[nodiscard]] Result<std::vector<TableRow>> parse_table(std::string_view text);
/// One rank a line: "RANK PID HOW".
[[nodiscard]] std::string to_text(const std::vector<LostRank>& lost);
[[nodiscard]] Result<std::vector<LostRank>> parse_lost(std::string_view text);
[[nodiscard]] std::string_view to_string(Answer::Word word);
/// May this be the name of a key or barrier?
[[nodiscard]] bool is_key(std::string_view text);

/// Bytes that came and are not used up yet.
class ByteQueue {
 public:
  void feed(std::string_view bytes);
  /// The next line without its newline; nothing: not all there yet; an error: too long.
  Result<std::optional<std::string>> line();
  /// `size` bytes and the newline after them; nothing: not all there yet.
  Result<std::optional<std::string>> value(std::size_t size);
  [[nodiscard]] std::size_t size() const { return bytes_.size() - used_; }

 private:
  std::string bytes_;
  std::size_t used_ = 0;
};

/// Reads what a worker says. After an error the stream is lost: hang up.
class RequestReader {
 public:
  void feed(std::string_view bytes) { queue_.feed(bytes); }
  [[nodiscard]] Result<std::optional<Request>> next();
  /// Bytes held; at most one request and what one feed brought.
  [[nodiscard]] std::size_t size() const { return queue_.size(); }

 private:
  ByteQueue queue_;
  std::optional<Request> begun_;  ///< its line was read, values are to come
  std::vector<std::pair<std::string Request::*, std::size_t>> values_;  ///< to come, last one first
};

/// Reads what the agent answers.
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
