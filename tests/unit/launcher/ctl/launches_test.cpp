#include "launcher/ctl/launches.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace acc::ctl {
namespace {

JobRow launch_job(const std::string& name, const std::string& state, std::optional<int> code = {}) {
  JobRow row;
  row.name = name;
  row.id = name + "-abcdef";
  row.state = state;
  row.exit_code = code;
  row.slots = 2;
  row.words = {"train.py"};
  return row;
}

LaunchState launch(std::vector<std::optional<JobRow>> jobs, const std::string& why = {}) {
  LaunchState state;
  state.record.id = "hosts-x";
  for (auto& one : jobs) {
    const std::string host(1, static_cast<char>('a' + state.parts.size()));
    state.parts.push_back({{host, host, {}}, one, one ? std::string{} : why});
  }
  return state;
}

}  // namespace

TEST_CASE("the parts of a launch were shown beside it where the home is on NFS with squashing",
          "[ctl][launches]") {
  constexpr uid_t kNobody = 65534;
  CHECK(agent::owner_of_record(kNobody, 1001) == 1001);
  CHECK(agent::owner_of_record(1001, 1001) == 1001);
  CHECK(agent::owner_of_record(1001, 0) == 1001);
}

TEST_CASE("root with the home of another user followed that user's records", "[ctl][launches]") {
  if (::geteuid() != 0) return;
  std::string home = "/tmp/acc-home-XXXXXX";
  REQUIRE(::mkdtemp(home.data()) != nullptr);
  const char* const before = std::getenv("XDG_STATE_HOME");
  const std::optional<std::string> kept =
      before != nullptr ? std::optional<std::string>{before} : std::nullopt;
  REQUIRE(::setenv("XDG_STATE_HOME", home.c_str(), 1) == 0);
  const auto write = [](const std::string& id) {
    REQUIRE(agent::write_record({id, "/run/acc/agent.sock", "/", 0, true, {{"a", "", ""}}, "a"})
                .has_value());
    return agent::launches_folder() + "/" + id + ".json";
  };
  write("own");
  REQUIRE(::chown(write("anns").c_str(), 1001, 1001) == 0);
  REQUIRE(::chown(write("nobodys").c_str(), 65534, 65534) == 0);
  REQUIRE(::symlink(write("real").c_str(), (agent::launches_folder() + "/link.json").c_str()) == 0);
  REQUIRE(::mkfifo((agent::launches_folder() + "/pipe.json").c_str(), 0600) == 0);
  std::vector<std::string> ids;
  for (const auto& record : agent::read_records()) {
    ids.push_back(record.id);
    CHECK(record.user == "root");
  }
  std::ranges::sort(ids);
  CHECK(ids == std::vector<std::string>{"own", "real"});
  if (kept)
    ::setenv("XDG_STATE_HOME", kept->c_str(), 1);
  else
    ::unsetenv("XDG_STATE_HOME");
  std::filesystem::remove_all(home);
}

TEST_CASE("a record that named another user's job led to it", "[ctl][launches]") {
  agent::LaunchRecord record{"hosts-x", "/s",  "/", 0, true, {{"a", "", "hosts-x.0-abcdef"}},
                             "a",       "root"};
  auto job = launch_job("hosts-x.0", "running");
  job.user = "bob";
  CHECK_FALSE(part_of_first_daemon(record, 0, {{{job}, {}}, {"a"}}).job);
  job.user = "root";
  CHECK(part_of_first_daemon(record, 0, {{{job}, {}}, {"a"}}).job);
}

TEST_CASE("a launch is one row, whose end is that of all its parts", "[ctl][launches]") {
  auto row =
      row_of(launch({launch_job("hosts-x.0", "failed", 0), launch_job("hosts-x.1", "running")}));
  CHECK((row.id == "hosts-x" && row.state == "running" && row.slots == 4 && !row.exit_code));
  row = row_of(
      launch({launch_job("hosts-x.0", "succeeded", 0), launch_job("hosts-x.1", "failed", 5)}));
  CHECK((row.state == "failed" && row.exit_code == 5));
  row = row_of(
      launch({launch_job("hosts-x.0", "stopped", 143), launch_job("hosts-x.1", "failed", 143)}));
  CHECK(row.state == "stopped");
  row = row_of(
      launch({launch_job("hosts-x.0", "failed", 70), launch_job("hosts-x.1", "succeeded", 0)}));
  CHECK((row.state == "succeeded" && row.exit_code == 0));
  row = row_of(
      launch({launch_job("hosts-x.0", "succeeded", 0), launch_job("hosts-x.1", "succeeded", 0)}));
  CHECK((row.state == "succeeded" && row.exit_code == 0));
}

