#include "agent/control_protocol.hpp"
#include "common/passed_signals.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

/// Any line is a request or an error in words; what is understood is within its bounds.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace acc::agent;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto request = control::decode(text);
  if (!request) {
    const auto reply = control::refusal("bad_request", request.error().what);
    if (reply.find('\n') != reply.size() - 1) std::abort();
    return 0;
  }
  if (const auto* stop = std::get_if<control::Stop>(&*request);
      stop != nullptr && stop->grace && *stop->grace < acc::Millis{0})
    std::abort();
  if (const auto* signal = std::get_if<control::Signal>(&*request);
      signal != nullptr && !acc::is_passed_on(signal->signo))
    std::abort();
  static_cast<void>(control::usage_from_stat(text, 4096, 100));
  return 0;
}
