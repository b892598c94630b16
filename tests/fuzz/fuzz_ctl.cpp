#include "common/plain_text.hpp"
#include "launcher/ctl/command.hpp"
#include "launcher/ctl/http_response.hpp"
#include "launcher/ctl/job_list.hpp"
#include "launcher/ctl/sse_reader.hpp"
#include "launcher/ctl/text_table.hpp"
#include "launcher/ctl/top/model.hpp"
#include "launcher/ctl/top/view.hpp"

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

/// What acc-top makes of it on both pages of a job, in lines that fit.
std::string drawn(const std::string& text) {
  using namespace acc::ctl::top;
  std::string shown;
  const auto draw = [&](const Model& model) {
    for (const auto& line : frame_of(model).lines) {
      if (width_of(line) > model.size.columns) std::abort();
      for (const auto& span : line) shown += span.text;
    }
  };
  for (const bool is_of_service : {false, true}) {
    Model model;
    model.page = Page::ranks;
    model.wanted = "x";
    static_cast<void>(step(model, Resized{{24, 80}}, 1'000'000));
    const PartAnswer part{"", PartAnswer::How::answered, is_of_service, text};
    for (int i = 0; i < 2; ++i)
      static_cast<void>(step(model, JobAnswer{"x", {}, {part, part}, ""}, 1'000'000));
    draw(model);
    static_cast<void>(step(model, KeyPress{Key::f5}, 1'000'000));
    draw(model);
    model.page = Page::log;
    LogAnswer log{"x", model.log.place, {}, 0, 0, text, false, ""};
    static_cast<void>(step(model, log, 1'000'000));
    draw(model);
  }
  return shown;
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
    if (!jobs->empty()) static_cast<void>(find_job(*jobs, jobs->front().id, jobs->front().user));
  }
  if (const auto job = job_of_agent(text, "/x/a.1.sock", "me", 1'000'000))
    shown += job_text(*job, parse_json(text), 1'000'000, 80);
  for (const char c : shown + acc::safe_text(text) + drawn(text)) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') std::abort();
  }
  return 0;
}
