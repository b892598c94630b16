#include "agent/output/event_file_line.hpp"

#include "common/text.hpp"

namespace acc::agent {

namespace {

constexpr std::string_view kBeforePosition = R"({"v":1,"event":"file_continued","begins_at":)";
constexpr std::string_view kBehindPosition = "}\n";
constexpr std::uint64_t kFarthest = std::uint64_t{1} << 62U;

}  // namespace

std::string event_file_line(std::uint64_t begins_at) {
  return std::string{kBeforePosition} + std::to_string(begins_at) + std::string{kBehindPosition};
}

std::uint64_t begins_at(std::string_view head) {
  if (!head.starts_with(kBeforePosition)) return 0;
  head.remove_prefix(kBeforePosition.size());
  const auto end = head.find(kBehindPosition);
  if (end == std::string_view::npos) return 0;
  const auto position = parse_number<std::uint64_t>(head.substr(0, end));
  return position && *position <= kFarthest ? *position : 0;
}

}  // namespace acc::agent
