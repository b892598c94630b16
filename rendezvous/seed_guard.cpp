#include "rendezvous/seed_guard.hpp"

#include <boost/asio/post.hpp>

#include <utility>

namespace acc::rendezvous {

SeedGuard::SeedGuard(boost::asio::io_context& io, const std::string& job, std::uint16_t port,
                     Hooks hooks)
    : io_{io}, file_{job, port}, hooks_{std::move(hooks)}, timer_{io} {}

SeedGuard::~SeedGuard() { alive_.end(); }

void SeedGuard::renew_file(Millis every) {
  if (hooks_.has_round()) {
    file_.renew();
    end_rival_watch();
  }
  timer_.expires_after(every);
  timer_.async_wait(alive_.bind([this, every](boost::system::error_code error) {
    if (!error) renew_file(every);
  }));
}

void SeedGuard::watch_for_rival(RivalWatch::Options options) {
  rivals_ = std::make_unique<RivalWatch>(io_, std::move(options), [this](const std::string& why) {
    end_rival_watch();
    if (!hooks_.has_round()) hooks_.on_rival(why);
  });
}

// It may be on the stack.
void SeedGuard::end_rival_watch() {
  if (!rivals_) return;
  std::shared_ptr<RivalWatch> ended{std::move(rivals_)};
  boost::asio::post(io_, [ended] {});
}

void SeedGuard::stop() {
  timer_.cancel();
  end_rival_watch();
}

}  // namespace acc::rendezvous
