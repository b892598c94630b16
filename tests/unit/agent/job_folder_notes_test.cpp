#include "agent/job_folder_notes.hpp"

#include "agent/small_file.hpp"
#include "tests/support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

using namespace acc::agent;
namespace fs = std::filesystem;

namespace {

class JobFolder {
 public:
  JobFolder() { ::setenv(kJobFolderVariable, folder_.path().c_str(), 1); }
  ~JobFolder() { ::unsetenv(kJobFolderVariable); }
  [[nodiscard]] std::string text(const char* name) const {
    return read_small_file((folder_ / name).string());
  }
  [[nodiscard]] bool has(const char* name) const { return fs::exists(folder_ / name); }
  [[nodiscard]] fs::path path(const char* name) const { return folder_ / name; }

 private:
  acc::testing::TestFolder folder_;
};

}  // namespace

TEST_CASE("a guardian notes its start, and its exit code at its end", "[agent]") {
  const JobFolder folder;
  const JobFolderNotes notes;
  CHECK(folder.has("started"));
  CHECK_FALSE(folder.has("exit.json"));
  notes.sync();
  notes.ended(143);
  CHECK(folder.text("exit.json").starts_with("{\"exit_code\": 143, \"time_ms\": 1"));
  CHECK_FALSE(folder.has("exit.json.new"));
}

TEST_CASE("a guardian notes that its job was stopped", "[agent]") {
  const JobFolder folder;
  const JobFolderNotes notes;
  notes.ended(143, true);
  CHECK(folder.text("exit.json").ends_with(", \"stopped\": true}\n"));
}

TEST_CASE("a guardian notes why there was no worker, whatever bytes the name has", "[agent]") {
  const JobFolder folder;
  const JobFolderNotes notes;
  notes.ended(127, false, "cannot start 'a\"b\xff': No such file or directory");
  CHECK(folder.text("exit.json")
            .ends_with(R"(, "not_started": "cannot start 'a\"b\u00ff': No such file or directory"})"
                       "\n"));
}

TEST_CASE("an exit code has its place also on a disk that is full by then", "[agent]") {
  const JobFolder folder;
  const JobFolderNotes notes;
  fs::create_directory(folder.path("exit.json.new"));  // no new file can be written
  notes.ended(3);
  CHECK(folder.text("exit.json").starts_with("{\"exit_code\": 3, "));
  CHECK_FALSE(folder.has("started"));
}

TEST_CASE("notes are not written through a link, nor without a folder", "[agent]") {
  const JobFolder folder;
  fs::create_symlink(folder.path("target"), folder.path("started"));
  const JobFolderNotes notes;
  CHECK_FALSE(folder.has("target"));
  ::unsetenv(kJobFolderVariable);
  const JobFolderNotes none;
  none.sync();
  none.ended(1);
  CHECK_FALSE(folder.has("exit.json"));
}

TEST_CASE("a run's logs are named after the job, else after the daemon's id of it", "[agent]") {
  const char* const folder = "/var/lib/acc/jobs/train-k3jd82/user";
  CHECK(run_id_of("none", folder) == "train-k3jd82");
  CHECK(run_id_of("my-job", folder) == "my-job");
  // --standalone, and the second job of a machine, whose port 29500 is taken.
  const std::string made_up = "39ba0dec-b767-4bee-9e03-fca6e6bcdcb6";
  CHECK(run_id_of(made_up, folder) == "train-k3jd82");
  CHECK(run_id_of(made_up, nullptr) == made_up);
  CHECK(daemon_id_of(folder) == "train-k3jd82");
  CHECK(daemon_id_of(nullptr).empty());
  CHECK(run_id_of("none", nullptr) == "none");
  for (const auto* wrong : {"", "relative/user", "/", "/user"})
    CHECK(run_id_of("none", wrong) == "none");
}
