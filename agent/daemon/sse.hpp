#pragma once

#include "agent/daemon/log_place.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Server-sent events, as browsers' EventSource reads them.
namespace acc::agent::daemon {

struct ServerSentEvent {
  std::string id;    ///< without line ends
  std::string name;  ///< empty: "message"
  std::string data;  ///< JSON in one line
};
[[nodiscard]] std::string to_text(const ServerSentEvent& event);

/// How far a reader of a job's output has read, in bytes of both files: `id:` of the log stream.
/// Of a rank also which files: "N,N,TIME:RUN:ATTEMPT,TIME:RUN:ATTEMPT".
struct LogOffsets {
  std::uint64_t out = 0;
  std::uint64_t err = 0;
  std::optional<LogPlace> out_place{};
  std::optional<LogPlace> err_place{};
  friend bool operator==(const LogOffsets&, const LogOffsets&) = default;
};
[[nodiscard]] std::string to_text(const LogOffsets& offsets);
/// Of Last-Event-ID; nothing if it isn't one of ours.
[[nodiscard]] std::optional<LogOffsets> parse_log_offsets(std::string_view text);

/// Where the first event of `bytes` may end: behind the last line's end, but lines that aren't
/// UTF-8 are apart from those before and behind them; if `takes_partial_line`, behind the last
/// whole character. 0: nothing to send yet.
[[nodiscard]] std::size_t whole_part(std::string_view bytes, bool takes_partial_line);

/// `bytes` as a JSON string, by json_text_of(): what isn't UTF-8 as Latin-1 behind U+0001.
[[nodiscard]] std::string json_string(std::string_view bytes);

}  // namespace acc::agent::daemon
