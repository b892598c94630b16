#include "agent/health_findings.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace acc::agent::health {

namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kLeastDisk = 256 * kMiB;
constexpr double kLeastInodes = 100;
constexpr double kLeastMemory = 256 * kMiB;
constexpr double kLeastShm = 16 * kMiB;

// Errors of the GPU, its memory, its links or its firmware: the GPU needs a reset or a repair.
// NVIDIA's "Xid Errors": the others are faults of programs, or of little weight.
constexpr std::array kFatalXids{46, 48, 62, 64, 74, 79, 95, 109, 119, 120, 136, 140, 143, 154};
constexpr std::array kProgramXids{13, 31, 43, 45, 68, 69};

// Of any double: what a number can't hold is cut.
std::int64_t to_integer(double value) {
  constexpr double kMost = 9e15;  // exact as a double
  return std::isnan(value) ? 0 : static_cast<std::int64_t>(std::clamp(value, -kMost, kMost));
}

template <std::size_t N>
bool has_xid(const std::array<int, N>& codes, double code) {
  return std::ranges::find(codes, to_integer(code)) != codes.end();
}

std::string mebibytes(double bytes) { return std::to_string(to_integer(bytes / kMiB)) + " MiB"; }

std::string whole(double value) { return std::to_string(to_integer(value)); }

struct Judgement {
  const Baseline& baseline;
  const Circumstances& now;

  [[nodiscard]] std::optional<double> first(const Reading& r) const {
    for (const auto& one : baseline)
      if (one.probe == r.probe && one.subject == r.subject && one.what == r.what) return one.value;
    return std::nullopt;
  }

  [[nodiscard]] static Finding finding(const Reading& r, Severity severity, std::string words) {
    return {r.probe, r.subject, severity, std::move(words)};
  }

  // A round is not begun with too little; running workers have what they need already.
  [[nodiscard]] Severity needed() const {
    return now.is_before_round ? Severity::unfit : Severity::warning;
  }

