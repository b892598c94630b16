#include "agent/daemon/job_group.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

using namespace acc;
using namespace acc::agent::daemon;
namespace fs = std::filesystem;

TEST_CASE("a job's control group has few groups below it, by files that stay ours",
          "[daemon][job_group]") {
  char name[] = "/tmp/acc-job-group-XXXXXX";
  REQUIRE(::mkdtemp(name) != nullptr);
  const fs::path jobs{name};
  fs::create_directory(jobs / "t-1");
  const auto path_of = [&](const char* file) { return jobs / "t-1" / file; };
  for (const auto* file : {"cgroup.max.descendants", "cgroup.max.depth", "cgroup.procs"})
    std::ofstream{path_of(file)};
  const uid_t user = ::geteuid() == 0 ? 1001 : ::geteuid();
  CHECK(make_job_group(jobs, "t-1", user, ::getegid()));
  const auto text_of = [&](const char* file) {
    std::ifstream in{path_of(file)};
    std::string text;
    in >> text;
    return text;
  };
  CHECK(text_of("cgroup.max.descendants") == "1000");
  CHECK(text_of("cgroup.max.depth") == "16");
  const auto owner_of = [&](const char* file) {
    struct stat info {};
    REQUIRE(::stat(path_of(file).c_str(), &info) == 0);
    return info.st_uid;
  };
  CHECK(owner_of("cgroup.max.descendants") == ::geteuid());
  CHECK(owner_of("cgroup.max.depth") == ::geteuid());
  CHECK(owner_of("cgroup.procs") == user);
  CHECK(make_job_group(jobs, "t-2", user, ::getegid()));  // cgroup v1: no such files
  fs::remove_all(jobs);
}

TEST_CASE("groups of a job whose last process still ended were left for ever",
          "[daemon][job_group]") {
  char name[] = "/tmp/acc-job-group-XXXXXX";
  REQUIRE(::mkdtemp(name) != nullptr);
  const fs::path jobs{name};
  CHECK(remove_job_group(jobs, "t-1"));  // gone already
  fs::create_directories(jobs / "t-1" / "a" / "b");
  fs::create_directories(jobs / "t-1" / "c");
  std::ofstream{jobs / "t-1" / "c" / "a member"};  // like one, it keeps the folder
  CHECK_FALSE(drop_job_group(jobs, "t-1"));
  CHECK_FALSE(remove_job_group(jobs, "t-1"));
  CHECK_FALSE(fs::exists(jobs / "t-1" / "a"));
  fs::remove(jobs / "t-1" / "c" / "a member");
  CHECK(remove_job_group(jobs, "t-1"));
  CHECK_FALSE(fs::exists(jobs / "t-1"));
  fs::remove_all(jobs);
}
