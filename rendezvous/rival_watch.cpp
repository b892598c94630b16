#include "rendezvous/rival_watch.hpp"

#include <utility>
#include <variant>

namespace acc::rendezvous {

RivalWatch::RivalWatch(boost::asio::io_context& io, Options options, OnRival on_rival)
    : io_{io}, options_{std::move(options)}, on_rival_{std::move(on_rival)}, timer_{io} {
  try_now();
}

RivalWatch::~RivalWatch() {
  if (link_) link_->close();
}

void RivalWatch::try_now() {
  dial_ = dial(io_, options_.dial, [this](Dialled dialled) {
    const auto finished = std::exchange(dial_, nullptr);
    dialled.has_value() ? ask(std::move(*dialled)) : try_later();
  });
}

void RivalWatch::try_later() {
  timer_.expires_after(options_.every);
  timer_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
    if (!cancelled) try_now();
  }));
}

void RivalWatch::ask(std::shared_ptr<Channel> channel) {
  link_ = link_over(std::move(channel));
  Link::Handlers on;
  on.on_frame = [this](const Frame& frame) { answered(frame); };
  on.on_lost = [this](const LinkLoss&) {
    link_.reset();
    try_later();
  };
  link_->start(std::move(on));
  link_->send({{}, options_.join});
}

// Any other refusal is none of a coordinator of this job.
void RivalWatch::answered(const Frame& frame) {
  const auto link = std::exchange(link_, nullptr);  // its handler is on the stack
  link->close();
  const auto at = describe(options_.dial.to);
  const auto* refused = std::get_if<Refused>(&frame.message);
  if (refused != nullptr && refused->refusal == Refusal::duplicate)
    return on_rival_("refused by the coordinator at " + at + ": " + refused->what);
  if (std::holds_alternative<Welcome>(frame.message))
    return on_rival_("the job has a coordinator at " + at +
                     " already, so this machine can't be the first: is its --node_rank right?");
  try_later();
}

}  // namespace acc::rendezvous
