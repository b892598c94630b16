#include "agent/error_file.hpp"

#include "common/json_bounds.hpp"
#include "common/unique_fd.hpp"

#include <nlohmann/json.hpp>

#include <fcntl.h>

#include <cerrno>

namespace acc::agent {

namespace {

using Json = nlohmann::json;

std::string text_of(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

}  // namespace

Result<WorkerError> parse_error_file(std::string_view text) {
  if (text.size() > kMaxErrorFile) return Error{Errc::bad_config, "error file: larger than 1 MiB"};
  if (is_json_beyond(text, kDeepestForeign)) return Error{Errc::bad_config, "error file: nested too deeply"};
  const Json root = Json::parse(text, nullptr, false);
  if (!root.is_object()) return Error{Errc::bad_config, "error file: not a JSON object"};
  const auto message = root.find("message");
  if (message == root.end()) return Error{Errc::bad_config, "error file: no key 'message'"};
  const std::string whole{text};
  if (message->is_string()) return WorkerError{message->get<std::string>(), {}, whole};
  WorkerError error{text_of(*message, "message"), {}, whole};
  const auto extra = message->is_object() ? message->find("extraInfo") : message->end();
  if (extra != message->end()) error.traceback = text_of(*extra, "py_callstack");
  if (error.message.empty() && error.traceback.empty()) {
    return Error{Errc::bad_config, "error file: neither a message nor a traceback"};
  }
  return error;
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