TEST_CASE("a finished job was stopped, 143, once its cut-off part was stopped", "[ctl][launches]") {
  const auto row = row_of(
      launch({launch_job("hosts-x.0", "succeeded", 0), launch_job("hosts-x.1", "succeeded", 0),
              launch_job("hosts-x.2", "stopped", 143)}));
  CHECK((row.state == "succeeded" && row.exit_code == 0));
  const auto all = row_of(
      launch({launch_job("hosts-x.0", "stopped", 143), launch_job("hosts-x.1", "stopped", 143)}));
  CHECK((all.state == "stopped" && all.exit_code == 143));
}

TEST_CASE("a node that can't be asked is named and counts as running", "[ctl][launches]") {
  const auto row = row_of(launch({launch_job("hosts-x.0", "running"), std::nullopt}, "no route"));
  CHECK((row.state == "running" && row.reason == "not known: b"));
  CHECK(unknown_nodes(launch({std::nullopt, std::nullopt}, "no route")) ==
        std::vector<std::string>{"a", "b"});
  CHECK(row_of(launch({std::nullopt, std::nullopt}, "no route")).state == "unknown");
  CHECK(row_of(launch({std::nullopt, std::nullopt})).state == "gone");  // it was "failed"
  // The other part may go on, and a script would start the job a second time.
  const auto lost = row_of(launch({launch_job("hosts-x.0", "failed", 70), std::nullopt}, "no route"));
  CHECK((lost.state == "unknown" && !lost.exit_code));
  auto needs_both = launch({launch_job("hosts-x.0", "failed", 69), std::nullopt}, "no route");
  CHECK(row_of(needs_both).state == "unknown");
  needs_both.record.min_hosts = 2;
  CHECK((row_of(needs_both).state == "failed" && row_of(needs_both).exit_code == 69));
  const auto ended = row_of(launch({launch_job("hosts-x.0", "failed", 5), std::nullopt}, "no route"));
  CHECK((ended.state == "failed" && ended.exit_code == 5));
  CHECK(launch_json(launch({std::nullopt}, "no route"), {})["parts"][0]["error"] == "no route");
}

TEST_CASE("status --json of a launch said nothing of its workers", "[ctl][launches]") {
  const auto two = launch({launch_job("hosts-x.0", "running"), launch_job("hosts-x.1", "running")});
  const nlohmann::json live{{"workers", {{{"rank", 0}, {"pid", 7}}}}};
  const auto shown = launch_json(two, {{{"live", live}}, nullptr});
  CHECK(shown["parts"][0]["live"]["workers"][0]["pid"] == 7);
  CHECK(shown["parts"][1]["live"].is_null());
}

TEST_CASE("the logs of a rank of the second node were looked for on the first", "[ctl][launches]") {
  auto two = launch({launch_job("hosts-x.0", "running"), launch_job("hosts-x.1", "running")});
  two.parts[0].job->slots = 2;
  two.parts[1].job->slots = 3;
  CHECK(place_of(two, 1)->local_rank == 1);
  CHECK(place_of(two, 2)->part == &two.parts[1]);
  CHECK(place_of(two, 4)->local_rank == 2);
  CHECK_FALSE(place_of(two, 5));
  two.parts[0].job.reset();
  CHECK_FALSE(place_of(two, 4));
}

TEST_CASE("the parts of a launch aren't listed beside it", "[ctl][launches]") {
  const std::vector<LaunchState> launches{launch({launch_job("hosts-x.0", "running")})};
  const auto left = without_parts(
      {launch_job("hosts-x.0", "running"), launch_job("hosts-xy.0", "running")}, launches);
  REQUIRE(left.size() == 1);
  CHECK(left[0].name == "hosts-xy.0");
}

TEST_CASE("a user hid jobs from root's ps by the name of one of root's launches",
          "[ctl][launches]") {
  auto own = launch_job("hosts-x.0", "running");
  auto state = launch({own, std::nullopt}, "no route");
  state.record.user = "root";
  state.record.parts = {{"a", "", own.id}, {"b", "b", ""}};
  auto miner = launch_job("hosts-x.miner", "running");
  auto second = launch_job("hosts-x.1", "running");  // as root's part on b
  miner.user = second.user = "ann";
  own.user = "root";
  auto former = own;
  former.id = "hosts-x.0-former";  // of a try before there was room
  former.state = "stopped";
  const auto left = without_parts({own, miner, second, former}, {state});
  REQUIRE(left.size() == 2);
  CHECK((left[0].id == miner.id && left[1].id == second.id));
}

