#pragma once

#include "agent/job_plan.hpp"
#include "launcher/check/machine_view.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Does this machine have what a job needs? The first half of acc-test: what can be seen before any
/// process is started.
namespace acc::check {

enum class Verdict : std::uint8_t {
  ok,
  note,     ///< worth knowing, nothing to do
  warning,  ///< jobs run, but something will bite
  failed,   ///< this job can't run
};
[[nodiscard]] std::string_view to_string(Verdict verdict);

struct Check {
  std::string name;
  Verdict verdict = Verdict::ok;
  std::string found;   ///< what is so, in words
  std::string remedy;  ///< what to do; empty if there is nothing to do
};

/// The checks for this job on such a machine, in the order in which they are told.
[[nodiscard]] std::vector<Check> judge(const MachineView& machine, const agent::JobPlan& plan);

[[nodiscard]] nlohmann::json as_json(const Check& check);
/// nothing: not what as_json() made.
[[nodiscard]] std::optional<Check> check_of(const nlohmann::json& json);

/// "ok       open files    1048576 may be open" and, below a warning or failure, its remedy.
[[nodiscard]] std::string to_text(const Check& check);

}  // namespace acc::check
