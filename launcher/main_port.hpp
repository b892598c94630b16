#pragma once

#include "common/error.hpp"
#include "launcher/job_spec.hpp"

#include <cstdint>
#include <optional>

namespace acc::launcher {

/// --main_process_port, else the port of --rdzv_endpoint, as given; nothing where none is.
[[nodiscard]] std::optional<std::int64_t> wanted_port(const JobSpec& spec);

/// Why that is no port; nothing where it is one or none was given.
[[nodiscard]] std::optional<Error> bad_main_port(const JobSpec& spec);

}  // namespace acc::launcher
