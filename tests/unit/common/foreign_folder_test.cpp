#include "common/foreign_folder.hpp"

#include "common/unmapped_id.hpp"

#include <catch2/catch.hpp>

#include <grp.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace acc;
namespace fs = std::filesystem;

namespace {

constexpr uid_t kAnn = 1001;
constexpr gid_t kStaff = 50;
constexpr gid_t kProject = 2000;

/// A folder `above` with `state` in it.
struct Place {
  Place() {
    REQUIRE(::chmod(root.c_str(), 0755) == 0);
    fs::create_directories(state);
    REQUIRE(::chmod(above.c_str(), 0755) == 0);
  }
  ~Place() { fs::remove_all(root); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  void give(uid_t uid, gid_t gid, mode_t mode) const {
    REQUIRE(::chown(above.c_str(), uid, gid) == 0);
    REQUIRE(::chmod(above.c_str(), mode) == 0);
  }
  static std::string made() {
    std::string path = "/tmp/acc-foreign-folder-XXXXXX";
    REQUIRE(::mkdtemp(path.data()) != nullptr);
    return path;
  }
  std::string root = made();
  std::string above = root + "/above";
  std::string state = above + "/state";
};

/// What `check` finds in a process of its own, as it changes what it is.
template <class Check>
bool in_child(Check check) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(check() ? 0 : 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status == 0;
}

bool is_root() {
  if (::geteuid() == 0) return true;
  WARN("SKIPPED: needs root");
  return false;
}

bool enter_user_namespace() {
  if (::unshare(CLONE_NEWUSER) != 0) return false;
  return static_cast<bool>(std::ofstream{"/proc/self/uid_map"} << "0 0 1" << std::flush);
}

/// In a user namespace with `map`, which only a process outside of it may write.
template <class Check>
bool in_user_namespace(const std::string& map, Check check) {
  return in_child([&] {
    int entered[2];
    int mapped[2];
    if (::pipe(entered) != 0 || ::pipe(mapped) != 0) return false;
    const pid_t inner = ::fork();
    char byte = 0;
    if (inner == 0) {
      const bool is_in = ::unshare(CLONE_NEWUSER) == 0 && ::write(entered[1], &byte, 1) == 1 &&
                         ::close(mapped[1]) == 0 && ::read(mapped[0], &byte, 1) == 1;
      ::_exit(is_in && check() ? 0 : 1);
    }
    ::close(entered[1]);  // now its end is seen, too: it may not be allowed to enter one
    const bool is_mapped = inner > 0 && ::read(entered[0], &byte, 1) == 1 &&
                           std::ofstream{"/proc/" + std::to_string(inner) + "/uid_map"}
                               << map << std::flush &&
                           ::write(mapped[1], &byte, 1) == 1;
    ::close(mapped[1]);
    int status = 0;
    return inner > 0 && ::waitpid(inner, &status, 0) == inner && is_mapped && status == 0;
  });
}

/// "ann may write to it": what `setfacl -m u:1001:rwx` does. False: this file system has no ACLs.
bool give_by_acl(const std::string& path, std::uint16_t tag, std::uint16_t rights,
                 std::uint32_t id) {
  std::vector<std::uint16_t> words{2, 0};
  const auto add = [&](std::uint16_t one, std::uint16_t its, std::uint32_t whose) {
    for (const std::uint32_t word :
         {std::uint32_t{one}, std::uint32_t{its}, whose & 0xffffU, whose >> 16U})
      words.push_back(static_cast<std::uint16_t>(word));
  };
  add(1, 7, ~0U);  // its owner
  if (tag == 2) add(tag, rights, id);
  add(4, 5, ~0U);  // its group
  if (tag == 8) add(tag, rights, id);
  add(0x10, 7, ~0U);  // the mask
  add(0x20, 5, ~0U);  // all others
  const auto bytes = words.size() * sizeof words[0];
  return ::setxattr(path.c_str(), "system.posix_acl_access", words.data(), bytes, 0) == 0;
}

}  // namespace

TEST_CASE("who may write to a folder by an ACL, behind its group bits, was trusted as its group",
          "[common]") {
  if (!is_root()) return;
  const Place place;
  place.give(0, 0, 0755);
  if (!give_by_acl(place.above, 2, 7, kAnn)) {
    WARN("SKIPPED: no ACLs here");
    return;
  }
  const auto refusal = "'" + place.above +
                       "', above it, can be written by other users and isn't sticky (chmod +t it)";
  CHECK(replaceable_by_others(place.state) == refusal);
  CHECK(is_writable_by_others(place.above));
  REQUIRE(give_by_acl(place.above, 8, 7, kProject));
  CHECK(replaceable_by_others(place.state) == refusal);
  REQUIRE(give_by_acl(place.above, 8, 7, kStaff));  // as that of /var/local
  CHECK(replaceable_by_others(place.state).empty());
  REQUIRE(give_by_acl(place.above, 2, 5, kAnn));  // it may only read
  CHECK(replaceable_by_others(place.state).empty());
  CHECK_FALSE(is_writable_by_others(place.above));
  // The mode says that the group may write, and is only the mask: that entry is r-x.
  place.give(0, kProject, 0775);
  CHECK(replaceable_by_others(place.state).empty());
  REQUIRE(give_by_acl(place.above, 2, 7, kAnn));
  REQUIRE(::chmod(place.above.c_str(), 0755) == 0);  // takes it from the mask
  CHECK(replaceable_by_others(place.state).empty());
  // In a sticky one it replaces nothing, but may make a link.
  REQUIRE(::chmod(place.above.c_str(), 01775) == 0);
  CHECK(replaceable_by_others(place.state).empty());
  fs::create_directory_symlink(place.state, place.above + "/link");
  CHECK(replaceable_by_others(place.above + "/link/deep").empty());
  REQUIRE(::lchown((place.above + "/link").c_str(), kAnn, kAnn) == 0);
  CHECK_THAT(replaceable_by_others(place.above + "/link/deep"),
             Catch::Contains("is another user's link"));
}

TEST_CASE("a daemon in a user namespace was refused every state folder, as / had no owner there",
          "[common]") {
  if (!is_root()) return;
  const Place place;
  place.give(kAnn, kAnn, 0755);
  CHECK_FALSE(replaceable_by_others(place.state).empty());
  if (!in_child(enter_user_namespace)) {
    WARN("SKIPPED: no user namespace can be made here");
    return;
  }
  const auto is_accepted = [&] {
    return enter_user_namespace() && replaceable_by_others(place.state).empty();
  };
  CHECK(in_child(is_accepted));
  // Its owner may be any user of the machine, who has let this one write there.
  if (give_by_acl(place.above, 2, 7, 0)) {
    CHECK_FALSE(in_child(is_accepted));
    REQUIRE(::chmod(place.above.c_str(), 01777) == 0);  // as /tmp
    CHECK(in_child(is_accepted));
    REQUIRE(::removexattr(place.above.c_str(), "system.posix_acl_access") == 0);
  }
  // Of a group without a number there nobody knows whether it is one of ours.
  place.give(0, kProject, 0775);
  CHECK_FALSE(in_child(is_accepted));
  // The number itself, outside of a namespace.
  place.give(65534, 65534, 0755);
  CHECK_FALSE(replaceable_by_others(place.state).empty());
}

TEST_CASE("in a container that maps uid 65534 (userns-remap), its nobody was trusted as root is",
          "[common]") {
  if (!is_root()) return;
  const Place place;
  const std::string all = "0 0 65536";
  if (!in_user_namespace(all, [] { return ::geteuid() == 0; })) {
    WARN("SKIPPED: no user namespace can be made here");
    return;
  }
  const auto is_accepted = [&] { return replaceable_by_others(place.state).empty(); };
  place.give(0, 0, 0755);
  CHECK(in_user_namespace(all, is_accepted));
  place.give(65534, 65534, 0755);
  CHECK_FALSE(in_user_namespace(all, is_accepted));
  CHECK_FALSE(in_user_namespace("0 0 1\n60000 60000 5535", is_accepted));
  CHECK(in_user_namespace("0 0 65534", is_accepted));  // without it
  // What belongs to nobody there has the same number, and is told apart.
  place.give(70000, 0, 0755);
  CHECK(in_user_namespace(all, is_accepted));
}

TEST_CASE("the message for an emptyDir (02777, of root) didn't say how to mend it", "[common]") {
  if (!is_root()) return;
  const Place place;
  place.give(0, kProject, 02777);
  const auto as_ann = [&](const std::string& expected) {
    return in_child([&] {
      const gid_t group = kProject;
      return ::setgroups(1, &group) == 0 && ::setgid(kAnn) == 0 && ::setuid(kAnn) == 0 &&
             replaceable_by_others(place.state) == expected;
    });
  };
  const auto refusal = "'" + place.above +
                       "', above it, can be written by other users and isn't sticky (chmod +t it)";
  CHECK(replaceable_by_others(place.state) == refusal);
  CHECK(as_ann(refusal));
  place.give(0, kProject, 03777);
  CHECK(replaceable_by_others(place.state).empty());
  CHECK(as_ann(""));
}

TEST_CASE("a state folder on a volume of a supplementary group (fsGroup) was refused", "[common]") {
  if (!is_root()) return;
  const Place place;
  place.give(0, kProject, 02775);
  const auto as_ann = [&](bool is_member) {
    return in_child([&] {
      const gid_t group = kProject;
      return ::setgroups(is_member ? 1 : 0, &group) == 0 && ::setgid(kAnn) == 0 &&
             ::setuid(kAnn) == 0 && replaceable_by_others(place.state).empty();
    });
  };
  CHECK(as_ann(true));
  CHECK_FALSE(as_ann(false));
  CHECK_FALSE(replaceable_by_others(place.state).empty());
}

TEST_CASE("root's daemon was refused a state folder below /var/local, of root:staff", "[common]") {
  if (!is_root()) return;
  const Place place;
  place.give(0, kStaff, 02775);
  CHECK(replaceable_by_others(place.state).empty());
  SECTION("a group of people") { place.give(0, 1000, 02775); }
  SECTION("the group of all people") { place.give(0, 100, 02775); }
  SECTION("not root's") { place.give(kAnn, kStaff, 02775); }
  CHECK_FALSE(replaceable_by_others(place.state).empty());
}

TEST_CASE("a state folder was judged by its name and its target, not by the links between them",
          "[common]") {
  const Place place;
  fs::create_directory(place.root + "/open");
  REQUIRE(::chmod((place.root + "/open").c_str(), 0777) == 0);
  fs::create_directory_symlink("open/second", place.root + "/first");
  fs::create_directory_symlink(place.above, place.root + "/open/second");
  const auto path = place.root + "/first/state";
  CHECK_THAT(replaceable_by_others(path), Catch::Contains("'" + place.root + "/open', above it"));
  REQUIRE(::chmod((place.root + "/open").c_str(), 01777) == 0);
  CHECK(replaceable_by_others(path).empty());
  CHECK(replaceable_by_others(place.root + "/first/../above/./state/").empty());
  if (!is_root()) return;
  REQUIRE(::lchown((place.root + "/open/second").c_str(), kAnn, kAnn) == 0);
  CHECK(replaceable_by_others(path) == "'" + place.root +
                                           "/open/second', on the way to it, is another user's "
                                           "link in a folder that all may write to");
}

TEST_CASE("users that a user namespace doesn't map have one number, which may be mapped, too",
          "[common]") {
  CHECK_FALSE(unmapped_in("         0          0 4294967295\n", 65534));
  const auto none = unmapped_in("", 65534);
  REQUIRE(none);
  CHECK(none->number == 65534);
  CHECK_FALSE(none->is_mapped_too);
  CHECK_FALSE(unmapped_in("0 0 1000\n", 65534)->is_mapped_too);
  CHECK(unmapped_in("0 0 1000\n65534 60000 1\n", 65534)->is_mapped_too);
  CHECK(unmapped_in("0 100000 65536\n", 65534)->is_mapped_too);
  CHECK(unmapped_in("0 0 1000\n", 99)->number == 99);
}
