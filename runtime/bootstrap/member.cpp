#include "runtime/bootstrap/member.hpp"

#include "common/text.hpp"
#include "runtime/net/fields.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string_view>

namespace acc::runtime {

namespace {

/// Format of a member's text: ranks with different versions of the library can't form a group.
constexpr std::string_view kVersion = "acc-member-3";

std::string inode_of(const char* path) {
  struct stat found {};
  return ::stat(path, &found) == 0 ? std::to_string(found.st_ino) : "?";
}

std::string boot_id() {
  std::ifstream file{"/proc/sys/kernel/random/boot_id"};
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

HostFacts host_facts() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) name[0] = '?';
  const auto network = boot_id() + "/" + inode_of("/proc/self/ns/net");
  return {network + "/" + std::to_string(::geteuid()) + "/" + inode_of("/proc/self/ns/pid"),
          printable(name, 64), network};
}

std::string to_text(const Member& member) {
  return pack({std::string{kVersion}, std::to_string(member.rank), std::to_string(member.size),
               std::to_string(member.job_rank), std::to_string(member.pid), member.host.key,
               member.host.name, member.host.network, member.local_group, member.backend,
               member.group, member.check ? (*member.check ? "1" : "0") : ""});
}

std::optional<Member> parse_member(std::string_view text) {
  auto fields = unpack(text);
  if (!fields || fields->size() != 12 || fields->front() != kVersion) return std::nullopt;
  const auto rank = parse_number<int>(fields->at(1));
  const auto size = parse_number<int>(fields->at(2));
  const auto job_rank = parse_number<int>(fields->at(3));
  const auto pid = parse_number<std::int64_t>(fields->at(4));
  if (!rank || !size || !job_rank || !pid) return std::nullopt;
  const auto& check = fields->at(11);
  return Member{*rank,
                *size,
                *job_rank,
                *pid,
                {fields->at(5), fields->at(6), fields->at(7)},
                fields->at(8),
                fields->at(9),
                fields->at(10),
                check.empty() ? std::nullopt : std::optional{check == "1"}};
}

std::string describe(const Member& member) {
  return std::to_string(member.rank) + " (host " + member.host.name + ", pid " +
         std::to_string(member.pid) + ")";
}

}  // namespace acc::runtime
