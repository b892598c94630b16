#include "agent/last_lines.hpp"

#include "common/plain_text.hpp"

namespace acc::agent {

// What a long line says may stand at its end. No character is cut by `width`, which counts bytes.
static std::string safe_line(std::string_view line, std::size_t width) {
  auto safe = safe_text(line);
  if (safe.size() <= width) return safe;
  const auto is_within = [&](std::size_t at) {
    return at < safe.size() && (static_cast<unsigned char>(safe[at]) & 0xC0U) == 0x80U;
  };
  std::size_t head = width / 2;
  std::size_t tail = safe.size() - (width - head);
  while (head > 0 && is_within(head)) --head;
  while (is_within(tail)) ++tail;
  return safe.substr(0, head) + "…" + safe.substr(tail);
}

std::vector<std::string> last_lines(std::string_view tail, std::size_t count, std::size_t width) {
  while (!tail.empty() && (tail.back() == '\n' || tail.back() == '\r')) tail.remove_suffix(1);
  std::vector<std::string> lines;
  while (!tail.empty() && lines.size() < count) {
    const auto newline = tail.rfind('\n');
    std::string_view line = newline == std::string_view::npos ? tail : tail.substr(newline + 1);
    tail = newline == std::string_view::npos ? std::string_view{} : tail.substr(0, newline);
    while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (const auto bar = line.rfind('\r'); bar != std::string_view::npos)
      line = line.substr(bar + 1);
    lines.insert(lines.begin(), safe_line(line, width));
  }
  return lines;
}

}  // namespace acc::agent
