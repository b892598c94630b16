#include "common/worker_socket.hpp"

#include "common/enum_names.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace acc::worker_socket {

namespace {

/// What follows a verb on its line, and how it stands in a Request.
enum class Field : std::uint8_t {
  none,
  rank,
  round,
  round_if_given,
  step,
  text,  ///< the rest of the line
  key,
  delta,
  count,
  timeout,
  timeout_if_given,
  expected,  ///< its size; the bytes follow the line, those of `value` come last
  value,
};

/// The grammar of requests: each verb with the fields of its line.
struct Form {
  Verb verb;
  std::string_view name;
  std::array<Field, 3> fields{};
};
constexpr std::array kForms{
    Form{Verb::hello, "hello", {Field::rank, Field::round_if_given}},
    Form{Verb::beat, "beat", {Field::step}},
    Form{Verb::checkpoint, "checkpoint", {Field::step}},
    Form{Verb::no_restart, "no_restart", {Field::text}},
    Form{Verb::section, "section", {Field::timeout, Field::text}},
    Form{Verb::section_end, "section_end"},
    Form{Verb::set, "set", {Field::key, Field::value}},
    Form{Verb::get, "get", {Field::key, Field::timeout_if_given}},
    Form{Verb::add, "add", {Field::key, Field::delta}},
    Form{Verb::wait, "wait", {Field::key, Field::timeout}},
    Form{Verb::barrier, "barrier", {Field::key, Field::count, Field::timeout}},
    Form{Verb::remove, "remove", {Field::key}},
    Form{Verb::compare_set, "compare_set", {Field::key, Field::expected, Field::value}},
    Form{Verb::table, "table"},
    Form{Verb::lost, "lost", {Field::timeout}},
    Form{Verb::current, "current", {Field::round, Field::timeout}},
};
constexpr auto kVerbNames = [] {
  std::array<std::string_view, kForms.size()> names;
  std::ranges::transform(kForms, names.begin(), &Form::name);
  return names;
}();
constexpr const Form& form_of(Verb verb) { return kForms[static_cast<std::size_t>(verb)]; }
static_assert(std::ranges::all_of(kForms, [](const Form& form) {
  return &form_of(form.verb) == &form;  // in the order of their verbs
}));

constexpr EnumNames<Answer::Word, Answer::Word::error> kWords{
    {"ok", "number", "value", "differs", "missing", "timed_out", "too_big", "full", "wrong_round",
     "bad_request", "error"}};

Error misunderstood(std::string what) { return {Errc::bad_usage, std::move(what)}; }

/// The words of one line, consumed one by one; remembers the first error.
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

void parse_field(Field field, Request& request, Words& words, Values& values) {
  switch (field) {
    case Field::none:
      break;
    case Field::rank:
      request.rank = Rank{words.number<std::uint32_t>("rank")};
      break;
    case Field::round_if_given:
      if (words.at_end()) break;
      [[fallthrough]];
    case Field::round:
      request.round = Round{words.number<std::uint64_t>("round")};
      break;
    case Field::step:
      request.step = words.number<std::uint64_t>("step");
      break;
    case Field::text:
      request.text = words.rest();
      break;
    case Field::key:
      request.key = words.key();
      break;
    case Field::delta:
      request.delta = words.number<std::int64_t>("number to add");
      break;
    case Field::count:
      request.count = words.number<std::uint32_t>("count", 1, UINT32_MAX);
      break;
    case Field::timeout_if_given:
      if (words.at_end()) break;
      [[fallthrough]];
    case Field::timeout:
      request.timeout = words.timeout();
      break;
    case Field::expected:
      values.emplace_back(&Request::expected, words.size());
      break;
    case Field::value:
      values.emplace_back(&Request::value, words.size());
  }
}

Result<Request> parse_request(std::string_view line, Values& values) {
  Words words{line};
  const auto name = words.next();
  const auto* const form = std::ranges::find(kForms, name, &Form::name);
  if (form == kForms.end()) {
    const auto near = nearest(name.substr(0, 40), kVerbNames);
    return misunderstood("unknown word '" + printable(name, 40) + "'" +
                         (near.empty() ? "" : ", do you mean '" + std::string{near} + "'?"));
  }
  Request request;
  request.verb = form->verb;
  for (const Field field : form->fields) parse_field(field, request, words, values);
  std::ranges::reverse(values);  // the last one is read first
  if (!words.at_end()) words.complain("'" + printable(words.rest(), 40) + "' is too much");
  if (!words.complaint().empty())
    return misunderstood(std::string{name} + ": " + words.complaint());
  return request;
}

void add_value(std::string& text, const std::string& value) { text.append(value).append(1, '\n'); }

// Free text on one line: bytes that could break it become spaces.
std::string one_line(std::string_view text) {
  std::string line{text.substr(0, kMaxLine / 2)};
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return line;
}

void add_field(std::string& text, Field field, const Request& request) {
  const auto number = [&](auto value) { text.append(1, ' ').append(std::to_string(value)); };
  switch (field) {
    case Field::none:
      break;
    case Field::rank:
      number(request.rank.value());
      break;
    case Field::round_if_given:
      if (!request.round) break;
      [[fallthrough]];
    case Field::round:
      number(request.round.value_or(Round{0}).value());
      break;
    case Field::step:
      number(request.step);
      break;
    case Field::text:
      text.append(1, ' ').append(one_line(request.text));
      break;
    case Field::key:
      text.append(1, ' ').append(request.key);
      break;
    case Field::delta:
      number(request.delta);
      break;
    case Field::count:
      number(request.count);
      break;
    case Field::timeout:
    case Field::timeout_if_given:
      number(request.timeout.count());
      break;
    case Field::expected:
      number(request.expected.size());
      break;
    case Field::value:
      number(request.value.size());
  }
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

std::string_view to_string(Answer::Word word) { return kWords[word]; }

// ---- writing ----

std::string to_text(const Request& request) {
  const auto& form = form_of(request.verb);
  std::string text{form.name};
  for (const Field field : form.fields) add_field(text, field, request);
  text += '\n';
  for (const Field field : form.fields) {
    if (field == Field::expected) add_value(text, request.expected);
    if (field == Field::value) add_value(text, request.value);
  }
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
    text += std::to_string(row.ranks.first.value()) + ' ' + std::to_string(row.ranks.count);
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
    row.ranks.first = Rank{words.number<std::uint32_t>("rank")};
    row.ranks.count = words.number<std::uint32_t>("slots");
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
    const auto word = kWords.find(words.next());
    if (!word)
      return misunderstood("the agent's answer '" + printable(**line, 40) + "' is unknown");
    Answer answer;
    answer.word = *word;
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
