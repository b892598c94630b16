#include "launcher/program.hpp"

#include "launcher/elf_libraries.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

using namespace acc::launcher;
namespace fs = std::filesystem;

namespace {

/// A folder of its own, gone at the end.
struct Folder {
  fs::path path;
  Folder() {
    char name[] = "/tmp/program-test-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() { fs::remove_all(path); }
  std::string file(const std::string& name, const std::string& text, mode_t mode) const {
    const auto full = path / name;
    fs::create_directories(full.parent_path());
    std::ofstream{full} << text;
    ::chmod(full.c_str(), mode);
    return full;
  }
};

}  // namespace

TEST_CASE("a script's kind is told by its name, its first bytes and its mode",
          "[launcher][program]") {
  const Folder folder;
  CHECK(script_kind(folder.file("run.sh", "#!/bin/sh\n", 0755)) == ScriptKind::executable);
  CHECK(script_kind(folder.file("run", "#!/usr/bin/env python3\n", 0755)) == ScriptKind::python);
  CHECK(script_kind(folder.file("text", "print(1)\n", 0755)) == ScriptKind::python);
  CHECK(script_kind(folder.file("train.sh", "#!/bin/sh\n", 0644)) == ScriptKind::not_executable);
  CHECK(script_kind(folder.file("plain", "#!/usr/bin/env python3\n", 0644)) == ScriptKind::python);
  CHECK(script_kind(folder.path / "nothing") == ScriptKind::missing);
  CHECK(script_kind("/proc/self/exe") == ScriptKind::executable);
}

TEST_CASE("an executable train.py with #!/bin/sh is given to Python, as accelerate and torchrun do",
          "[launcher][program]") {
  const Folder folder;
  CHECK(script_kind(folder.file("train.py", "#!/bin/sh\n", 0755)) == ScriptKind::python);
  CHECK(script_kind(folder.file("train.py", "#!/bin/sh\n", 0644)) == ScriptKind::python);
}

TEST_CASE("the interpreter is the active environment's", "[launcher][program]") {
  const Folder folder;
  const auto in_venv = folder.file("venv/bin/python", "", 0755);
  const auto on_path = folder.file("bin/python3", "", 0755);
  const std::string path = folder.path / "bin";
  CHECK(find_interpreter({{"PATH", path}}) == on_path);
  CHECK(find_interpreter({{"PATH", path}, {"VIRTUAL_ENV", folder.path / "venv"}}) == in_venv);
  CHECK(find_interpreter({{"PATH", path}, {"CONDA_PREFIX", folder.path / "venv"}}) == in_venv);
  CHECK(find_interpreter({{"PATH", path}, {"VIRTUAL_ENV", folder.path / "gone"}}) == on_path);
  CHECK(find_interpreter({{"PATH", path}, {"PYTHON_EXEC", "mypy"}}) == "mypy");
}

TEST_CASE("a program in a virtual environment takes that one's interpreter, activated or not",
          "[launcher][program]") {
  const Folder folder;
  const auto other = folder.file("other/bin/python", "", 0755);
  const auto python = folder.file("venv/bin/python", "", 0755);
  const std::string link = folder.path / "link";
  fs::create_symlink(folder.file("venv/bin/acc-launch", "", 0755), link);
  const Environment environment{{"PATH", folder.path}, {"VIRTUAL_ENV", folder.path / "other"}};
  CHECK(find_interpreter(environment, link) == other);  // a folder named bin is none yet
  folder.file("venv/pyvenv.cfg", "", 0644);
  CHECK(find_interpreter(environment, link) == python);
  CHECK(find_interpreter({{"PYTHON_EXEC", "mypy"}}, link) == "mypy");
  fs::remove(python);
  CHECK(find_interpreter(environment, link) == other);
}

TEST_CASE("the libraries that a program is linked with are read from its file", "[launcher][program]") {
  const auto libraries = linked_libraries("/proc/self/exe");
  CHECK(std::find(libraries.begin(), libraries.end(), "libc.so.6") != libraries.end());
}

TEST_CASE("what is no ELF file, or a broken one, is linked with nothing", "[launcher][program]") {
  const Folder folder;
  CHECK(linked_libraries("/nonexistent").empty());
  CHECK(linked_libraries(folder.file("script", "#!/bin/sh\n", 0755)).empty());
  std::ifstream self{"/proc/self/exe", std::ios::binary};
  std::string bytes(4096, '\0');
  self.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  CHECK(linked_libraries(folder.file("cut", bytes, 0755)).empty());
  std::string wild = bytes;
  for (std::size_t i = 64; i < wild.size(); ++i) wild[i] = static_cast<char>(i * 37);
  CHECK(linked_libraries(folder.file("wild", wild, 0755)).size() < 100);
}

TEST_CASE("a script that came through a pipe was read by the launcher, and the worker ran nothing",
          "[launcher][program]") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  REQUIRE(::write(ends[1], "print(1)\n", 9) == 9);
  ::close(ends[1]);
  const auto path = "/proc/self/fd/" + std::to_string(ends[0]);  // as /dev/stdin
  CHECK(script_kind(path) == ScriptKind::python);
  CHECK_FALSE(is_binary(path));
  char left[16];
  CHECK(::read(ends[0], left, sizeof left) == 9);
  ::close(ends[0]);
}

TEST_CASE("an MPI library is known by the version in its name", "[launcher][program]") {
  CHECK(mpi_library({"libm.so.6", "libmpich.so.12", "libc.so.6"}) == MpiLibrary::mpich);
  CHECK(mpi_library({"libmpi.so.12"}) == MpiLibrary::mpich);
  CHECK(mpi_library({"libmpi.so.40"}) == MpiLibrary::open_mpi);
  CHECK(mpi_library({"libmpiP.so", "libc.so.6"}) == MpiLibrary::none);
}
