#include "rendezvous/job_server.hpp"

#include "common/exit_codes.hpp"
#include "common/host_name.hpp"
#include "common/random.hpp"
#include "common/text.hpp"
#include "rendezvous/own_address.hpp"
#include "rendezvous/peer_text.hpp"
#include "rendezvous/secret.hpp"

#include <boost/asio/post.hpp>

#include <utility>

namespace acc::rendezvous {

JobServer::JobServer(boost::asio::io_context& io, JobServerOptions options, Say say)
    : io_{io}, options_{std::move(options)}, say_{std::move(say)}, visit_timer_{io} {
  visit_jobs();
}

int JobServer::open(const std::vector<std::string>& addresses) {
  Result<void> opened{};
  for (const auto& address : addresses) {
    const bool is_hidden = is_name_on_loopback(options_.at.host, address);
    opened = listen(is_hidden ? kAnyAddress : address);
    if (opened && is_hidden)
      say_(options_.at.host + " is " + address +
           " on this machine (/etc/hosts?), which others can't reach: listening on all its "
           "addresses");
    if (opened || !is_no_own_address(opened.error())) break;
  }
  if (opened) return 0;
  say_(opened.error().what);
  return to_int(ExitCode::failure);  // as acc-launch
}

Result<void> JobServer::listen(const std::string& address) {
  ListenOptions options;
  options.at = {address, options_.at.port};
  options.is_dual_stack = address == kAnyAddress;
  options.is_insecure = options_.is_insecure;
  options.channel.heartbeat_timeout = options_.timings.heartbeat_timeout;
  std::string words;
  const auto places = secret_places(options_.secret_file);
  const bool is_loopback = address == "127.0.0.1" || address == "::1";
  if (!options_.is_insecure && (!is_loopback || is_secret_named(places))) {
    const auto secret = load_secret(places);
    if (!secret) return secret.error();
    options.tls = TlsContext::for_listening(*secret);
    words = "secret: " + secret->path + ", key id " + secret->keys.front().id;
  }
  auto opened = Listener::open(io_, options);
  if (!opened) return opened.error();
  if (!words.empty()) say_(words);
  is_everywhere_ = options.is_dual_stack;
  listener_ = std::move(*opened);
  listener_->start([this](std::shared_ptr<Channel> channel,
                          std::string_view first) { greet(std::move(channel), first); },
                   [this](const TurnedAway& who) {
                     say_("turned away a connection from " + who.source + ": " + who.what);
                   });
  say_("listening at " + describe(listener_->at()) +
       (options.tls            ? ""
        : options_.is_insecure ? ", insecure"
                               : ", loopback only"));
  return {};
}

void JobServer::greet(std::shared_ptr<Channel> channel, std::string_view first) {
  const auto frame = decode_of_peer(first);
  if (const auto* moved = frame ? std::get_if<LeaderMoved>(&frame->message) : nullptr) {
    // This process was restarted, and the job has elected a coordinator meanwhile: redirect the
    // agents that wait here.
    const auto job = jobs_.find(moved->job);
    const bool is_proved = !channel->is_tls() || channel->proof().job == moved->job;
    if (is_proved && job != jobs_.end() && job->second.coordinator)
      job->second.coordinator->moved(moved->to);
    return channel->close();
  }
  const auto* join = frame ? std::get_if<Join>(&frame->message) : nullptr;
  const bool is_proved =
      join != nullptr && (!channel->is_tls() || channel->proof().job == join->job);
  if (!is_proved) {
    say_("turned away " + describe(channel->peer()) + ": " +
         (!frame            ? frame.error().what
          : join == nullptr ? "it doesn't join"
                            : "its key is for another job"));
    return channel->close();
  }
  auto& job = jobs_[join->job];
  // Where all went before the first round, the next who come may be started with other options.
  if (!job.coordinator || job.coordinator->is_deserted()) begin(job, join->job);
  job.coordinator->admit(PeerId{++peers_}, link_over(std::move(channel)), *join);
}

MembershipOptions JobServer::membership_options(const Job& job, const std::string& name) const {
  const auto left_ago = job.note->age();
  const auto& times = options_.timings;
  MembershipOptions options;
  options.is_restarted_seed = left_ago && *left_ago < (times.lease + times.heartbeat_timeout) * 2;
  options.job = name;
  options.name = "acc-rendezvous@" + host_name();
  const auto at = listener_->at();
  options.where = is_everywhere_ ? host_name() + ":" + std::to_string(at.port) : describe(at);
  options.timings = times;
  options.seed = random_number();
  return options;
}

void JobServer::begin(Job& job, const std::string& name) {
  job.note.emplace(name, listener_->at().port);
  const std::string prefix = "job " + printable(name) + ": ";
  Coordinator::Hooks hooks;
  hooks.tell = [this, prefix](const std::string& text, bool) { say_(prefix + text); };
  hooks.stepped_down = [this, name, prefix](const std::string& why) {
    say_(prefix + why);
    end(name);
  };
  hooks.job_over = [this, name, prefix](const Close& close) {
    say_(prefix + "over, exit code " + std::to_string(close.exit_code) +
         (close.reason.empty() ? "" : ": " + close.reason));
    constexpr Millis kCloseLimit{5'000};
    auto& over = jobs_[name];
    over.note->remove();
    // By then a job of the same name may have begun, if this one had no round.
    over.coordinator->when_all_left(kCloseLimit, [this, name, ended = over.coordinator.get()] {
      const auto found = jobs_.find(name);
      if (found != jobs_.end() && found->second.coordinator.get() == ended) end(name);
    });
  };
  say_(prefix + "begins");
  job.coordinator =
      std::make_unique<Coordinator>(io_, membership_options(job, name), std::move(hooks));
}

void JobServer::visit_jobs() {
  // One that is closed ends itself, once its agents have received that.
  std::erase_if(jobs_, [](const auto& entry) {
    const auto& coordinator = entry.second.coordinator;
    return coordinator && coordinator->membership().phase() == MembershipPhase::gathering &&
           coordinator->is_deserted();
  });
  for (const auto& [name, job] : jobs_) {
    if (job.coordinator && job.coordinator->membership().has_round() &&
        job.coordinator->membership().phase() != MembershipPhase::closed)
      job.note->renew();
  }
  visit_timer_.expires_after(options_.timings.heartbeat_timeout / 2);
  visit_timer_.async_wait([this](boost::system::error_code error) {
    if (!error) visit_jobs();
  });
}

void JobServer::end(const std::string& name) {
  std::shared_ptr<Coordinator> ended{std::move(jobs_[name].coordinator)};  // it is on the stack
  jobs_.erase(name);
  boost::asio::post(io_, [ended] {});
}

}  // namespace acc::rendezvous
