#include "agent/health_prober.hpp"

#include "tests/support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent::health;

namespace {

void put(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream{path} << text;
}

ProbeRun only_run(const std::string& name, const std::string& subject, Millis patience,
                  const std::string& root = "") {
  ProbeRequest request;
  request.probes = {{name, subject, "logs"}};
  request.patience = patience;
  request.setting.root = root;
  const auto runs = run_probes(request);
  REQUIRE(runs.size() == 1);
  return runs[0];
}

}  // namespace

TEST_CASE("requests and runs are read back as they were written", "[agent][health]") {
  ProbeRequest request;
  request.probes = {{"disk", "/a \"b\"", "checkpoints"}, {"command", "true\n", ""}};
  request.patience = Millis{1'234};
  request.setting = {"/root", "lib.so", 77};
  const auto again = decode_request(encode(request));
  REQUIRE(again);
  CHECK(again->probes == request.probes);
  CHECK(again->patience == request.patience);
  CHECK(again->setting.kernel_log_from_us == 77);
  const std::vector<ProbeRun> runs{{"gpu", "", ProbeEnd::hung, {}},
                                   {"disk", "/a", ProbeEnd::done, {{"disk", "/a", "x", 1.5, "t"}}}};
  const auto read = decode_runs(encode(runs));
  REQUIRE(read);
  REQUIRE(read->size() == 2);
  CHECK(read->at(0).end == ProbeEnd::hung);
  CHECK(read->at(1).readings == runs[1].readings);
}

TEST_CASE("any bytes are runs or nothing", "[agent][health]") {
  for (const auto* text : {"", "{", "{}", "[[]]", "[[1,2,3,4]]", "[[\"a\",\"b\",9,[]]]",
                           "[[\"a\",\"b\",0,[[1]]]]", "[\"x\"]", "7"}) {
    const auto runs = decode_runs(text);
    CHECK((!runs || runs->empty()));
    CHECK(!decode_request(text));
  }
}

TEST_CASE("a command's exit code and last line count", "[agent][health]") {
  const auto good = only_run("command", "echo fine", Millis{20'000});
  CHECK(good.end == ProbeEnd::done);
  CHECK(good.readings.at(0).value == 0);
  const auto bad =
      only_run("command", "echo first; echo 'ib0: no link' >&2; exit 3", Millis{20'000});
  CHECK(bad.readings.at(0).value == 3);
  CHECK(bad.readings.at(0).text == "ib0: no link");
  CHECK(only_run("command", "kill -9 $$", Millis{20'000}).readings.at(0).value == 137);
  CHECK(only_run("command", "no-such-program-at-all", Millis{20'000}).readings.at(0).value == 127);
}

TEST_CASE("a probe that hangs is told in time, and killed with what it started",
          "[agent][health]") {
  const auto begin = std::chrono::steady_clock::now();
  const auto hung = only_run("command", "sleep 600; true", Millis{100});
  CHECK(hung.end == ProbeEnd::hung);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds{60});
  // One that hangs isn't waited for: the prober ends, and so do its zombies. Other tests look for
  // zombies of their own.
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
}

TEST_CASE("a command that leaves a process behind has ended all the same", "[agent][health]") {
  // Each check took as long as it may: what is left behind keeps its output open.
  const auto begin = std::chrono::steady_clock::now();
  const auto run = only_run("command", "sleep 600 & echo done; exit 4", Millis{600'000});
  CHECK(run.end == ProbeEnd::done);
  CHECK(run.readings.at(0).value == 4);
  CHECK(run.readings.at(0).text == "done");
  CHECK(only_run("command", "yes & exit 5", Millis{600'000}).readings.at(0).value == 5);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds{300});
}

TEST_CASE("memory, throttling and links are read from /proc and /sys", "[agent][health]") {
  const testing::TestFolder folder;
  const auto& root = folder.path();
  put(root / "proc/meminfo", "MemTotal:  100 kB\nMemAvailable:    20 kB\n");
  put(root / "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n");
  put(root / "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "4\n");
  put(root / "sys/class/net/eth0/carrier", "1\n");
  put(root / "sys/class/net/eth0/device/x", "");
  put(root / "sys/class/net/eth1/carrier", "0\n");
  put(root / "sys/class/net/eth1/device/x", "");
  put(root / "sys/class/net/veth7/carrier", "0\n");
  put(root / "sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  const ProbeSetting setting{root.string(), "", 0};
  CHECK(measure({"memory", "", ""}, setting) ==
        std::vector<Reading>{{"memory", "", "available_bytes", 20'480, ""}});
  CHECK(measure({"cpu", "", ""}, setting) ==
        std::vector<Reading>{{"cpu", "", "throttle_count", 7, ""}});
  CHECK(measure({"net", "", ""}, setting) ==
        std::vector<Reading>{{"net", "eth0", "carrier", 1, ""},
                             {"net", "eth1", "carrier", 0, ""},
                             {"net", "mlx5_0 port 1", "carrier", 1, ""}});
}

TEST_CASE("a folder that isn't there yet is judged by its parent's disk", "[agent][health]") {
  const testing::TestFolder folder;
  const auto readings = measure({"disk", (folder / "a/b/c").string(), "logs"}, {});
  REQUIRE(!readings.empty());
  CHECK(readings[0].what == "free_bytes");
  CHECK(readings[0].subject == (folder / "a/b/c").string());
}

TEST_CASE("Xids are read from the kernel's log, from a time on", "[agent][health]") {
  const std::string log =
      "6,100,1000,-;NVRM: Xid (PCI:0000:3b:00): 13, pid=1, Graphics Exception\n"
      "6,101,2000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
      "6,102,3000,-;usb 1-1: new device\n"
      "6,103,x,-;NVRM: Xid (PCI:0000:3b:00): 79\n"
      "6,104,4000,-;NVRM: Xid (PCI:0000:3c:00): 48";
  const auto xids = xids_in(log, 1500);
  REQUIRE(xids.size() == 2);
  CHECK(xids[0].subject == "GPU at 0000:3b:00");
  CHECK(xids[0].value == 79);
  CHECK(xids[0].text == "pid='<unknown>', GPU has fallen off the bus.");
  CHECK(xids[1].value == 48);
  CHECK(xids_in("", 0).empty());
}

TEST_CASE("without NVML there are no GPUs to check", "[agent][health]") {
  CHECK(measure_gpus("/no/such/library.so").empty());
}

TEST_CASE("only a process of that name is a prober", "[agent][health]") {
  char launcher[] = "acc-launch";
  char flag[] = "--version";
  char* argv[] = {launcher, flag, nullptr};
  CHECK(!prober_main(2, argv));
}
