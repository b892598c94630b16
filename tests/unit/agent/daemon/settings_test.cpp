#include "agent/daemon/settings.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <string>

using namespace acc;
using namespace acc::agent::daemon;
using Catch::Matchers::Contains;

TEST_CASE("a settings file is the command line as JSON, with comments", "[agent][http]") {
  Settings settings;
  const auto complaints = apply_settings_file(settings, R"({
    // of this node
    "slots": 8, "gpus": [0, 2], "state_dir": "/srv/acc", "prune-age": "2d", "prune_jobs": "5",
    "log_level": "debug"
  })",
                                              "agent.json");
  CHECK(complaints.empty());
  CHECK(settings.slots == 8U);
  CHECK(settings.gpus == std::vector<std::uint32_t>{0, 2});
  CHECK(settings.state_dir == "/srv/acc");
  CHECK(settings.prune_age == std::chrono::hours{48});
  CHECK(settings.prune_jobs == 5);
  CHECK(settings.log_level == acc::log::Level::debug);
}

TEST_CASE("all that is wrong with a settings file is said, with the key", "[agent][http]") {
  Settings settings;
  const auto complaints = apply_settings_file(
      settings, R"({"slot": 8, "slots": 0, "gpus": [0, 0], "socket": "here", "prune_age": true})",
      "agent.json");
  std::string all;
  for (const auto& one : complaints) all += one.what + "\n";
  CHECK_THAT(all, Contains("agent.json: there is no setting slot (did you mean slots?)") &&
                      Contains("slots: '0'") && Contains("gpus: '0,0'") &&
                      Contains("socket: 'here': must be absolute") &&
                      Contains("prune_age: expected text or a number"));
  CHECK(complaints.size() == 5);
  CHECK(apply_settings_file(settings, "{", "agent.json").size() == 1);
  CHECK(apply_settings_file(settings, "[]", "agent.json").size() == 1);
}

TEST_CASE("ended jobs were removed after 7 s, as prune_age was 7", "[agent][http]") {
  for (const std::string text : {"7", "\"7\"", "0", "\"0.5\""}) {
    Settings settings;
    const auto complaints =
        apply_settings_file(settings, "{\"prune_age\": " + text + "}", "agent.json");
    REQUIRE(complaints.size() == 1);
    CHECK_THAT(complaints[0].what, Contains("its unit is missing: "));
    CHECK(settings.prune_age == std::chrono::hours{7 * 24});
  }
  Settings settings;
  CHECK(apply_settings_file(settings, R"({"prune_age": "0s"})", "agent.json").empty());
  CHECK(settings.prune_age == Millis{0});
}

TEST_CASE("root and users have their own places, and a state folder holds its socket",
          "[agent][http]") {
  ::setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  ::setenv("XDG_STATE_HOME", "/home/u/state", 1);
  Settings root;
  fill_defaults(root, true, "/usr/bin/acc-agent");
  CHECK(root.state_dir == "/var/lib/acc");
  CHECK(root.socket == "/run/acc/agent.sock");
  CHECK(root.jobs_dir == "/etc/acc/jobs.d");
  CHECK(root.launch == "/usr/bin/acc-launch");
  Settings user;
  fill_defaults(user, false, "/usr/bin/acc-agent");
  CHECK(user.state_dir == "/home/u/state/acc");
  CHECK(user.socket == "/run/user/7/acc/agent.sock");
  Settings named;
  named.state_dir = "/tmp/x";
  fill_defaults(named, false, "/usr/bin/acc-agent");
  CHECK(named.socket == "/tmp/x/agent.sock");
  ::unsetenv("XDG_RUNTIME_DIR");
  Settings without_login;
  fill_defaults(without_login, false, "/usr/bin/acc-agent");
  CHECK(without_login.socket == "/home/u/state/acc/agent.sock");
  ::unsetenv("XDG_STATE_HOME");
}
