#include "agent/evidence/stacks_memory.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

using namespace acc;
using namespace acc::agent::evidence;

namespace {

StacksMemory ours(const UniqueFd& file) {
  return open_stacks_memory(::getpid(), static_cast<std::uint32_t>(file.get()));
}

std::string path_of(const UniqueFd& file) {
  std::array<char, 256> path{};
  const auto link = "/proc/self/fd/" + std::to_string(file.get());
  const auto n = ::readlink(link.c_str(), path.data(), path.size());
  return {path.data(), static_cast<std::size_t>(n > 0 ? n : 0)};
}

}  // namespace

TEST_CASE("memory for Python stacks is found by the descriptor of its process",
          "[agent][evidence]") {
  const UniqueFd memory{::memfd_create("acc-stacks", MFD_CLOEXEC)};
  const auto found = ours(memory);
  REQUIRE(found.file);
  REQUIRE(::pwrite(found.file.get(), "x", 1, 0) == 1);
  char byte = 0;
  CHECK(::pread(memory.get(), &byte, 1, 0) == 1);
  CHECK(byte == 'x');
}

TEST_CASE("a descriptor of something else is no memory for Python stacks", "[agent][evidence]") {
  const UniqueFd other{::memfd_create("mine", MFD_CLOEXEC)};
  CHECK(ours(other).is_other_file);
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reading{ends[0]};
  const UniqueFd writing{ends[1]};
  CHECK(ours(reading).is_other_file);
  const auto gone = open_stacks_memory(::getpid(), 999'999);
  CHECK_FALSE(gone.file);
  CHECK_FALSE(gone.is_other_file);
}

TEST_CASE("an agent without descriptors took a worker's memory for stacks for another file",
          "[agent][evidence]") {
  const UniqueFd memory{::memfd_create("acc-stacks", MFD_CLOEXEC)};
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const UniqueFd next{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  for (const rlim_t free : {0U, 1U, 2U}) {
    const rlimit few{static_cast<rlim_t>(next.get()) + 1 + free, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    const auto found = ours(memory);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK_FALSE(found.is_other_file);
    CHECK_FALSE(found.file);
    CHECK(found.error == EMFILE);
  }
  CHECK(ours(memory).error == 0);
}

TEST_CASE("the stacks of a hostile worker truncated a file that it named", "[agent][evidence]") {
  std::string folder = "/tmp/acc-stacks-memory-XXXXXX";
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  std::ofstream{folder + "/memfd:acc-stacks"} << "precious";
  // In a mount tree of its own the file's path is that of the memory, as a worker makes it in a
  // user namespace.
  constexpr unsigned kClone = 1;  // OPEN_TREE_CLONE
  const UniqueFd tree{
      static_cast<int>(::syscall(SYS_open_tree, AT_FDCWD, folder.c_str(), kClone | O_CLOEXEC))};
  if (tree) {
    const UniqueFd planted{::openat(tree.get(), "memfd:acc-stacks", O_RDONLY | O_CLOEXEC)};
    REQUIRE(planted);
    REQUIRE(path_of(planted) == "/memfd:acc-stacks");
    const auto found = ours(planted);
    CHECK_FALSE(found.file);
    CHECK(found.is_other_file);
  } else {
    WARN("SKIPPED: no right to make a mount tree here");
  }
  std::filesystem::remove_all(folder);
}
