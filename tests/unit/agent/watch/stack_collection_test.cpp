#include "agent/watch/stack_collection.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using acc::agent::stack_files;
using Files = std::vector<std::string>;

TEST_CASE("stacks lie with the logs, and beside them where the disk of the logs is full",
          "[agent][watch]") {
  CHECK(stack_files("/logs/run/attempt_2", "/scratch", "j7", 3) ==
        Files{"/logs/run/attempt_2/stacks-3.txt", "/scratch/acc-j7-stacks-3.txt",
              "/var/tmp/acc-j7-stacks-3.txt", "/dev/shm/acc-j7-stacks-3.txt"});
}

TEST_CASE("without logs, stacks lie in a temporary folder, each tried once", "[agent][watch]") {
  const Files usual{"/tmp/acc-j7-stacks-1.txt", "/var/tmp/acc-j7-stacks-1.txt",
                    "/dev/shm/acc-j7-stacks-1.txt"};
  CHECK(stack_files("", "", "j7", 1) == usual);
  CHECK(stack_files("", "not/absolute", "j7", 1) == usual);
  CHECK(stack_files("", "/var/tmp", "j7", 1) == Files{usual.begin() + 1, usual.end()});
}
