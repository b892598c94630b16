#include "common/unmapped_id.hpp"

#include <sys/stat.h>
#include <unistd.h>

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

// A process stays in its user namespace. Asked for each connection.
bool is_own_uid_ambiguous() {
  static const auto unmapped = uid_of_unmapped();
  return unmapped == ::geteuid();
}

static bool is_in_own_user_namespace(pid_t pid) {
  struct stat own {};
  struct stat other {};
  const auto path = "/proc/" + std::to_string(pid) + "/ns/user";
  return pid > 0 && ::stat("/proc/self/ns/user", &own) == 0 && ::stat(path.c_str(), &other) == 0 &&
         own.st_ino == other.st_ino && own.st_dev == other.st_dev;
}

bool is_own_user(uid_t peer, pid_t peer_pid) {
  if (peer != ::geteuid()) return false;
  return !is_own_uid_ambiguous() || is_in_own_user_namespace(peer_pid);
}

}  // namespace acc
