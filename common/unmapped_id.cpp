#include "common/unmapped_id.hpp"

#include <fstream>
#include <iterator>
#include <sstream>

namespace acc {

std::optional<UnmappedId> unmapped_in(std::string_view map, std::uint32_t overflow) {
  constexpr std::uint64_t kAll = 4'294'967'295;
  UnmappedId found{overflow, false};
  std::istringstream lines{std::string{map}};
  std::uint64_t inside = 0;
  std::uint64_t outside = 0;
  std::uint64_t count = 0;
  while (lines >> inside >> outside >> count) {  // an empty one maps nothing
    if (inside == 0 && outside == 0 && count == kAll) return std::nullopt;
    if (found.number >= inside && found.number - inside < count) found.is_mapped_too = true;
  }
  return found;
}

std::optional<UnmappedId> unmapped_id(const std::string& kind) {
  std::ifstream map{"/proc/self/" + kind + "_map"};
  if (!map) return std::nullopt;  // no /proc
  const std::string text{std::istreambuf_iterator<char>{map}, {}};
  std::uint32_t overflow = UnmappedId{}.number;
  std::ifstream{"/proc/sys/kernel/overflow" + kind} >> overflow;
  return unmapped_in(text, overflow);
}

std::optional<uid_t> uid_of_unmapped() {
  const auto found = unmapped_id("uid");
  return found ? std::optional<uid_t>{found->number} : std::nullopt;
}

}  // namespace acc
