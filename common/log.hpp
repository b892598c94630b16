#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

/// The only file that uses spdlog. One line per event: its name, then key=value in a fixed order,
/// UTC.
///   log::warn("worker_exited", {{"job", job}, {"round", round}, {"rank", rank}, {"signal",
///   "SIGSEGV"}});
namespace acc::log {

enum class Level { trace, debug, info, warn, error, off };

struct Field {
  std::string_view key;
  std::string value;
  Field(std::string_view k, std::string_view v) : key{k}, value{v} {}
  template <std::integral T>
  Field(std::string_view k, T v) : key{k}, value{std::to_string(v)} {}
};
using Fields = std::initializer_list<Field>;

void set_level(Level level);
/// "trace" … "off"; nothing: there is no such level.
[[nodiscard]] std::optional<Level> level_named(std::string_view name);
[[nodiscard]] bool enabled(Level level);
/// Receives finished lines, including the newline; stderr until this is called. Called on the
/// logging thread.
void set_writer(std::function<void(std::string_view line)> writer);

void write(Level level, std::string_view event, Fields fields);
inline void debug(std::string_view event, Fields fields = {}) {
  write(Level::debug, event, fields);
}
inline void info(std::string_view event, Fields fields = {}) { write(Level::info, event, fields); }
inline void warn(std::string_view event, Fields fields = {}) { write(Level::warn, event, fields); }
inline void error(std::string_view event, Fields fields = {}) {
  write(Level::error, event, fields);
}

}  // namespace acc::log
