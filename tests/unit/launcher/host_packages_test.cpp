#include "launcher/host_probes.hpp"
#include "tests/support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

using namespace acc::launcher;
namespace fs = std::filesystem;

namespace {

void write(const fs::path& file, std::string_view text) {
  fs::create_directories(file.parent_path());
  std::ofstream{file} << text;
}

/// Set for as long as this lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_{name} {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old_)
      ::setenv(name_, old_->c_str(), 1);
    else
      ::unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

/// An installation of Python 3.11 without packages. Its interpreter is some ELF file.
struct Prefix {
  acc::testing::TestFolder folder;
  fs::path site = folder / "usr/lib/python3.11/site-packages";
  std::string python = folder / "usr/bin/python3.11";
  Variable home{"HOME", folder / "home"};
  Variable base{"PYTHONUSERBASE", ""};
  Variable none{"PYTHONNOUSERSITE", ""};

  Prefix() {
    fs::create_directories(site);
    fs::create_directories(folder / "usr/bin");
    fs::copy_file(fs::canonical("/bin/sh"), python);
  }
};

}  // namespace

TEST_CASE("DeepSpeed of pip install --user was not found, and the job refused", "[launcher]") {
  const Prefix prefix;
  const auto user = prefix.folder / "home/.local/lib/python3.11/site-packages";
  write(user / "deepspeed/__init__.py", "");
  fs::create_directories(user / "deepspeed-0.15.1.dist-info");
  CHECK(installed_version(prefix.python, "deepspeed") == "0.15.1");
  CHECK(has_module(prefix.python, "deepspeed"));
  {
    const Variable off{"PYTHONNOUSERSITE", "1"};
    CHECK_FALSE(has_module(prefix.python, "deepspeed"));
  }
  {
    const Variable elsewhere{"PYTHONUSERBASE", prefix.folder / "other"};
    CHECK_FALSE(has_module(prefix.python, "deepspeed"));
  }
  // Of another version.
  write(prefix.folder / "home/.local/lib/python3.12/site-packages/torchao/__init__.py", "");
  CHECK_FALSE(has_module(prefix.python, "torchao"));
  // A virtual environment, which has none of it unless it was made so.
  fs::create_directories(prefix.folder / "venv/bin");
  const std::string python = prefix.folder / "venv/bin/python";
  fs::create_symlink(prefix.python, python);
  write(prefix.folder / "venv/pyvenv.cfg",
        "home = /usr/bin\ninclude-system-site-packages = false\n");
  write(prefix.site / "torchao/__init__.py", "");
  for (const auto* module : {"deepspeed", "torchao"}) CHECK_FALSE(has_module(python, module));
  write(prefix.folder / "venv/pyvenv.cfg", "include-system-site-packages = true\n");
  for (const auto* module : {"deepspeed", "torchao"}) CHECK(has_module(python, module));
}

TEST_CASE("an editable DeepSpeed was not found, and the job refused", "[launcher]") {
  const Prefix prefix;
  const auto source = prefix.folder / "src/DeepSpeed";
  write(source / "deepspeed/__init__.py", "");
  fs::create_directories(prefix.site / "deepspeed-0.15.1.dist-info");
  CHECK_FALSE(has_module(prefix.python, "deepspeed"));
  SECTION("by a path in a .pth") {
    write(prefix.site / "__editable__.deepspeed-0.15.1.pth",
          "# a comment\n\n" + source.string() + "\n");
  }
  SECTION("by a path from the folder of the .pth") {
    write(prefix.site / "easy-install.pth", "../../../../src/DeepSpeed\n");
  }
  SECTION("by a finder that the .pth imports") {
    const std::string finder = "__editable___deepspeed_0_15_1_finder";
    write(prefix.site / "__editable__.deepspeed-0.15.1.pth",
          "import " + finder + "; " + finder + ".install()\n");
    write(prefix.site / (finder + ".py"),
          "from __future__ import annotations\nMAPPING: dict[str, str] = {'csrc': '/src/csrc', "
          "'deepspeed': '" +
              (source / "deepspeed").string() + "'}\n");
  }
  CHECK(has_module(prefix.python, "deepspeed"));
  CHECK(installed_version(prefix.python, "deepspeed") == "0.15.1");
  CHECK_FALSE(has_module(prefix.python, "csrc"));
}

TEST_CASE("the packages of a Python behind a shim of pyenv's can't be seen", "[launcher]") {
  const Prefix prefix;
  CHECK(shows_packages(prefix.python));
  const std::string shim = prefix.folder / "shims/python3";
  write(shim, "#!/usr/bin/env bash\nexec pyenv exec \"$0\" \"$@\"\n");
  fs::permissions(shim, fs::perms::owner_all);
  CHECK_FALSE(shows_packages(shim));
  fs::remove_all(prefix.folder / "usr/lib");
  CHECK_FALSE(shows_packages(prefix.python));
  CHECK(shows_packages(prefix.folder / "no/such/python"));  // refused as before
}

TEST_CASE("a file of a wheel is found in the packages of the interpreter that has it",
          "[launcher]") {
  const Prefix prefix;
  const auto nccl = prefix.site / "nvidia/nccl/lib/libnccl.so.2";
  const auto look = [&] {
    return file_in_packages(prefix.python,
                            {"nvidia/cu13/lib/x.so", "nvidia/nccl/lib/libnccl.so.2"});
  };
  CHECK(look().empty());
  write(nccl, "");
  CHECK(look() == nccl.string());
  CHECK(file_in_packages("/nonexistent/python", {"nvidia/nccl/lib/libnccl.so.2"}).empty());
}
