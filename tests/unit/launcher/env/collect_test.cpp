#include "launcher/env/collect.hpp"

#include "launcher/host_probes.hpp"
#include "tests/support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace acc::env {

TEST_CASE("names and versions are taken out of the system's files", "[env]") {
  CHECK(os_name("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n") ==
        "Debian GNU/Linux 12 (bookworm)");
  CHECK(os_name("") == "");
  CHECK(cpu_model("processor\t: 0\nmodel name\t: Fast CPU: 3 GHz\n") == "Fast CPU: 3 GHz");
  CHECK(cpu_model("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n") ==
        "Arm Neoverse V2 (implementer 0x41, part 0xd4f)");
  CHECK(cpu_model("CPU implementer\t: 0x99\nCPU part\t: 0x1\n") == "implementer 0x99, part 0x1");
  CHECK(cpu_model("CPU implementer\t: 0x41\n") == "");
  CHECK(nvcc_version("Cuda compilation tools, release 12.4, V12.4.131\nBuild x") == "12.4.131");
  CHECK(nvcc_version("no") == "");
}

TEST_CASE("Debian's python3-torch, which has no dist-info, was there without a version", "[env]") {
  const acc::testing::TestFolder prefix;
  const auto packages = prefix / "lib/python3.11/dist-packages";
  const auto write = [](const std::filesystem::path& file, std::string_view text) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream{file} << text;
  };
  const auto python = (prefix / "bin/python3").string();
  write(python, "#!/bin/sh\n");
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  const auto version = [&](const char* package) {
    return launcher::installed_version(python, package);
  };
  write(packages / "torch/__init__.py", "raise 'not run'\n");
  CHECK(version("torch") == "0");
  std::filesystem::create_directories(packages / "torch-1.13.0a0+gitunknown.egg-info");
  CHECK(version("torch") == "1.13.0a0+gitunknown");
  write(packages / "torch/version.py", "debug = False\n__version__: str = '1.13.0a0'\n");
  CHECK(version("torch") == "1.13.0a0");
  write(packages / "torch-2.4.0.dist-info/METADATA", "");
  CHECK(version("torch") == "2.4.0");

  write(packages / "numpy/__init__.py", "");
  write(packages / "numpy/version.py", "from ._version import get\n__version__ = get()\n");
  write(packages / "numpy-1.24.2-py3.11.egg-info/PKG-INFO", "");
  CHECK(version("numpy") == "1.24.2");
  CHECK(version("nothing").empty());
}

TEST_CASE("NCCL of pip, which has no module of its own, was never listed", "[env]") {
  const acc::testing::TestFolder prefix;
  const auto packages = prefix / "lib/python3.11/site-packages";
  std::filesystem::create_directories(packages / "nvidia/nccl");
  std::filesystem::create_directories(packages / "nvidia_nccl_cu12-2.20.5.dist-info");
  std::filesystem::create_directories(prefix / "bin");
  const auto python = (prefix / "bin/python3").string();
  std::filesystem::create_symlink("/bin/sh", python);
  const auto sections =
      collect_facts({{"PATH", "/nonexistent"}, {"PYTHON_EXEC", python}}, "/nonexistent.yaml");
  const auto section = std::ranges::find(sections, "Python", &Section::title);
  REQUIRE(section != sections.end());
  const auto fact = std::ranges::find(section->facts, "nvidia_nccl_cu12", &Fact::name);
  REQUIRE(fact != section->facts.end());
  CHECK(fact->value == "2.20.5");
  CHECK(std::ranges::find(section->facts, "nvidia_nccl_cu13", &Fact::name) == section->facts.end());
}

TEST_CASE("a machine without Python, config and GPU is described all the same", "[env]") {
  const launcher::Environment bare{
      {"PATH", "/nonexistent"}, {"SLURM_JOB_ID", "7"}, {"NCCL_TOKEN", "x"}};
  const auto sections = collect_facts(bare, "/nonexistent.yaml");
  const auto value = [&](std::string_view title, std::string_view name) {
    const auto section = std::ranges::find(sections, title, &Section::title);
    REQUIRE(section != sections.end());
    const auto fact = std::ranges::find(section->facts, name, &Fact::name);
    REQUIRE(fact != section->facts.end());
    return fact->value;
  };
  CHECK(value("config", "file") == "/nonexistent.yaml (not there)");
  const auto folder = collect_facts(bare, "/tmp");
  const auto config = std::ranges::find(folder, std::string_view{"config"}, &Section::title);
  REQUIRE(config != folder.end());
  CHECK(config->facts.front().value == "/tmp (can't be read)");
  CHECK(value("Python", "interpreter") == "");
  CHECK(value("variables", "SLURM_JOB_ID") == "7");
  CHECK(value("variables", "NCCL_TOKEN") == "(set, not shown)");
  CHECK(!value("hardware", "cores").empty());
  CHECK(!value("network", "lo").empty());
}

}  // namespace acc::env
