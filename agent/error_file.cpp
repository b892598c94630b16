#include "agent/error_file.hpp"

#include "common/json_bounds.hpp"
#include "common/unique_fd.hpp"

#include <nlohmann/json.hpp>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

namespace acc::agent {

namespace {

using Json = nlohmann::json;

std::string text_of(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

/// The number of "\\uXXXX" at `at`; nothing: something else stands there.
std::optional<std::uint32_t> escaped_unit(std::string_view text, std::size_t at) {
  constexpr std::size_t kLength = 6;
  std::uint32_t unit = 0;
  if (text.size() < at + kLength || text.substr(at, 2) != "\\u") return std::nullopt;
  const auto* const end = text.data() + at + kLength;
  const auto read = std::from_chars(end - 4, end, unit, 16);
  if (read.ec != std::errc{} || read.ptr != end) return std::nullopt;
  return unit;
}

/// Python writes bytes of a name that aren't UTF-8 as half a pair ("\\udce9"), which is no text
/// and which the parser refuses: U+FFFD takes its place.
std::string without_lone_surrogates(std::string_view json) {
  const auto is_between = [](std::optional<std::uint32_t> unit, std::uint32_t low,
                             std::uint32_t high) { return unit && *unit >= low && *unit <= high; };
  std::string text;
  text.reserve(json.size());
  std::size_t length = 0;
  for (std::size_t at = 0; at < json.size(); at += length) {
    length = std::min(json.find('\\', at), json.size()) - at;
    text += json.substr(at, length);
    at += length;
    length = 2;
    const auto unit = escaped_unit(json, at);
    if (is_between(unit, 0xd800, 0xdfff)) {
      const bool is_pair = *unit < 0xdc00 && is_between(escaped_unit(json, at + 6), 0xdc00, 0xdfff);
      length = is_pair ? 12 : 6;
      if (!is_pair) {
        text += "\\ufffd";
        continue;
      }
    }
    text += json.substr(at, length);
  }
  return text;
}

// An exception may hold a whole tensor: it is shown, sent and reported without its middle.
std::string without_middle(std::string text) {
  if (text.size() <= 3 * kKeptOfError) return text;
  const auto is_within = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  std::size_t begin = kKeptOfError;
  std::size_t end = text.size() - kKeptOfError;
  while (is_within(begin)) --begin;
  while (is_within(end)) ++end;
  const auto gap = "\n" + std::string{kErrorGap} + std::to_string(end - begin) + " bytes) …\n";
  return text.replace(begin, end - begin, gap);
}

WorkerError shortened(WorkerError error) {
  error.message = without_middle(std::move(error.message));
  error.traceback = without_middle(std::move(error.traceback));
  return error;
}

}  // namespace

Result<WorkerError> parse_error_file(std::string_view text) {
  if (text.size() > kMaxErrorFile) return Error{Errc::bad_config, "error file: larger than 8 MiB"};
  if (is_json_beyond(text, kDeepestForeign)) return Error{Errc::bad_config, "error file: nested too deeply"};
  const auto whole = without_lone_surrogates(text);
  const Json root = Json::parse(whole, nullptr, false);
  if (!root.is_object()) return Error{Errc::bad_config, "error file: not a JSON object"};
  const auto message = root.find("message");
  if (message == root.end()) return Error{Errc::bad_config, "error file: no key 'message'"};
  if (message->is_string()) return shortened({message->get<std::string>(), {}, whole});
  WorkerError error{text_of(*message, "message"), {}, whole};
  const auto extra = message->is_object() ? message->find("extraInfo") : message->end();
  if (extra != message->end()) error.traceback = text_of(*extra, "py_callstack");
  if (error.message.empty() && error.traceback.empty()) {
    return Error{Errc::bad_config, "error file: neither a message nor a traceback"};
  }
  return shortened(std::move(error));
}

std::string with_error_code(const std::string& json, int code) {
  auto root = Json::parse(json, nullptr, false);
  if (!root.is_object() || !root.contains("message") || !root["message"].is_object()) return json;
  root["message"]["errorCode"] = code;
  return root.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<WorkerError> read_error_file(const std::string& path) {
  const UniqueFd fd{
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // a FIFO there must not stop us
  if (!fd) return system_error(errno, "open '" + path + "'");
  std::string text;
  char chunk[16 * 1024];
  for (;;) {
    const ssize_t n = ::read(fd.get(), chunk, sizeof chunk);
    if (n < 0) return system_error(errno, "read '" + path + "'");
    if (n == 0) break;
    text.append(chunk, static_cast<std::size_t>(n));
    if (text.size() > kMaxErrorFile) break;
  }
  if (text.empty()) return Error{Errc::not_found, "error file: empty"};
  return parse_error_file(text);
}

}  // namespace acc::agent
