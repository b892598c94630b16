#include "rendezvous/link.hpp"

#include "rendezvous/codec.hpp"
#include "rendezvous/peer_text.hpp"

#include <boost/asio/post.hpp>

#include <deque>

namespace acc::rendezvous {

namespace {

class ChannelLink : public Link, public std::enable_shared_from_this<ChannelLink> {
 public:
  explicit ChannelLink(std::shared_ptr<Channel> channel) : channel_{std::move(channel)} {}

  void start(Handlers handlers) override {
    handlers_ = std::move(handlers);
    Channel::Handlers on;
    on.on_frame = [this](std::string_view bytes) { take(bytes); };
    on.on_closed = [this](const Closed& closed) {
      using Cause = Closed::Cause;
      const bool not_authentic = closed.cause == Cause::authentication ||
                                 closed.cause == Cause::needs_secret ||
                                 closed.cause == Cause::has_no_secret;
      const bool is_reset_by_peer = closed.errnum == ECONNRESET || closed.errnum == EPIPE;
      lost({closed.what, not_authentic, closed.cause == Cause::ended || is_reset_by_peer});
    };
    channel_->start(std::move(on));
  }
  void send(const Frame& frame) override { send(frame, encode(frame.epoch, frame.message)); }
  void send(const Frame&, std::string_view encoded) override { channel_->send(encoded); }
  void allow_queued(std::size_t bytes) override { channel_->allow_queued(bytes); }
  void allow_frames(std::size_t frames) override { channel_->allow_frames(frames); }
  void close() override {
    handlers_ = {};
    channel_->close();
  }
  [[nodiscard]] std::string peer_address() const override { return channel_->peer().host; }
  [[nodiscard]] std::string own_address() const override { return channel_->local().host; }

 private:
  void take(std::string_view bytes) {
    auto frame = decode_of_peer(bytes);
    const auto self = shared_from_this();  // the handler may drop this link
    if (!frame) {
      channel_->close();
      return lost({"it sent what is no message: " + frame.error().what});
    }
    if (handlers_.on_frame) handlers_.on_frame(*frame);
  }

  void lost(const LinkLoss& loss) {
    const auto self = shared_from_this();
    const auto handlers = std::exchange(handlers_, {});
    if (handlers.on_lost) handlers.on_lost(loss);
  }

  std::shared_ptr<Channel> channel_;
  Handlers handlers_;
};

class InsideLink : public Link, public std::enable_shared_from_this<InsideLink> {
 public:
  explicit InsideLink(boost::asio::io_context& io) : io_{io} {}
  ~InsideLink() override { InsideLink::close(); }

  void join_with(const std::shared_ptr<InsideLink>& other) { other_ = other; }

  void start(Handlers handlers) override {
    handlers_ = std::move(handlers);
    is_started_ = true;
    if (!waiting_.empty() || is_lost_) wake();
  }
  void send(const Frame& frame) override {
    if (const auto other = other_.lock()) other->take(frame);
  }
  void send(const Frame& frame, std::string_view) override { send(frame); }
  void allow_queued(std::size_t) override {}
  void allow_frames(std::size_t) override {}
  void close() override {
    handlers_ = {};
    is_started_ = false;
    waiting_.clear();
    if (const auto other = other_.lock()) other->end();
    other_.reset();
  }
  [[nodiscard]] std::string peer_address() const override { return {}; }
  [[nodiscard]] std::string own_address() const override { return {}; }

 private:
  void take(const Frame& frame) {
    waiting_.push_back(frame);
    if (is_started_) wake();
  }
  void end() {
    is_lost_ = true;
    other_.reset();
    if (is_started_) wake();
  }
  void wake() {
    if (std::exchange(is_woken_, true)) return;
    boost::asio::post(io_, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->deliver();
    });
  }
  void deliver() {
    is_woken_ = false;
    while (is_started_ && !waiting_.empty()) {
      const Frame frame = std::move(waiting_.front());
      waiting_.pop_front();
      const auto on_frame = handlers_.on_frame;
      if (on_frame) on_frame(frame);
    }
    if (!is_started_ || !is_lost_) return;
    is_started_ = false;
    const auto handlers = std::exchange(handlers_, {});
    if (handlers.on_lost) handlers.on_lost({"it ended"});
  }

  boost::asio::io_context& io_;
  std::weak_ptr<InsideLink> other_;
  Handlers handlers_;
  std::deque<Frame> waiting_;
  bool is_started_ = false;
  bool is_woken_ = false;
  bool is_lost_ = false;
};

}  // namespace

std::shared_ptr<Link> link_over(std::shared_ptr<Channel> channel) {
  return std::make_shared<ChannelLink>(std::move(channel));
}

std::pair<std::shared_ptr<Link>, std::shared_ptr<Link>> link_inside(boost::asio::io_context& io) {
  auto a = std::make_shared<InsideLink>(io);
  auto b = std::make_shared<InsideLink>(io);
  a->join_with(b);
  b->join_with(a);
  return {std::move(a), std::move(b)};
}

}  // namespace acc::rendezvous
