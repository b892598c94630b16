#pragma once

#include "launcher/config.hpp"
#include "launcher/env/fact_table.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace acc::env {

/// Looks at this machine and this process's variables. Starts `python --version` and
/// `nvcc --version` for two seconds at most, and acc-test's worker program, which knows NCCL's
/// version, for ten; no GPU is used.
/// @param config_file  to be shown; empty: Accelerate's default one
[[nodiscard]] std::vector<Section> collect_facts(const launcher::Environment& environment,
                                                 const std::string& config_file);

// ---- pure ----
/// PRETTY_NAME of /etc/os-release, without its quotes.
[[nodiscard]] std::string os_name(std::string_view os_release);
/// The "model name" of /proc/cpuinfo. aarch64 has none: the numbers of its implementer and part,
/// and the name where it is known.
[[nodiscard]] std::string cpu_model(std::string_view cpuinfo);
/// "release 12.4, V12.4.131" of nvcc's words becomes "12.4.131".
[[nodiscard]] std::string nvcc_version(std::string_view text);

}  // namespace acc::env