TEST_CASE("another user's job of that name was taken for root's part", "[ctl][launches]") {
  agent::LaunchRecord record{"hosts-x", "/s", "/", 0, true, {{"a", "", ""}}, "a", "root"};
  auto job = launch_job("hosts-x.0", "running");
  job.user = "ann";
  CHECK_FALSE(part_of_first_daemon(record, 0, {{{job}, {}}, {"a"}}).job);
  job.user = "root";
  CHECK(part_of_first_daemon(record, 0, {{{job}, {}}, {"a"}}).job);
}

TEST_CASE("on other nodes with the same home the first node's part was gone", "[ctl][launches]") {
  agent::LaunchRecord record{"hosts-x", "/run/acc/agent.sock", "/", 0, true, {{"a", "", "hosts-x.0-q"}}, "a"};
  auto job = launch_job("hosts-x.0", "running");
  job.id = "hosts-x.0-q";
  const auto seen = [&](const OwnNode& own) { return part_of_first_daemon(record, 0, own); };
  CHECK(seen({{{job}, {}}, {"a"}}).job.has_value());
  const auto gone = seen({{{}, {}}, {"a"}});
  CHECK((!gone.job && gone.why.empty() && gone.part.node.empty()));
  CHECK(seen({{{}, {}}, {"b", "b.site"}}).part.node == "a");
  CHECK(seen({{{}, "nothing listens there"}, {"b"}}).why == "nothing listens there");
  record.parts[0].host = "localhost";
  CHECK((seen({{{}, {}}, {"b"}}).part.node == "a" && seen({{{}, {}}, {"b"}}).part.host == "a"));
  record.node.clear();  // of an older acc-launch
  CHECK_FALSE(seen({{{}, {}}, {"b"}}).why.empty());
  record.parts[0].host = "a";
  CHECK(seen({{{}, {}}, {"b"}}).part.node == "a");
}

TEST_CASE("a launch is meant by its id", "[ctl][launches]") {
  std::vector<agent::LaunchRecord> records(2);
  records[0].id = "hosts-ab";
  records[1].id = "hosts-abc";
  CHECK(find_record(records, "hosts-ab") == &records[0]);
  CHECK(find_record(records, "hosts-abc") == &records[1]);
  CHECK(find_record(records, "hosts-a") == nullptr);
  CHECK(find_record(records, "") == nullptr);
  CHECK(records_from(records, "hosts-a").size() == 2);
  CHECK(records_from(records, "hosts-abc").size() == 1);
  CHECK(records_from(records, "").empty());
}

TEST_CASE("a beginning of a launch's id was taken for it where another job's id begins so, too",
          "[ctl][launches]") {
  const auto part = launch_job("hosts-x.0", "running");
  const auto other = launch_job("hello", "running");
  const std::vector<LaunchState> launches{launch({part, launch_job("hosts-x.1", "running")})};
  const auto find = [&](std::string_view wanted) {
    return find_meant({part, other}, launches, wanted, "");
  };
  const auto both = find("h");
  REQUIRE(!both);
  CHECK(both.error().code == Errc::bad_usage);
  CHECK(both.error().what == "'h' may mean several jobs: hello-abcdef, hosts-x");
  CHECK(find("he")->job.id == "hello-abcdef");
  REQUIRE(find("ho").has_value());
  CHECK(find("ho")->launch.has_value());  // and not one of its parts
  const auto of_part = find_meant({part, other}, {}, "hosts-x.0-abcdef", "");
  CHECK((!of_part->launch && of_part->job.id == "hosts-x.0-abcdef"));
  CHECK(find_meant({other}, {}, "x", "").error().code == Errc::not_found);
}

TEST_CASE("records are read as they were written, and nonsense is none", "[ctl][launches]") {
  agent::LaunchRecord record{"hosts-x", "/run/acc/agent.sock",
                             "/work",   17,
                             true,      {{"a", "", "hosts-x.0-abcdef"}, {"b", "b:1", ""}},
                             "a",       {},
                             2};
  const auto read = agent::decode_record(agent::encode_record(record));
  REQUIRE(read.has_value());
  CHECK((read->id == record.id && read->socket == record.socket && read->is_detached && read->node == "a"));
  REQUIRE(read->parts.size() == 2);
  CHECK(read->min_hosts == 2);
  CHECK((read->parts[1].node == "b:1" && read->parts[0].job == "hosts-x.0-abcdef"));
  for (const auto* text :
       {"", "{}", "[]", R"({"id": "x", "parts": []})",
        R"({"id": "../x", "parts": [{"host": "a"}]})",
        R"({"id": "x", "parts": [{"node": "b/../c"}]})", R"({"id": "x", "parts": [1]})"})
    CHECK_FALSE(agent::decode_record(text).has_value());
}

}  // namespace acc::ctl
