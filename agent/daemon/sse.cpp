#include "agent/daemon/sse.hpp"

#include "common/json_bytes.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

namespace acc::agent::daemon {

std::string to_text(const ServerSentEvent& event) {
  std::string text;
  text.reserve(event.data.size() + 64);
  if (!event.name.empty()) text.append("event: ").append(event.name).append("\n");
  if (!event.id.empty()) text.append("id: ").append(event.id).append("\n");
  return text.append("data: ").append(event.data).append("\n\n");
}

static std::string to_text(const LogPlace& place) {
  return std::to_string(place.time_ms) + ':' + std::to_string(place.run) + ':' +
         std::to_string(place.attempt);
}

std::string to_text(const LogOffsets& offsets) {
  std::string text = std::to_string(offsets.out) + ',' + std::to_string(offsets.err);
  if (offsets.out_place || offsets.err_place)
    text += ',' + to_text(offsets.out_place.value_or(LogPlace{})) + ',' +
            to_text(offsets.err_place.value_or(LogPlace{}));
  return text;
}

static std::optional<LogPlace> parse_log_place(const std::string& text) {
  const auto parts = split(text, ':');
  if (parts.size() != 3) return std::nullopt;
  const auto time_ms = parse_number<std::int64_t>(parts[0]);
  const auto run = parse_number<std::uint64_t>(parts[1]);
  const auto attempt = parse_number<std::uint32_t>(parts[2]);
  if (!time_ms || *time_ms < 0 || !run || !attempt) return std::nullopt;
  return LogPlace{*time_ms, *run, *attempt};
}

std::optional<LogOffsets> parse_log_offsets(std::string_view text) {
  const auto parts = split(text, ',');
  if (parts.size() != 2 && parts.size() != 4) return std::nullopt;
  const auto out = parse_number<std::uint64_t>(parts[0]);
  const auto err = parse_number<std::uint64_t>(parts[1]);
  // Offsets of files: the kernel's are signed.
  if (!out || !err || *out > INT64_MAX || *err > INT64_MAX) return std::nullopt;
  LogOffsets offsets{*out, *err};
  if (parts.size() == 2) return offsets;
  offsets.out_place = parse_log_place(parts[2]);
  offsets.err_place = parse_log_place(parts[3]);
  if (!offsets.out_place || !offsets.err_place) return std::nullopt;
  return offsets;
}

namespace {

/// Of whole lines: those before the first that isn't UTF-8; if that's the first, all to the last
/// such one. Their marked form would make other lines unreadable for people; each with an event of
/// its own would be slow.
std::size_t lines_of_one_kind(std::string_view lines) {
  if (is_utf8(lines)) return lines.size();
  std::size_t last_bad = 0;  // behind it
  for (std::size_t begin = 0; begin < lines.size();) {
    const auto end = lines.find('\n', begin) + 1;
    if (!is_utf8(lines.substr(begin, end - begin))) {
      if (last_bad == 0 && begin > 0) return begin;
      last_bad = end;
    }
    begin = end;
  }
  return last_bad;
}

}  // namespace

std::size_t whole_part(std::string_view bytes, bool takes_partial_line) {
  if (!takes_partial_line) {
    const auto end = bytes.rfind('\n');
    return end == std::string_view::npos ? 0 : lines_of_one_kind(bytes.substr(0, end + 1));
  }
  // Back to the start of the last character, if it is cut off; at most 3 bytes.
  for (std::size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const auto c = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((c & 0xc0U) == 0x80U) continue;  // inside a character
    const std::size_t length = c >= 0xf0U ? 4 : c >= 0xe0U ? 3 : c >= 0xc0U ? 2 : 1;
    return length > back ? bytes.size() - back : bytes.size();
  }
  return bytes.size();
}

std::string json_string(std::string_view bytes) {
  return nlohmann::json(json_text_of(bytes)).dump();
}

}  // namespace acc::agent::daemon