  // Logs may get lost without harm to the job. A file system that other nodes share would take all
  // of them out at once.
  [[nodiscard]] std::optional<Finding> disk(const Reading& r) const {
    const bool is_vital = r.text == "checkpoints";
    const auto severity = is_vital ? needed() : Severity::warning;
    if (r.what == "free_bytes" && r.value < kLeastDisk)
      return finding(r, severity, "only " + mebibytes(r.value) + " are free in " + r.subject);
    if (r.what == "free_inodes" && r.value < kLeastInodes)
      return finding(r, severity, "only " + whole(r.value) + " files can be made in " + r.subject);
    if (r.what == "is_read_only" && r.value != 0)
      return finding(r, severity, r.subject + " is read-only");
    if (r.what == "is_missing")
      return finding(r, Severity::warning,
                     "there is no folder " + r.subject +
                         ": is its file system mounted? " + r.text + " is looked at instead");
    if (r.what == "errno")
      return finding(r, Severity::warning, "can't look at " + r.subject + ": " + r.text);
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Finding> memory(const Reading& r) const {
    if (r.what == "available_bytes" && r.value < kLeastMemory)
      return finding(r, needed(), "only " + mebibytes(r.value) + " of memory are available");
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Finding> shm(const Reading& r) const {
    if (r.what == "free_bytes" && r.value < kLeastShm)
      return finding(r, needed(),
                     "only " + mebibytes(r.value) + " are free in " + r.subject +
                         ", which NCCL and data loaders need");
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Finding> cpu(const Reading& r) const {
    const auto before = first(r);
    if (r.what == "throttle_count" && before && r.value > *before)
      return finding(r, Severity::warning,
                     "the processor was throttled " +
                         plural(static_cast<std::uint64_t>(to_integer(r.value - *before)), "time") +
                         " (heat or power) since the job's start");
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Finding> name(const Reading& r) const {
    if (r.what == "resolves" && r.value == 0)
      return finding(
          r, Severity::warning,
          "this host's own name " + in_quotes(r.subject) + " doesn't resolve: " + r.text);
    return std::nullopt;
  }

  // One that never had carrier isn't in use.
  [[nodiscard]] std::optional<Finding> net(const Reading& r) const {
    if (r.what != "carrier" || r.value != 0 || first(r).value_or(0) == 0) return std::nullopt;
    return finding(r, now.has_other_nodes ? Severity::unfit : Severity::warning,
                   "network interface " + r.subject + " lost its carrier");
  }

  [[nodiscard]] std::optional<Finding> gpu(const Reading& r) const {
    const auto before = first(r);
    const double more = r.value - before.value_or(0);
    if (r.what == "count" && before && r.value < *before)
      return finding(r, Severity::unfit,
                     "only " + whole(r.value) + " of " + whole(*before) + " GPUs are there");
    if (r.what == "is_lost" && r.value != 0)
      return finding(r, Severity::unfit, r.subject + " is lost: " + r.text);
    if (r.what == "ecc_uncorrected" && more > 0)
      return finding(
          r, before ? Severity::unfit : Severity::warning,
          r.subject + " has " +
              plural(static_cast<std::uint64_t>(to_integer(r.value)), "uncorrected memory error"));
    if (r.what == "row_remap_failed" && r.value != 0)
      return finding(r, Severity::unfit, r.subject + " could not remap a bad row of its memory");
    if (r.what == "row_remap_pending" && r.value != 0)
      return finding(r, Severity::unfit,
                     r.subject + " needs a reset to remap a bad row of its memory");
    if (r.what == "nvlinks_up" && before && r.value < *before)
      return finding(r, Severity::unfit,
                     "only " + whole(r.value) + " of " + whole(*before) + " NVLinks of " +
                         r.subject + " are up");
    if (r.what == "throttled" && r.value != 0)
      return finding(r, Severity::warning, r.subject + " is throttled: " + r.text);
    if (r.what == "xid") return xid(r);
    return std::nullopt;
  }

  [[nodiscard]] static std::optional<Finding> xid(const Reading& r) {
    if (has_xid(kProgramXids, r.value)) return std::nullopt;
    return finding(r, has_xid(kFatalXids, r.value) ? Severity::unfit : Severity::warning,
                   r.subject + " reported Xid " + whole(r.value) +
                       (r.text.empty() ? "" : " (" + r.text + ")"));
  }

  [[nodiscard]] std::optional<Finding> command(const Reading& r) const {
    if (r.what != "exit_code" || r.value == 0) return std::nullopt;
    return finding(
        r, Severity::unfit,
        "--health_check ended with " + whole(r.value) + (r.text.empty() ? "" : ": " + r.text));
  }

  [[nodiscard]] std::optional<Finding> of(const Reading& r) const {
    if (r.probe == "disk") return disk(r);
    if (r.probe == "memory") return memory(r);
    if (r.probe == "shm") return shm(r);
    if (r.probe == "cpu") return cpu(r);
    if (r.probe == "name") return name(r);
    if (r.probe == "net") return net(r);
    if (r.probe == "gpu") return gpu(r);
    if (r.probe == "command") return command(r);
    return std::nullopt;
  }

  // A driver that doesn't answer hangs workers, too. A folder that doesn't is often a shared one.
  [[nodiscard]] Finding without_answer(const ProbeRun& run) const {
    const bool is_hung = run.end == ProbeEnd::hung;
    const std::string who = "probe " + run.probe + (run.subject.empty() ? "" : " " + run.subject);
    return {run.probe, run.subject,
            is_hung && run.probe == "gpu" ? Severity::unfit : Severity::warning,
            who + (is_hung ? " did not end within " + describe(now.patience)
                           : " ended without an answer")};
  }
};

}  // namespace

std::string_view to_string(Severity severity) {
  return severity == Severity::unfit ? "unfit" : "warning";
}

std::vector<Finding> judge(const std::vector<ProbeRun>& runs, const Baseline& baseline,
                           const Circumstances& now) {
  const Judgement judgement{baseline, now};
  std::vector<Finding> findings;
  for (const auto& run : runs) {
    if (run.end != ProbeEnd::done) {
      findings.push_back(judgement.without_answer(run));
      continue;
    }
    for (const auto& reading : run.readings)
      if (auto found = judgement.of(reading)) findings.push_back(std::move(*found));
  }
  return findings;
}

std::string unfit_reason(const std::vector<Finding>& findings) {
  std::vector<std::string> words;
  for (const auto& one : findings)
    if (one.severity == Severity::unfit) words.push_back(one.words);
  return join(words, "; ");
}

}  // namespace acc::agent::health
