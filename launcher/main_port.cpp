#include "launcher/main_port.hpp"

#include "common/endpoint.hpp"
#include "common/fnv.hpp"
#include "common/text.hpp"
#include "launcher/key_table.hpp"

#include <string_view>

namespace acc::launcher {

using namespace literals;

namespace {

/// Only a static rendezvous has the workers' store at its endpoint; any other is the coordinator's.
std::optional<std::int64_t> port_of_endpoint(const JobSpec& spec) {
  const auto endpoint = spec.text("rdzv_endpoint"_key);
  const auto colon = endpoint.rfind(':');
  if (spec.text("rdzv_backend"_key) != "static" || colon == std::string::npos ||
      endpoint.ends_with(']') || (endpoint.find(':') != colon && !endpoint.starts_with('[')))
    return std::nullopt;
  return parse_number<std::int64_t>(std::string_view{endpoint}.substr(colon + 1));
}

}  // namespace

std::uint16_t port_from(std::string_view random) {
  constexpr std::uint64_t kFirst = 20'000;
  constexpr std::uint64_t kPorts = 9'400;
  return static_cast<std::uint16_t>(kFirst + fnv1a(random) % kPorts);
}

std::optional<std::int64_t> wanted_port(const JobSpec& spec) {
  const auto given = spec.integer("main_process_port"_key);
  return given ? given : port_of_endpoint(spec);
}

std::optional<Error> bad_main_port(const JobSpec& spec) {
  const auto wanted = wanted_port(spec);
  if (!wanted || (*wanted >= 0 && *wanted <= 65535)) return std::nullopt;
  const bool by_endpoint = !spec.is_set("main_process_port"_key);
  return Error{Errc::bad_config, spec.name_for_complaint(by_endpoint ? "rdzv_endpoint"_key
                                                                     : "main_process_port"_key) +
                                     ": " + std::to_string(*wanted) + " is not a port: 0 to 65535"};
}

}  // namespace acc::launcher
