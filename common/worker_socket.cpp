#include "common/worker_socket.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace acc::worker_socket {

namespace {

constexpr std::array<std::string_view, 14> kVerbs{
    "hello", "beat",    "checkpoint", "no_restart",  "set",   "get",  "add",
    "wait",  "barrier", "remove",     "compare_set", "table", "lost", "current"};
constexpr std::array<std::string_view, 11> kWords{
    "ok",      "number", "value",       "differs",     "missing", "timed_out",
    "too_big", "full",   "wrong_round", "bad_request", "error"};

Error misunderstood(std::string what) { return {Errc::bad_usage, std::move(what)}; }

template <std::size_t N>
std::optional<std::size_t> index_of(const std::array<std::string_view, N>& names,
                                    std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

/// The words of one line, taken one by one; the first thing wrong is remembered.
class Words {
 public:
  explicit Words(std::string_view line) : rest_{line} {}

  std::string_view next() {
    const auto space = rest_.find(' ');
    const auto word = rest_.substr(0, space);
    rest_ = space == std::string_view::npos ? std::string_view{} : rest_.substr(space + 1);
    return word;
  }
  [[nodiscard]] bool at_end() const { return rest_.empty(); }
  std::string_view rest() { return std::exchange(rest_, {}); }
  [[nodiscard]] const std::string& complaint() const { return complaint_; }
  void complain(std::string what) {
    if (complaint_.empty()) complaint_ = std::move(what);
  }

  template <class T>
  T number(std::string_view name, T least, T most) {
    const auto word = next();
    const auto value = parse_number<T>(word);
    if (value && *value >= least && *value <= most) return *value;
    complain(std::string{name} + " '" + printable(word, 40) + "' isn't a number from " +
             std::to_string(least) + " to " + std::to_string(most));
    return least;
  }
  template <class T>
  T number(std::string_view name) {
    return number<T>(name, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }
  std::string key() {
    const auto word = next();
    if (!is_key(word))
      complain("key '" + printable(word, 40) + "' isn't 1 to 256 printable bytes without a space");
    return std::string{word};
  }
  Millis timeout() {
    return Millis{number<std::int64_t>("timeout in milliseconds", 0, kLongestWait.count())};
  }
  std::size_t size() { return number<std::size_t>("size in bytes", 0, kMaxValue); }

 private:
  std::string_view rest_;
  std::string complaint_;
};

using Values = std::vector<std::pair<std::string Request::*, std::size_t>>;

void parse_key_value(Request& request, Words& words, Values& values) {
  request.key = words.key();
  switch (request.verb) {
    case Verb::set:
      values = {{&Request::value, words.size()}};
      break;
    case Verb::compare_set: {
      const auto expected = words.size();
      values = {{&Request::value, words.size()}, {&Request::expected, expected}};
      break;
    }
    case Verb::add:
      request.delta = words.number<std::int64_t>("number to add");
      break;
    case Verb::barrier:
      request.count = words.number<std::uint32_t>("count", 1, UINT32_MAX);
      request.timeout = words.timeout();
      break;
    case Verb::wait:
      request.timeout = words.timeout();
      break;
    case Verb::get:
      if (!words.at_end()) request.timeout = words.timeout();
      break;
    default:
      break;
  }
}

Result<Request> parse_request(std::string_view line, Values& values) {
  Words words{line};
  const auto name = words.next();
  const auto index = index_of(kVerbs, name);
  if (!index) {
    const auto near = nearest(name.substr(0, 40), kVerbs);
    return misunderstood("unknown word '" + printable(name, 40) + "'" +
                         (near.empty() ? "" : ", do you mean '" + std::string{near} + "'?"));
  }
  Request request;
  request.verb = static_cast<Verb>(*index);
  switch (request.verb) {
    case Verb::hello:
      request.rank = Rank{words.number<std::uint32_t>("rank")};
      if (!words.at_end()) request.round = Round{words.number<std::uint64_t>("round")};
      break;
    case Verb::beat:
    case Verb::checkpoint:
      request.step = words.number<std::uint64_t>("step");
      break;
    case Verb::no_restart:
      request.text = words.rest();
      break;
    case Verb::table:
      break;
    case Verb::lost:
      request.timeout = words.timeout();
      break;
    case Verb::current:
      request.round = Round{words.number<std::uint64_t>("round")};
      request.timeout = words.timeout();
      break;
    default:
      parse_key_value(request, words, values);
  }
  if (!words.at_end()) words.complain("'" + printable(words.rest(), 40) + "' is too much");
  if (!words.complaint().empty())
    return misunderstood(std::string{name} + ": " + words.complaint());
  return request;
}

void add_value(std::string& text, const std::string& value) { text.append(value).append(1, '\n'); }

// A text of people on one line: what could break it is a space.
std::string one_line(std::string_view text) {
  std::string line{text.substr(0, kMaxLine / 2)};
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return line;
}

std::string table_field(std::string_view text) {
  if (text.empty()) return "-";
  std::string field{text};
  for (char& c : field) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f) c = '_';
  }
  return field;
}

}  // namespace

