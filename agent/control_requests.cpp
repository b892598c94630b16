#include "agent/control_requests.hpp"

#include "agent/supervisor.hpp"
#include "agent/user_messages.hpp"

#include <boost/asio/steady_timer.hpp>

#include <utility>

namespace acc::agent {

namespace {

constexpr Millis kTablePatience{500};
constexpr Millis kRestartPatience{1'500};  // less than the daemon's own for a reply

/// The reply to a question that the coordinator may never answer: given once, by what is returned
/// or, when the time is over, with what `late` says.
std::function<void(std::string)> reply_within(boost::asio::io_context& io, Millis limit,
                                              std::function<std::string()> late,
                                              std::function<void(std::string)> reply) {
  struct Question {
    boost::asio::steady_timer timer;
    std::function<void(std::string)> reply;
  };
  const auto question =
      std::make_shared<Question>(Question{boost::asio::steady_timer{io, limit}, std::move(reply)});
  auto answer = [question](const std::string& text) {
    if (!question->reply) return;
    std::exchange(question->reply, nullptr)(text);
    question->timer.cancel();
  };
  question->timer.async_wait([answer, late](boost::system::error_code cancelled) {
    if (!cancelled) answer(late());
  });
  return answer;
}

}  // namespace

ControlRequests::ControlRequests(boost::asio::io_context& io, const GroupState& group,
                                 const UserMessages& messages, Hooks hooks)
    : io_{io}, group_{group}, messages_{messages}, hooks_{std::move(hooks)} {}

Result<void> ControlRequests::listen(ControlPlace place, std::function<void()> on_lost) {
  if (is_closed_) return {};
  server_ = std::make_unique<ControlServer>(
      io_, [this](const control::Request& request, uid_t uid, Reply reply) {
        take(request, uid, std::move(reply));
      });
  auto listening = server_->listen(std::move(place));
  if (listening) {
    server_->watch_place(std::move(on_lost));
  } else {
    server_.reset();
  }
  return listening;
}

void ControlRequests::close() {
  is_closed_ = true;
  if (server_) server_->close();
}

void ControlRequests::note(const std::string& what, uid_t uid) const {
  messages_.note(what + " asked over the control socket by uid " + std::to_string(uid));
}

void ControlRequests::take(const control::Request& request, uid_t uid, Reply reply) {
  if (is_closed_) return reply(control::refusal("conflict", "the job is over"));
  if (const auto* wanted = std::get_if<control::Status>(&request))
    return reply_status(*wanted, std::move(reply));
  if (const auto* wanted = std::get_if<control::Output>(&request))
    return reply(control::output_reply(hooks_.output(*wanted)));
  if (std::holds_alternative<control::Stacks>(request)) return collect_stacks(reply);
  if (const auto* asked = std::get_if<control::Signal>(&request))
    return signal(asked->signo, uid, reply);
  if (std::holds_alternative<control::Restart>(request)) return restart(uid, std::move(reply));
  note("stop", uid);
  reply(control::done());
  hooks_.on_event(StopAsked{std::get<control::Stop>(request).grace, clock_now()});
}

void ControlRequests::collect_stacks(const Reply& reply) {
  if (group_.phase != Phase::running)
    return reply(control::refusal("conflict", "no worker runs now"));
  hooks_.collect_stacks({"asked for over the control socket", evidence::Purpose::look}, [reply](const auto& answer) {
    reply(answer ? control::stacks_reply(answer->file, answer->text)
                 : control::refusal("failed", answer.error().what));
  });
}

// What ends the job is heeded in any phase; the others only reach workers that are there.
void ControlRequests::signal(int signo, uid_t uid, const Reply& reply) {
  const bool is_lost = !group_.coordinated && group_.phase != Phase::running &&
                       !ends_job(signo, group_.stop.preempt_signals);
  if (is_lost) return reply(control::refusal("conflict", "no worker runs now"));
  note(signal_name(signo), uid);
  reply(control::done());
  hooks_.on_signal(signo);
}

void ControlRequests::restart(uid_t uid, Reply reply) {
  const auto why = why_no_restart(group_);
  if (!why.empty()) return reply(control::refusal("conflict", why));
  note("restart", uid);
  if (group_.coordinated) return ask_all_for_restart(std::move(reply));
  reply(control::done());
  hooks_.set_restart_reason("asked for over the control socket");
  hooks_.on_event(RestartAsked{clock_now()});
}

// The other nodes are known to the coordinator, which may not answer: then without them.
void ControlRequests::reply_status(control::Status wanted, Reply reply) {
  const auto encoded = [this, wanted](std::vector<control::NodeView> table) {
    auto seen = hooks_.view(wanted);
    seen.table = std::move(table);
    return control::encode(seen);
  };
  if (!group_.coordinated || !group_.orders.round) return reply(encoded({}));
  const auto answer = reply_within(
      io_, kTablePatience, [encoded] { return encoded({}); }, std::move(reply));
  hooks_.table([answer, encoded](std::vector<control::NodeView> table) {
    answer(encoded(std::move(table)));
  });
}

// The coordinator decides, and its answer is the reply.
void ControlRequests::ask_all_for_restart(Reply reply) {
  const auto late = [] {
    return control::refusal("conflict",
                            "the coordinator of its nodes gives no answer: look whether a restart "
                            "follows, else try again");
  };
  const auto answer = reply_within(io_, kRestartPatience, late, std::move(reply));
  restart_answer_ = [answer](const std::string& why_not) {
    answer(why_not.empty() ? control::done() : control::refusal("conflict", why_not));
  };
  hooks_.on_event(RestartAsked{clock_now()});
  restart_answer_ = nullptr;
}

rendezvous::RendezvousClient::RestartAnswer ControlRequests::take_restart_answer() {
  return std::exchange(restart_answer_, nullptr);
}

}  // namespace acc::agent
