#include "launcher/ctl/command.hpp"
#include "launcher/ctl/http_response.hpp"
#include "launcher/ctl/job_list.hpp"
#include "launcher/ctl/sse_reader.hpp"
#include "launcher/ctl/text_table.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

/// The same events, however the bytes are cut.
void read_events(std::string_view text, std::size_t cut) {
  acc::ctl::SseReader whole;
  acc::ctl::SseReader parts;
  whole.feed(text);
  parts.feed(text.substr(0, cut));
  parts.feed(text.substr(cut));
  for (;;) {
    const auto one = whole.next();
    if (one != parts.next()) std::abort();
    if (!one) break;
  }
  if (whole.last_id() != parts.last_id()) std::abort();
}

}  // namespace

/// What a service or an agent answers is foreign: no bytes of it break the client or reach the
/// terminal as they are.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace acc::ctl;
  const std::string text{reinterpret_cast<const char*>(data), size};
  read_events(text, size / 2);
  HttpResponse response;
  static_cast<void>(response.feed(text).has_value() && response.has_header() && response.end());
  const auto body = response.take_body();
  std::string shown = error_of(text);
  if (const auto jobs = jobs_of_service(text, "/s")) {
    shown += jobs_table(*jobs, 1'000'000, 80);
    static_cast<void>(jobs_json(*jobs));
    if (!jobs->empty()) static_cast<void>(find_job(*jobs, jobs->front().id));
  }
  if (const auto job = job_of_agent(text, "/x/a.1.sock", "me", 1'000'000))
    shown += job_text(*job, parse_json(text), 1'000'000, 80);
  for (const char c : shown + terminal_safe(text)) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') std::abort();
  }
  return 0;
}
