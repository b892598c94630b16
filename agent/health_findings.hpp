#pragma once

#include "common/duration.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What probes of a node's health measured, and what follows from it (pure).
namespace acc::agent::health {

/// One figure of a probe: {"disk", "/data/run", "free_bytes", 1e9}. A probe knows no limits.
struct Reading {
  std::string probe;
  std::string subject;  ///< a folder, "GPU 3", "eth0"; may be empty
  std::string what;
  double value = 0;
  std::string text{};  ///< for people; may be empty
  friend bool operator==(const Reading&, const Reading&) = default;
};

enum class ProbeEnd {
  done,
  hung,     ///< it had not ended when its time was over
  crashed,  ///< it ended without an answer
};

/// One probe of one check.
struct ProbeRun {
  std::string probe;
  std::string subject;
  ProbeEnd end = ProbeEnd::done;
  std::vector<Reading> readings;
};

enum class Severity {
  warning,  ///< told; the node stays
  unfit,    ///< the node leaves the job
};
[[nodiscard]] std::string_view to_string(Severity severity);

struct Finding {
  std::string probe;
  std::string subject;
  Severity severity = Severity::warning;
  std::string words;  ///< "only 12 MiB are free in /data/run"
  friend bool operator==(const Finding&, const Finding&) = default;
};

/// What a finding is judged against.
struct Circumstances {
  bool is_before_round = true;  ///< no worker runs: what they would need must be there
  bool has_other_nodes = false;
  Millis patience{5'000};  ///< of a probe, for messages
};

/// The first readings of a job on this node: an interface that had carrier, the number of GPUs.
using Baseline = std::vector<Reading>;

/// In the order of the runs. Which figures make a node unfit stands in the table of
/// docs/decisions/0040-health.md.
[[nodiscard]] std::vector<Finding> judge(const std::vector<ProbeRun>& runs,
                                         const Baseline& baseline, const Circumstances& now);

/// The words of those that make the node unfit, joined; empty: it is fit.
[[nodiscard]] std::string unfit_reason(const std::vector<Finding>& findings);

}  // namespace acc::agent::health
