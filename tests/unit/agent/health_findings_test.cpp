#include "agent/health_findings.hpp"

#include <catch2/catch.hpp>

#include <optional>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent::health;
using Catch::Matchers::Contains;

namespace {

constexpr double kMega = 1024.0 * 1024.0;

struct HealthCase {
  Reading reading;
  std::optional<double> first;  ///< at the job's start
  bool is_before_round = true;
  bool has_other_nodes = true;
  std::optional<Severity> expected;
};

std::optional<Severity> severity_of(const HealthCase& one) {
  Baseline baseline;
  if (one.first) {
    baseline.push_back(one.reading);
    baseline.back().value = *one.first;
  }
  const auto findings =
      judge({{one.reading.probe, one.reading.subject, ProbeEnd::done, {one.reading}}}, baseline,
            {one.is_before_round, one.has_other_nodes, Millis{5'000}});
  if (findings.empty()) return std::nullopt;
  REQUIRE(findings.size() == 1);
  CHECK(!findings[0].words.empty());
  return findings[0].severity;
}

}  // namespace

TEST_CASE("which figures make a node unfit, which only warn, and which mean nothing",
          "[agent][health]") {
  constexpr auto kWarning = Severity::warning;
  constexpr auto kUnfit = Severity::unfit;
  constexpr auto kNothing = std::nullopt;
  const Reading checkpoints{"disk", "/ckpt", "free_bytes", 10 * kMega, "checkpoints"};
  const std::vector<HealthCase> cases{
      {checkpoints, {}, true, true, kUnfit},
      {checkpoints, {}, false, true, kWarning},
      {{"disk", "/ckpt", "free_bytes", 300 * kMega, "checkpoints"}, {}, true, true, kNothing},
      {{"disk", "/logs", "free_bytes", 0, "logs"}, {}, true, true, kWarning},
      {{"disk", "/nfs", "free_bytes", 0, "shared"}, {}, true, true, kWarning},
      {{"disk", "/ckpt", "is_read_only", 1, "checkpoints"}, {}, true, true, kUnfit},
      {{"disk", "/ckpt", "is_read_only", 0, "checkpoints"}, {}, true, true, kNothing},
      {{"disk", "/ckpt", "free_inodes", 3, "checkpoints"}, {}, true, true, kUnfit},
      {{"disk", "/ckpt", "is_missing", 1, "/"}, {}, true, true, kWarning},
      {{"disk", "/ckpt", "errno", 2, "No such file or directory"}, {}, true, true, kWarning},
      {{"memory", "", "available_bytes", 20 * kMega}, {}, true, true, kUnfit},
      {{"memory", "", "available_bytes", 20 * kMega}, {}, false, true, kWarning},
      {{"memory", "", "available_bytes", 4096 * kMega}, {}, true, true, kNothing},
      {{"shm", "/dev/shm", "free_bytes", kMega}, {}, true, true, kUnfit},
      {{"shm", "/dev/shm", "free_bytes", kMega}, {}, false, true, kWarning},
      {{"cpu", "", "throttle_count", 7}, {}, true, true, kNothing},
      {{"cpu", "", "throttle_count", 7}, 7, false, true, kNothing},
      {{"cpu", "", "throttle_count", 9}, 7, false, true, kWarning},
      {{"name", "node1", "resolves", 1}, {}, true, true, kNothing},
      {{"name", "node1", "resolves", 0, "not known"}, {}, true, true, kWarning},
      {{"net", "eth0", "carrier", 0}, 1, false, true, kUnfit},
      {{"net", "eth0", "carrier", 0}, 1, false, false, kWarning},
      {{"net", "eth0", "carrier", 0}, 0, false, true, kNothing},
      {{"net", "eth0", "carrier", 0}, {}, true, true, kNothing},
      {{"net", "eth0", "carrier", 1}, 1, false, true, kNothing},
      {{"gpu", "", "count", 8}, 8, false, true, kNothing},
      {{"gpu", "", "count", 7}, 8, false, true, kUnfit},
      {{"gpu", "GPU 3", "is_lost", 1, "GPU is lost"}, {}, true, true, kUnfit},
      {{"gpu", "GPU 3", "ecc_uncorrected", 0}, {}, true, true, kNothing},
      {{"gpu", "GPU 3", "ecc_uncorrected", 2}, {}, true, true, kWarning},
      {{"gpu", "GPU 3", "ecc_uncorrected", 2}, 2, false, true, kNothing},
      {{"gpu", "GPU 3", "ecc_uncorrected", 3}, 2, false, true, kUnfit},
      {{"gpu", "GPU 3", "row_remap_failed", 1}, {}, true, true, kUnfit},
      {{"gpu", "GPU 3", "row_remap_pending", 1}, {}, true, true, kUnfit},
      {{"gpu", "GPU 3", "nvlinks_up", 18}, 18, false, true, kNothing},
      {{"gpu", "GPU 3", "nvlinks_up", 17}, 18, false, true, kUnfit},
      {{"gpu", "GPU 3", "nvlinks_up", 0}, {}, true, true, kNothing},
      {{"gpu", "GPU 3", "throttled", 1, "heat"}, {}, false, true, kWarning},
      {{"gpu", "GPU 3", "xid", 79}, {}, false, true, kUnfit},
      {{"gpu", "GPU 3", "xid", 63}, {}, false, true, kWarning},
      {{"gpu", "GPU 3", "xid", 13}, {}, false, true, kNothing},
      {{"command", "", "exit_code", 0}, {}, true, true, kNothing},
      {{"command", "", "exit_code", 3, "ib0: no link"}, {}, true, true, kUnfit},
      {{"later", "", "unknown", 3}, {}, true, true, kNothing},
  };
  for (const auto& one : cases) {
    INFO(one.reading.probe << ' ' << one.reading.subject << ' ' << one.reading.what << ' '
                           << one.reading.value << " first " << one.first.value_or(-1));
    CHECK(severity_of(one) == one.expected);
  }
}

TEST_CASE("a probe that hangs is a finding, only a GPU's makes the node unfit", "[agent][health]") {
  const auto findings = judge({{"disk", "/data", ProbeEnd::hung, {}},
                               {"gpu", "", ProbeEnd::hung, {}},
                               {"net", "", ProbeEnd::crashed, {}}},
                              {}, {true, true, Millis{3'000}});
  REQUIRE(findings.size() == 3);
  CHECK(findings[0].severity == Severity::warning);
  CHECK(findings[0].words == "probe disk /data did not end within 3 s");
  CHECK(findings[1].severity == Severity::unfit);
  CHECK(findings[2].words == "probe net ended without an answer");
  CHECK(unfit_reason(findings) == "probe gpu did not end within 3 s");
}

TEST_CASE("a node without findings is fit", "[agent][health]") {
  CHECK(unfit_reason({}).empty());
  CHECK(unfit_reason({{"cpu", "", Severity::warning, "throttled"}}).empty());
}
