// Any bytes of a scraper get one HTTP reply, and metrics only if they ask for them. As an agent's
// status, a prober's answer or the kernel's log they give figures or none.
#include "agent/daemon/api_metrics.hpp"
#include "agent/health_prober.hpp"
#include "agent/metrics_server.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

using namespace acc::agent;

namespace {

void must(bool claim) {
  if (!claim) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  bool is_asked = false;
  const auto reply = metrics_reply(text, [&] {
    is_asked = true;
    return std::string{"acc_build_info 1\n"};
  });
  must(reply.starts_with("HTTP/1.1 "));
  must(reply.find("\r\n\r\n") != std::string::npos);
  must(is_asked == reply.starts_with("HTTP/1.1 200 OK"));
  if (const auto figures = daemon::figures_of("t-1", text)) must(figures->running >= 0);
  if (const auto runs = health::decode_runs(text)) {
    const auto findings = health::judge(*runs, {}, {});
    must(findings.empty() || !findings.front().words.empty());
    const auto again = health::decode_runs(health::encode(*runs));
    must(again && again->size() == runs->size());
  }
  static_cast<void>(health::decode_request(text));
  for (const auto& xid : health::xids_in(text, 0)) must(std::isfinite(xid.value));
  return 0;
}