bool is_key(std::string_view text) {
  return !text.empty() && text.size() <= kMaxKey &&
         std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7f; });
}

std::string_view to_string(Answer::Word word) { return kWords.at(static_cast<std::size_t>(word)); }

// ---- writing ----

std::string to_text(const Request& request) {
  std::string text{kVerbs.at(static_cast<std::size_t>(request.verb))};
  const auto word = [&](const auto& one) {
    text += ' ';
    if constexpr (std::is_integral_v<std::decay_t<decltype(one)>>) {
      text += std::to_string(one);
    } else {
      text += one;
    }
  };
  switch (request.verb) {
    case Verb::hello:
      word(request.rank.value());
      if (request.round) word(request.round->value());
      break;
    case Verb::beat:
    case Verb::checkpoint:
      word(request.step);
      break;
    case Verb::no_restart:
      word(one_line(request.text));
      break;
    case Verb::table:
    case Verb::lost:
      break;
    case Verb::current:
      word(request.round.value_or(Round{0}).value());
      break;
    default:
      word(request.key);
  }
  if (request.verb == Verb::add) word(request.delta);
  if (request.verb == Verb::barrier) word(request.count);
  if (request.verb == Verb::get || request.verb == Verb::wait || request.verb == Verb::barrier ||
      request.verb == Verb::lost || request.verb == Verb::current)
    word(request.timeout.count());
  if (request.verb == Verb::compare_set) word(request.expected.size());
  const bool has_value = request.verb == Verb::set || request.verb == Verb::compare_set;
  if (has_value) word(request.value.size());
  text += '\n';
  if (request.verb == Verb::compare_set) add_value(text, request.expected);
  if (has_value) add_value(text, request.value);
  return text;
}

std::string to_text(const Answer& answer) {
  using Word = Answer::Word;
  std::string text{to_string(answer.word)};
  const bool has_value = answer.word == Word::value || answer.word == Word::differs;
  if (answer.word == Word::number || answer.word == Word::timed_out)
    text += ' ' + std::to_string(answer.number);
  if (has_value) text += ' ' + std::to_string(answer.value.size());
  if (answer.word == Word::error) text += ' ' + one_line(answer.value);
  text += '\n';
  if (has_value) add_value(text, answer.value);
  return text;
}

std::string to_text(const std::vector<TableRow>& table) {
  std::string text;
  for (const auto& row : table) {
    text += std::to_string(row.first_rank.value()) + ' ' + std::to_string(row.slots);
    for (const auto& field : {row.node, row.host, row.address}) text += ' ' + table_field(field);
    text += '\n';
  }
  return text;
}

Result<std::vector<TableRow>> parse_table(std::string_view text) {
  std::vector<TableRow> table;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) return misunderstood("table: the last line has no end");
    Words words{text.substr(0, end)};
    text.remove_prefix(end + 1);
    TableRow row;
    row.first_rank = Rank{words.number<std::uint32_t>("rank")};
    row.slots = words.number<std::uint32_t>("slots");
    for (auto* field : {&row.node, &row.host, &row.address}) {
      *field = words.next();
      if (field->empty()) words.complain("a name is missing");
      if (*field == "-") field->clear();
    }
    if (!words.at_end()) words.complain("a line has too many words");
    if (!words.complaint().empty()) return misunderstood("table: " + words.complaint());
    table.push_back(std::move(row));
  }
  return table;
}

