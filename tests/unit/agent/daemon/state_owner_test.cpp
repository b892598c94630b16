#include "agent/daemon/state_owner.hpp"

#include "tests/support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent::daemon;
using Catch::Contains;

namespace {

const std::string kIdOfA(32, 'a');
const std::string kIdOfB(32, 'b');

StoredJob job_in(Phase phase, const std::string& id) {
  StoredJob job;
  job.id = id;
  job.life.phase = phase;
  return job;
}

}  // namespace

TEST_CASE("a machine is known by its id, and by its name where one has none", "[daemon]") {
  CHECK(are_different({kIdOfA, "a"}, {kIdOfB, "b"}));
  CHECK(are_different({kIdOfA, "a"}, {kIdOfB, "a"}));
  CHECK_FALSE(are_different({kIdOfA, "a"}, {kIdOfA, "renamed"}));
  CHECK_FALSE(are_different({kIdOfA, "a"}, {"", "a"}));
  CHECK(are_different({kIdOfA, "a"}, {"", "b"}));
  CHECK(are_different({"", "a"}, {"", "b"}));
}

TEST_CASE("a container that is made anew keeps its jobs", "[daemon]") {
  CHECK_FALSE(are_different({"", "4fb22c09a6f1", "boot-1"}, {"", "77ad01c2be60", "boot-1"}));
  CHECK(are_different({"", "4fb22c09a6f1", "boot-1"}, {"", "77ad01c2be60", "boot-2"}));
  CHECK_FALSE(are_different({"", "a", "boot-1"}, {"", "a", "boot-2"}));
  CHECK_FALSE(are_different({kIdOfA, "a", "boot-1"}, {kIdOfB, "b", "boot-1"}));
  CHECK(are_different({kIdOfA, "a", "boot-1"}, {kIdOfB, "b", "boot-2"}));
}

TEST_CASE("an /etc/machine-id without an id counts as none", "[daemon]") {
  CHECK(machine_id_in(kIdOfA + "\n") == kIdOfA);
  for (const std::string text :
       {"", "uninitialized\n", "abc\n", "00000000000000000000000000000000\n"})
    CHECK(machine_id_in(text).empty());
}

TEST_CASE("a folder's machine is read as it was written, and nonsense is none", "[daemon]") {
  const MachineIdentity machine{kIdOfA, "a", "boot-1"};
  CHECK(decode_machine(encode_machine(machine)) == machine);
  CHECK(decode_machine(encode_machine({"", "a"})) == MachineIdentity{"", "a"});
  for (const std::string text : {"", "{", "[]", "{}", R"({"host": 1})"})
    CHECK_FALSE(decode_machine(text));
}

TEST_CASE("a daemon on another node took the jobs of a shared home for dead and started them twice",
          "[daemon]") {
  const acc::testing::TestFolder place;
  auto folder = StateFolder::open((place / "state").string());
  REQUIRE(folder.has_value());
  const auto claim = [&](const MachineIdentity& machine, const std::vector<StoredJob>& jobs) {
    return claim_state_folder(*folder, machine, jobs, (place / "jobs.d").string());
  };
  const auto note = [&] { return decode_machine(folder->read_note(kMachineNote).value()); };
  const MachineIdentity a{kIdOfA, "a"};
  const MachineIdentity b{kIdOfB, "b"};
  REQUIRE(claim(a, {job_in(Phase::running, "of-older-daemon")}).has_value());
  CHECK(note() == a);

  for (const auto phase : {Phase::running, Phase::queued, Phase::delayed}) {
    const auto refused = claim(b, {job_in(Phase::ended, "over-1"), job_in(phase, "srv-1")});
    REQUIRE(refused.has_error());
    CHECK_THAT(refused.error().what, Contains("another machine, a, which may run srv-1:"));
    CHECK_THAT(refused.error().what,
               Contains("remove '" + (place / "state").string() + "/machine'"));
    CHECK(note() == a);
  }
  CHECK(claim({kIdOfA, "renamed"}, {job_in(Phase::running, "srv-1")}).has_value());
  CHECK(note()->host == "renamed");
  CHECK(claim(b, {job_in(Phase::ended, "over-1")}).has_value());
  CHECK(note() == b);
}

TEST_CASE("a daemon on another node started the jobs of jobs.d in a shared home anew", "[daemon]") {
  auto job = job_in(Phase::ended, "serve-1");
  job.job_file = "serve";
  CHECK(jobs_kept_there({job}, {"serve"}) == std::vector<JobId>{"serve-1"});
  CHECK(jobs_kept_there({job}, {"other"}).empty());
}

TEST_CASE("a state folder was taken over as the job files that start its jobs couldn't be read",
          "[daemon]") {
  const acc::testing::TestFolder place;
  const auto job_files = (place / "jobs.d").string();
  auto folder = StateFolder::open((place / "state").string());
  REQUIRE(folder.has_value());
  auto job = job_in(Phase::ended, "serve-1");
  job.job_file = "serve";
  const MachineIdentity a{kIdOfA, "a"};
  REQUIRE(claim_state_folder(*folder, a, {job}, job_files).has_value());
  std::string why;
  SECTION("none of them") {
    std::ofstream{job_files} << "no folder";
    why = "read the job files of '" + job_files + "': Not a directory";
  }
  SECTION("that one, which is refused until it is mended") {
    std::filesystem::create_directory(job_files);
    std::filesystem::create_symlink("elsewhere.yaml", job_files + "/serve.yaml");
    why = "another machine, a, which may run serve-1:";
  }
  const auto claimed = claim_state_folder(*folder, {kIdOfB, "b"}, {job}, job_files);
  REQUIRE(claimed.has_error());
  CHECK_THAT(claimed.error().what, Contains(why));
  CHECK(decode_machine(folder->read_note(kMachineNote).value()) == a);
}
