#include "runtime/nccl/library.hpp"

#include "runtime/nccl/cuda_library.hpp"
#include "runtime/nccl/dynamic_library.hpp"

#include <catch2/catch.hpp>

#include <map>

#include "fakes.hpp"

using namespace acc::runtime;
using acc::testing::Fakes;
using Catch::Matchers::Contains;

namespace {

LibrarySearch search_for(std::vector<std::string> names) {
  return {.what = "NCCL",
          .names = std::move(names),
          .variable = "ACC_TEST_LIBRARY",
          .wheels = {"nvidia/nccl/lib"},
          .remedy = "install it"};
}

std::string complaint_of(const LibrarySearch& search) {
  try {
    (void)DynamicLibrary::open(search);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

SCENARIO("where a library is looked for, in order", "[runtime][nccl]") {
  const std::map<std::string, std::string> variables{{"CUDA_HOME", "/opt/cuda"},
                                                     {"VIRTUAL_ENV", "/home/u/venv"}};
  const auto paths = candidates(
      search_for({"libnccl.so.2"}),
      [&](const char* name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional{found->second};
      },
      [](const std::string& pattern) { return std::vector<std::string>{pattern}; });
  CHECK(paths == std::vector<std::string>{
                     "libnccl.so.2",
                     "/opt/cuda/lib64/libnccl.so.2",
                     "/opt/cuda/lib/libnccl.so.2",
                     "/usr/local/cuda*/lib64/libnccl.so.2",
                     "/usr/local/cuda*/lib/libnccl.so.2",
                     "/home/u/venv/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2",
                 });
}

SCENARIO("a library that isn't there is one line with the remedy", "[runtime][nccl]") {
  ::unsetenv("ACC_TEST_LIBRARY");
  CHECK(complaint_of(search_for({"libacc-nowhere.so.9"})) ==
        "NCCL: libacc-nowhere.so.9 was not found: install it");
}

SCENARIO("the variable names the file, and no other is taken", "[runtime][nccl]") {
  ::setenv("ACC_TEST_LIBRARY", "/nowhere/libnccl.so.2", 1);
  const auto complaint = complaint_of(search_for({"libc.so.6"}));  // that would be found
  CHECK_THAT(complaint, Contains("NCCL: ACC_TEST_LIBRARY names '/nowhere/libnccl.so.2', which "
                                 "can't be loaded"));
  CHECK(complaint.find('\n') == std::string::npos);
  ::unsetenv("ACC_TEST_LIBRARY");
}

SCENARIO("what the process has loaded already is taken", "[runtime][nccl]") {
  ::unsetenv("ACC_TEST_LIBRARY");
  const auto library = DynamicLibrary::open(search_for({"libc.so.6"}));
  CHECK(library.path() == "libc.so.6");
  CHECK(library.symbol("getpid") != nullptr);
  CHECK(library.symbol("acc_no_such_symbol") == nullptr);
}

SCENARIO("versions of NCCL are told as people write them", "[runtime][nccl]") {
  CHECK(nccl::describe_version(22809) == "2.28.9");
  CHECK(nccl::describe_version(21400) == "2.14.0");
  CHECK(nccl::describe_version(2708) == "2.7.8");
}

SCENARIO("no driver, no device: a line that says what to do", "[runtime][nccl]") {
  GIVEN("a runtime library without a driver") {
    const Fakes fakes{"", "no_driver"};
    CHECK(why_no_nccl() ==
          "CUDA: no driver on this machine (cudaGetDeviceCount: error 35): install the NVIDIA "
          "driver, or use the cpu backend (ACC_BACKEND=cpu)");
    CHECK(acc::cuda::why_unavailable() == why_no_nccl());
    CHECK_FALSE(acc::cuda::available());
    CHECK(acc::cuda::device_count() == 0);
  }
  GIVEN("a driver without a device") {
    const Fakes fakes{"", "no_device"};
    CHECK_THAT(why_no_nccl(),
               Contains("the driver shows no device") && Contains("CUDA_VISIBLE_DEVICES"));
  }
  GIVEN("all that is needed") {
    const Fakes fakes;
    CHECK(why_no_nccl().empty());
    CHECK(acc::cuda::available());
  }
  GIVEN("an NCCL from long ago") {
    const Fakes fakes{"version=21305"};
    CHECK_THAT(why_no_nccl(), Contains("is version 2.13.5, 2.14 or later is needed"));
  }
}

SCENARIO("facts of the devices", "[runtime][nccl]") {
  const Fakes fakes{"", "devices=3"};
  const auto devices = acc::cuda::devices();
  REQUIRE(devices.size() == 3);
  CHECK(devices[2].index == 2);
  CHECK(devices[2].name == "Fake device 2");
  CHECK(devices[2].pci_bus_id == "0000:03:00.0");
  CHECK(devices[2].major == 9);
  CHECK(devices[2].total_bytes > devices[2].free_bytes);
  CHECK(acc::cuda::driver_version() == 13000);
  CHECK(acc::cuda::runtime_version() == 13000);
  CHECK(acc::cuda::nccl_version() == 22809);
}

SCENARIO("memory goes to the device and back", "[runtime][nccl]") {
  const Fakes fakes;
  const std::vector<float> values{1, 2, 3, 4, 5};
  acc::cuda::DeviceBuffer device{values.size() * sizeof(float)};
  acc::cuda::copy(device.data(), values.data(), device.bytes());
  acc::cuda::PinnedBuffer pinned{device.bytes()};
  acc::cuda::copy_async(pinned.data(), device.data(), device.bytes(), nullptr);
  acc::cuda::synchronize(nullptr);
  CHECK(std::vector<float>(pinned.as<float>().begin(), pinned.as<float>().end()) == values);
  acc::cuda::fill_async(device.data(), 0, device.bytes(), nullptr);
  acc::cuda::synchronize();
  std::vector<float> read(values.size(), 9.0F);
  acc::cuda::copy(read.data(), device.data(), device.bytes());
  CHECK(read == std::vector<float>(values.size(), 0.0F));
  GIVEN("a buffer that is moved") {
    auto* const at = device.data();
    auto other = std::move(device);
    CHECK(other.data() == at);
    CHECK(device.data() == nullptr);  // NOLINT(bugprone-use-after-move): that is what is tested
  }
}
