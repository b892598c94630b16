#pragma once

#include "common/error.hpp"
#include "launcher/job_spec.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace acc::launcher {

/// --main_process_port, else the port of --rdzv_endpoint, as given; nothing where none is.
[[nodiscard]] std::optional<std::int64_t> wanted_port(const JobSpec& spec);

/// Why that is no port; nothing where it is one or none was given.
[[nodiscard]] std::optional<Error> bad_main_port(const JobSpec& spec);

/// A port for a job's nodes to meet at, the same for the same text: below the ports that systems
/// give to clients, and below torch's own.
[[nodiscard]] std::uint16_t port_from(std::string_view random);

}  // namespace acc::launcher