std::string to_text(const std::vector<LostRank>& lost) {
  std::string text;
  for (const auto& one : lost) {
    text += std::to_string(one.rank.value()) + ' ' + std::to_string(one.pid) + ' ' +
            one_line(one.how) + '\n';
  }
  return text;
}

Result<std::vector<LostRank>> parse_lost(std::string_view text) {
  std::vector<LostRank> lost;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) return misunderstood("lost: the last line has no end");
    Words words{text.substr(0, end)};
    text.remove_prefix(end + 1);
    LostRank one;
    one.rank = Rank{words.number<std::uint32_t>("rank")};
    one.pid = words.number<std::int64_t>("pid");
    one.how = words.rest();
    if (!words.complaint().empty()) return misunderstood("lost: " + words.complaint());
    lost.push_back(std::move(one));
  }
  return lost;
}

// ---- reading ----

void ByteQueue::feed(std::string_view bytes) {
  if (used_ > bytes_.size() / 2) {
    bytes_.erase(0, used_);
    used_ = 0;
  }
  bytes_ += bytes;
}

Result<std::optional<std::string>> ByteQueue::line() {
  const auto ahead = std::string_view{bytes_}.substr(used_, kMaxLine);
  const auto end = ahead.find('\n');
  if (end == std::string_view::npos) {
    if (ahead.size() < kMaxLine) return std::optional<std::string>{};
    return misunderstood("a line is longer than " + std::to_string(kMaxLine) + " bytes");
  }
  used_ += end + 1;
  return std::optional{std::string{ahead.substr(0, end)}};
}

Result<std::optional<std::string>> ByteQueue::value(std::size_t wanted) {
  if (size() <= wanted) return std::optional<std::string>{};
  if (bytes_[used_ + wanted] != '\n')
    return misunderstood("after a value of " + std::to_string(wanted) +
                         " bytes there must be a newline");
  std::optional value{bytes_.substr(used_, wanted)};
  used_ += wanted + 1;
  return value;
}

Result<std::optional<Request>> RequestReader::next() {
  if (!begun_) {
    const auto line = queue_.line();
    if (!line) return line.error();
    if (!*line) return std::optional<Request>{};
    values_.clear();
    auto request = parse_request(**line, values_);
    if (!request) return request.error();
    begun_ = std::move(*request);
  }
  for (; !values_.empty(); values_.pop_back()) {
    auto value = queue_.value(values_.back().second);
    if (!value) return value.error();
    if (!*value) return std::optional<Request>{};
    (*begun_).*values_.back().first = std::move(**value);
  }
  return std::exchange(begun_, std::nullopt);
}

Result<std::optional<Answer>> AnswerReader::next() {
  using Word = Answer::Word;
  if (!begun_) {
    const auto line = queue_.line();
    if (!line) return line.error();
    if (!*line) return std::optional<Answer>{};
    Words words{**line};
    const auto index = index_of(kWords, words.next());
    if (!index)
      return misunderstood("the agent's answer '" + printable(**line, 40) + "' is unknown");
    Answer answer;
    answer.word = static_cast<Word>(*index);
    if (answer.word == Word::number || answer.word == Word::timed_out)
      answer.number = words.number<std::int64_t>("number");
    if (answer.word == Word::error) answer.value = words.rest();
    const bool has_value = answer.word == Word::value || answer.word == Word::differs;
    if (has_value) value_size_ = words.number<std::size_t>("size in bytes", 0, kMaxAnswer);
    if (!words.at_end()) words.complain("too many words");
    if (!words.complaint().empty())
      return misunderstood("the agent's answer: " + words.complaint());
    if (!has_value) return std::optional{std::move(answer)};
    begun_ = std::move(answer);
  }
  auto value = queue_.value(value_size_);
  if (!value) return value.error();
  if (!*value) return std::optional<Answer>{};
  begun_->value = std::move(**value);
  return std::exchange(begun_, std::nullopt);
}

}  // namespace acc::worker_socket
