#include "agent/daemon/peer_exchange.hpp"

#include <utility>

namespace acc::agent::daemon {

using boost::asio::awaitable;
using Step = ReplyParser::Step;

awaitable<Step> PeerExchange::next() {
  for (;;) {
    std::size_t consumed = 0;
    const auto step = parser.feed(input, consumed, body);
    input.erase(0, consumed);
    if (step != Step::needs_more || !body.empty()) co_return step;
    const auto n = co_await stream->read_some(piece);
    if (n == 0) co_return parser.end() ? Step::done : Step::broken;
    input.append(piece.data(), n);
  }
}

// What a daemon that has no room for the connection says, it may have said before the request was
// sent: so the reply is read also where sending failed.
awaitable<bool> PeerExchange::ask(const boost::asio::any_io_executor& executor, std::string request,
                                  Instant due, Millis limit, PeerError& error) {
  const StreamDeadline deadline{executor, *stream, due};
  stream->drop_unsent_at_close(true);  // who has no answer, or has gone, may ask again
  const bool is_sent = co_await stream->write(request);
  request = std::string{};
  if (is_sent && on_sent) on_sent();
  const auto step = deadline.is_late() ? Step::broken : co_await next();
  is_answered = true;
  if (step == Step::has_head) {
    stream->drop_unsent_at_close(false);
    co_return true;
  }
  stream->close();
  constexpr const char* kMayBeDone = "it may have carried the request out: ask for the state";
  if (!silence.empty())
    error = {504, "no_answer", silence + " (" + kMayBeDone + ")"};
  else if (deadline.is_late())
    error = {504, "no_answer",
             node + " did not answer within " + describe(limit) + " (" + kMayBeDone + ")"};
  else
    error = {502, "node_unreachable",
             node + " closed the connection without an answer: was its acc-agent stopped?"};
  co_return false;
}

std::shared_ptr<PeerExchange> PeerExchange::make(std::unique_ptr<PeerStream> over, std::string name,
                                                 bool is_head, std::shared_ptr<CallerLink> caller) {
  auto made = std::make_shared<PeerExchange>(std::move(over), std::move(name), is_head);
  if (!caller) return made;
  made->on_sent = [caller = std::move(caller), weak = std::weak_ptr{made}] {
    caller->when_closed([weak] {
      if (const auto kept = weak.lock(); kept && kept->stream) kept->stream->close();
    });
  };
  return made;
}

awaitable<void> PeerExchange::relay(std::shared_ptr<PeerExchange> self,
                                    std::shared_ptr<BodyWriter> to) {
  to->when_closed([weak = std::weak_ptr{self}] {
    if (const auto kept = weak.lock(); kept && kept->stream) kept->stream->close();
  });
  for (;;) {
    const auto step = co_await self->next();
    if (!self->body.empty()) {
      const bool is_written = co_await to->write(self->body);
      self->body.clear();
      if (!is_written) co_return;
    }
    if (step == Step::done) {
      const bool goes_on = self->input.empty() && self->parser.keeps_alive();
      if (goes_on && self->on_whole) self->on_whole();
      co_return;
    }
    if (step == Step::broken) co_return to->break_off();
  }
}

}  // namespace acc::agent::daemon
