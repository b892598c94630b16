#include "agent/daemon/api_event_stream.hpp"

#include "agent/daemon/api_json.hpp"
#include "agent/daemon/sse.hpp"
#include "common/duration.hpp"
#include "common/text.hpp"

#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

asio::awaitable<void> follow(ApiContext& api, Principal who, std::uint64_t last,
                             std::shared_ptr<BodyWriter> to) {
  const auto told = api.jobs.on_event([to](const JobEvent&) { to->notify(); });
  // A comment at once: a client learns that it is connected before something happens.
  bool is_open = co_await to->write(": events follow\n\n");
  auto written = clock_now();
  while (is_open && to->is_open()) {
    const auto events = api.jobs.events_after(who, last);
    for (const auto& event : events) {
      last = event.number;
      const std::string text =
          to_text(ServerSentEvent{std::to_string(event.number), "", encode_event(event)});
      is_open = co_await to->write(text);
      if (!is_open) co_return;
      written = clock_now();
    }
    if (!events.empty()) continue;
    co_await to->wait(written + api.event_silence);
    if (clock_now() < written + api.event_silence) continue;
    // So that a client notices a connection that was lost without a word, and we one as well.
    is_open = co_await to->write(":\n\n");
    written = clock_now();
  }
}

}  // namespace

asio::awaitable<HttpReply> serve_events(ApiContext& api, ApiCall call) {
  std::vector<std::string> complaints;
  const auto wanted = call.query("follow").value_or("0");
  const bool follows = wanted == "1" || wanted == "true";
  if (!follows && wanted != "0" && wanted != "false")
    complaints.push_back("follow=" + printable(wanted, 60) + ": expected 0 or 1");
  std::uint64_t last = 0;
  if (const auto id = call.request.header("last-event-id"); id && !id->empty()) {
    const auto number = parse_number<std::uint64_t>(*id);
    last = number.value_or(0);
    if (!number)
      complaints.push_back("Last-Event-ID=" + printable(*id, 60) + ": expected an event's number");
  }
  if (!complaints.empty()) co_return refused(complaints);
  if (!follows) co_return json_reply(200, encode_events(api.jobs.events_after(call.who, last)));
  HttpReply reply;
  reply.content_type = "text/event-stream";
  reply.stream = [&api, who = call.who, last](std::shared_ptr<BodyWriter> to) {
    return follow(api, who, last, std::move(to));
  };
  co_return reply;
}

}  // namespace acc::agent::daemon
