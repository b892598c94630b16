#include "common/daemon_places.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

using namespace acc;

namespace {

constexpr uid_t kUser = 4711;

std::vector<std::string> sockets(const UserFolders& folders, uid_t uid = kUser) {
  std::vector<std::string> found;
  for (const auto& place : user_daemon_places(folders, uid, "/run/acc-nobody"))
    found.push_back(place.socket);
  return found;
}

}  // namespace

TEST_CASE("wherever a user's acc-agent listens, it is looked for", "[common]") {
  const UserFolders login{"/run/acc-nobody/4711", "", "/home/u"};
  const UserFolders own{"/tmp/runtime", "/srv/state", "/home/u"};
  const UserFolders su{"", "", "/home/u"};
  const UserFolders relative{"runtime", "state", "/home/u"};
  CHECK(user_daemon_socket(login) == "/run/acc-nobody/4711/acc/agent.sock");
  CHECK(user_daemon_socket(own) == "/tmp/runtime/acc/agent.sock");
  CHECK(user_daemon_socket(su) == "/home/u/.local/state/acc/agent.sock");
  CHECK(user_daemon_socket(relative) == user_daemon_socket(su));
  CHECK(user_state_folder(own) == "/srv/state/acc");
  for (const auto& client : {login, own, su, relative}) {
    CHECK_THAT(sockets(client), Catch::VectorContains(user_daemon_socket(client)));
    CHECK_THAT(sockets(client), Catch::VectorContains(user_daemon_socket(su)));
    CHECK_THAT(sockets(client), Catch::VectorContains(user_daemon_socket(login)));
  }
  CHECK(sockets(login).size() == 2);
  CHECK(sockets(own).size() == 4);
}

TEST_CASE("root's acc-agent isn't looked for in a user's home", "[common]") {
  CHECK(sockets({"", "", "/home/u"}, 0) ==
        std::vector<std::string>{"/run/acc-nobody/0/acc/agent.sock"});
}

TEST_CASE("no acc-agent is looked for in a state folder to which others may write", "[common]") {
  std::string home = "/tmp/acc-daemon-places-XXXXXX";
  REQUIRE(::mkdtemp(home.data()) != nullptr);
  const auto state = home + "/acc";
  const auto is_trusted = [&](uid_t uid) {
    return user_daemon_places({"", home, ""}, uid, "/run/acc-nobody").at(1).is_trusted;
  };
  const uid_t owner = ::geteuid() == 0 ? kUser : ::geteuid();
  CHECK(is_trusted(owner));  // there is none yet
  REQUIRE(::mkdir(state.c_str(), 0700) == 0);
  REQUIRE(::chown(state.c_str(), owner, static_cast<gid_t>(-1)) == 0);
  CHECK(is_trusted(owner));
  CHECK_FALSE(is_trusted(owner + 1));
  REQUIRE(::chmod(state.c_str(), 0770) == 0);
  CHECK_FALSE(is_trusted(owner));
  std::filesystem::remove_all(home);
}
