#include "agent/daemon/api_body.hpp"

#include "agent/daemon/api_json.hpp"
#include "agent/daemon/json_text.hpp"
#include "common/exit_status.hpp"
#include "common/json_bytes.hpp"
#include "common/passed_signals.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <map>
#include <span>
#include <utility>

namespace acc::agent::daemon {

namespace {

using nlohmann::json;
using Complaint = std::vector<std::string>;

constexpr int kDeepestBody = 8;
constexpr std::size_t kLongestName = 64;

constexpr std::array<std::string_view, 12> kSubmissionKeys{
    "name", "words", "working_directory", "env",  "umask",  "slots",
    "gpus", "wait",  "restart",           "user", "launch", "check"};
constexpr std::array<std::string_view, 3> kLaunchKeys{"id", "nodes", "node_rank"};
constexpr std::array<std::string_view, 2> kRestartKeys{"policy", "max"};
constexpr std::array<std::string_view, 1> kStopKeys{"grace_s"};
constexpr std::array<std::string_view, 1> kSignalKeys{"signal"};
constexpr std::array<std::string_view, 1> kDrainKeys{"reason"};
constexpr std::array<std::string_view, 3> kTokenKeys{"read_only", "expires_s", "browser"};

std::string_view kind_of(const json& value) {
  switch (value.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "a list";
    case json::value_t::string:
      return "text";
    case json::value_t::boolean:
      return "true or false";
    default:
      return "a number";
  }
}

bool has_zero_byte(const std::string& text) { return text.find('\0') != std::string::npos; }

/// Reads the keys of one object, and gathers what is wrong.
class Reader {
 public:
  Reader(const json& object, std::string prefix, std::span<const std::string_view> known,
         Complaint& complaints)
      : object_{object}, prefix_{std::move(prefix)}, complaints_{complaints} {
    for (const auto& [key, value] : object.items()) {
      if (is_full()) break;
      if (std::ranges::find(known, key) != known.end()) continue;
      const auto meant = nearest(key, known);
      complain(key,
               "is no key of this object" +
                   (meant.empty() ? std::string{} : " (did you mean " + std::string{meant} + "?)"));
    }
  }
  void complain(std::string_view key, const std::string& what) {
    if (!is_full()) complaints_.push_back(prefix_ + printable(key) + ": " + what);
  }
  /// A body of a thousand wrong keys gives neither an answer of a thousand lines nor the work of
  /// one.
  [[nodiscard]] bool is_full() const {
    constexpr std::size_t kMost = 20;
    return complaints_.size() >= kMost;
  }
  [[nodiscard]] const json* find(std::string_view key) const {
    const auto found = object_.find(std::string{key});
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  void text(std::string_view key, std::string& into) {
    const auto* value = find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return wrong_kind(key, *value, "text");
    into = value->get<std::string>();
    if (has_zero_byte(into)) complain(key, "contains a zero byte");
  }
  void number(std::string_view key, std::uint32_t& into, std::uint32_t least) {
    const auto* value = find(key);
    if (value == nullptr) return;
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
    const bool is_right = value->is_number_unsigned() && value->get<std::uint64_t>() >= least &&
                          value->get<std::uint64_t>() <= kMost;
    if (!is_right)
      return wrong_kind(key, *value, "a whole number from " + std::to_string(least) + " on");
    into = value->get<std::uint32_t>();
  }
  void flag(std::string_view key, bool& into) {
    const auto* value = find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return wrong_kind(key, *value, "true or false");
    into = value->get<bool>();
  }
  void wrong_kind(std::string_view key, const json& value, const std::string& expected) {
    complain(key,
             "expected " + expected + ", got " + std::string{kind_of(value)} +
                 (value.is_primitive() && !value.is_null() ? ' ' + shown(value) : std::string{}));
  }

 private:
  static std::string shown(const json& value) { return printable(json_text(value), 60); }

  const json& object_;
  std::string prefix_;
  Complaint& complaints_;
};

/// The object of a body; nothing, and a complaint, if it isn't one.
std::optional<json> object_of(std::string_view body, Complaint& complaints) {
  auto value = parse_bounded(body, kDeepestBody);
  if (value.is_object()) return value;
  complaints.push_back(value.is_discarded()
                           ? "the body is no JSON, or nested too deeply"
                           : "the body must be an object, got " + std::string{kind_of(value)});
  return std::nullopt;
}

bool is_name(std::string_view text) {
  const auto is_first = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !text.empty() && text.size() <= kLongestName && is_first(text[0]) &&
         std::ranges::all_of(
             text, [&](char c) { return is_first(c) || c == '.' || c == '_' || c == '-'; });
}

void read_words(Reader& reader, std::vector<std::string>& into) {
  const auto* value = reader.find("words");
  if (value == nullptr)
    return reader.complain("words", "missing: the command line of acc-launch, as a list of text");
  if (!value->is_array()) return reader.wrong_kind("words", *value, "a list of text");
  if (value->empty()) return reader.complain("words", "is empty: a script at least is needed");
  for (std::size_t i = 0; i < value->size() && !reader.is_full(); ++i) {
    const auto& word = (*value)[i];
    const auto key = [&] { return "words[" + std::to_string(i) + ']'; };
    if (!word.is_string()) {
      reader.wrong_kind(key(), word, "text");
      continue;
    }
    into.push_back(bytes_of(word.get<std::string>()));
    if (has_zero_byte(into.back())) reader.complain(key(), "contains a zero byte");
  }
}

void read_env(Reader& reader, std::map<std::string, std::string>& into) {
  const auto* value = reader.find("env");
  if (value == nullptr) return;
  if (!value->is_object()) return reader.wrong_kind("env", *value, "an object of text");
  for (const auto& [name, text] : value->items()) {
    if (reader.is_full()) return;
    const auto key = "env." + name;
    if (name.empty() || name.find('=') != std::string::npos || has_zero_byte(name)) {
      reader.complain(key, "is no name of a variable");
    } else if (!text.is_string()) {
      reader.wrong_kind(key, text, "text");
    } else if (auto value_bytes = bytes_of(text.get<std::string>()); has_zero_byte(value_bytes)) {
      reader.complain(key, "contains a zero byte");
    } else {
      into[name] = std::move(value_bytes);
    }
  }
}

/// "022" as a shell writes it, or the number itself (18).
void read_umask(Reader& reader, mode_t& into) {
  const auto* value = reader.find("umask");
  if (value == nullptr) return;
  constexpr mode_t kMost = 0777;
  mode_t mask = kMost + 1;
  if (value->is_string()) {
    const auto text = value->get<std::string>();
    unsigned parsed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed, 8);
    if (error == std::errc{} && end == text.data() + text.size() && !text.empty()) mask = parsed;
  } else if (value->is_number_unsigned() && value->get<std::uint64_t>() <= kMost) {
    mask = value->get<mode_t>();
  }
  if (mask > kMost)
    return reader.wrong_kind("umask", *value, "octal digits as text: \"022\", at most \"777\"");
  into = mask;
}

void read_restart(Reader& reader, Submission& into, Complaint& complaints) {
  const auto* value = reader.find("restart");
  if (value == nullptr) return;
  if (!value->is_object())
    return reader.wrong_kind("restart", *value, "an object: {\"policy\": …, \"max\": …}");
  Reader inner{*value, "restart.", kRestartKeys, complaints};
  std::string policy{to_text(RestartRule::no)};
  inner.text("policy", policy);
  inner.number("max", into.max_starts_again, 0);
  for (const auto rule : {RestartRule::no, RestartRule::on_failure, RestartRule::always}) {
    if (policy != to_text(rule)) continue;
    into.restart = rule;
    return;
  }
  inner.complain("policy", "expected no, on-failure or always, got " + in_quotes(policy, 60));
}

void read_launch(Reader& reader, std::optional<Launch>& into, Complaint& complaints) {
  const auto* value = reader.find("launch");
  if (value == nullptr) return;
  if (!value->is_object())
    return reader.wrong_kind("launch", *value,
                             "an object: {\"id\": …, \"nodes\": K, \"node_rank\": i}");
  Reader inner{*value, "launch.", kLaunchKeys, complaints};
  Launch launch;
  inner.text("id", launch.id);
  if (!is_name(launch.id))
    inner.complain("id", in_quotes(launch.id, 80) +
                             ": small letters, digits, '.', '_' and '-', a letter or digit first, "
                             "at most 64; the same on all nodes");
  inner.number("nodes", launch.nodes, 1);
  inner.number("node_rank", launch.node_rank, 0);
  if (launch.node_rank >= launch.nodes)
    inner.complain("node_rank", "must be below nodes (" + std::to_string(launch.nodes) + ")");
  into = std::move(launch);
}

}  // namespace

Decoded<Submission> decode_submission(std::string_view body) {
  Decoded<Submission> out;
  const auto object = object_of(body, out.complaints);
  if (!object) return out;
  auto& job = out.value;
  Reader reader{*object, "", kSubmissionKeys, out.complaints};
  reader.text("name", job.name);
  if (!job.name.empty() && !is_name(job.name))
    reader.complain("name", in_quotes(job.name, 80) +
                                ": small letters, digits, '.', '_' and '-', a letter or digit "
                                "first, at most 64");
  read_words(reader, job.words);
  reader.text("working_directory", job.working_directory);
  job.working_directory = bytes_of(job.working_directory);
  if (!job.working_directory.starts_with('/'))
    reader.complain("working_directory",
                    job.working_directory.empty()
                        ? "missing: the folder in which the job runs, absolute"
                        : in_quotes(job.working_directory, 80) + ": must be absolute");
  read_env(reader, job.env);
  read_umask(reader, job.umask);
  reader.number("slots", job.slots, 1);
  job.names_slots = reader.find("slots") != nullptr;
  reader.number("gpus", job.gpus, 0);
  reader.flag("wait", job.wait);
  reader.text("user", job.user);
  read_restart(reader, job, out.complaints);
  read_launch(reader, job.launch, out.complaints);
  reader.flag("check", job.only_checks);
  return out;
}

Decoded<std::optional<std::uint32_t>> decode_stop(std::string_view body) {
  Decoded<std::optional<std::uint32_t>> out;
  if (trim(body).empty()) return out;
  const auto object = object_of(body, out.complaints);
  if (!object) return out;
  Reader reader{*object, "", kStopKeys, out.complaints};
  if (reader.find("grace_s") == nullptr) return out;
  std::uint32_t grace = 0;
  reader.number("grace_s", grace, 0);
  out.value = grace;
  return out;
}

Decoded<int> decode_signal(std::string_view body) {
  Decoded<int> out;
  const auto object = object_of(body, out.complaints);
  if (!object) return out;
  Reader reader{*object, "", kSignalKeys, out.complaints};
  if (reader.find("signal") == nullptr) reader.complain("signal", "missing: \"SIGUSR1\"");
  std::string name;
  reader.text("signal", name);
  if (!out.is_right()) return out;
  if (const int signo = signal_number(name); is_passed_on(signo)) {
    out.value = signo;
  } else {
    reader.complain("signal", in_quotes(name, 40) + " isn't passed on to workers: " +
                                  passed_signal_names() + "; `stop` ends a job");
  }
  return out;
}

Decoded<std::string> decode_drain(std::string_view body) {
  Decoded<std::string> out;
  const auto object = object_of(body, out.complaints);
  if (!object) return out;
  Reader reader{*object, "", kDrainKeys, out.complaints};
  reader.text("reason", out.value);
  constexpr std::size_t kLongest = 500;
  if (out.is_right() && (out.value.empty() || out.value.size() > kLongest))
    reader.complain("reason", out.value.empty() ? "missing: why the node takes no jobs"
                                                : "is longer than 500 bytes");
  return out;
}

Decoded<TokenWish> decode_token_wish(std::string_view body) {
  Decoded<TokenWish> out;
  if (body.empty()) return out;
  const auto object = object_of(body, out.complaints);
  if (!object) return out;
  Reader reader{*object, "", kTokenKeys, out.complaints};
  reader.flag("read_only", out.value.only_reads);
  reader.flag("browser", out.value.for_browser);
  reader.number("expires_s", out.value.expires_s, 1);
  constexpr std::uint32_t kLongest = 366 * 24 * 3600;
  if (out.value.expires_s > kLongest) reader.complain("expires_s", "is more than a year");
  return out;
}

std::vector<BodyKeys> body_keys() {
  const auto all = [](auto& keys) {
    return std::vector<std::string_view>(keys.begin(), keys.end());
  };
  return {{"Submission", all(kSubmissionKeys)}, {"Restart", all(kRestartKeys)},
          {"Launch", all(kLaunchKeys)},         {"Stop", all(kStopKeys)},
          {"Signal", all(kSignalKeys)},         {"Drain", all(kDrainKeys)},
          {"TokenWish", all(kTokenKeys)}};
}

}  // namespace acc::agent::daemon
