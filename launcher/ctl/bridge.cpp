#include "launcher/ctl/bridge.hpp"

#include "agent/fanout/orders.hpp"
#include "common/exit_codes.hpp"
#include "common/passed_signals.hpp"
#include "common/text.hpp"
#include "common/user_name.hpp"
#include "launcher/ctl/bridge_command.hpp"
#include "launcher/ctl/bridge_machine.hpp"
#include "launcher/ctl/event_follower.hpp"
#include "launcher/ctl/http_response.hpp"
#include "launcher/ctl/nonblocking_exchange.hpp"
#include "launcher/ctl/wire.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace acc::ctl {

namespace {

constexpr auto kChunk = NonblockingExchange::kChunk;
constexpr std::size_t kMostBridgeAnswer = std::size_t{16} << 20U;
/// The daemon has 3 s to connect and 25 s for the other one's answer.
constexpr Millis kAskPatience{32'000};
constexpr Millis kFlushPatience{60'000};
constexpr Millis kLastEvents{2'000};  // when the job has ended

struct Question {
  BridgeAsk ask{};
  std::unique_ptr<NonblockingExchange> exchange;
  std::string body;
  Instant due;
};

/// One stream of the job on its way to ours. What was read and not yet written is at most a chunk,
/// and a mark.
struct Copy {
  int fd = -1;
  std::unique_ptr<NonblockingExchange> exchange;
  std::string refusal;  ///< the body of an answer that isn't the stream
  std::string unwritten;
  bool is_gone = false;    ///< nothing reads it
  bool has_begun = false;  ///< the answer's header is there
};

class Bridge {
 public:
  Bridge(BridgeWish wish, std::string socket)
      : state_{bridge_of(std::move(wish))}, socket_{std::move(socket)} {
    copies_[0].fd = STDOUT_FILENO;
    copies_[1].fd = STDERR_FILENO;
    timers_.fill(std::nullopt);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      struct stat info {};
      // A pipe is ours alone; a terminal is shared with others that expect it to block.
      if (::fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode))
        ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    }
  }

  int run() {
    while (!is_done()) {
      wait();
      fire_timers();
      events_.follow(socket_, state_.wish, state_.job, code_.has_value(), clock_now());
    }
    return *code_;
  }

 private:
  [[nodiscard]] bool is_done() const {
    if (!code_) return false;
    if (events_.is_open() && clock_now() < events_until_) return false;
    return !has_output() || clock_now() >= flush_until_;
  }

  [[nodiscard]] bool has_output() const {
    return std::ranges::any_of(
        copies_, [](const Copy& one) { return !one.is_gone && !one.unwritten.empty(); });
  }

  void handle(const BridgeEvent& event) {
    for (auto& action : step(state_, event)) std::visit([this](auto& one) { act(one); }, action);
  }

  // ---- actions ----

  void act(AskDaemon& a) {
    // The newest question of a kind counts.
    std::erase_if(questions_, [&](const Question& one) { return one.ask == a.ask; });
    auto exchange = NonblockingExchange::begin(
        socket_, {.method = a.method, .target = a.target, .body = a.body});
    Question question{a.ask, nullptr, {}, clock_now() + kAskPatience};
    if (exchange) {
      question.exchange = std::move(*exchange);
    } else {
      question.body = "the acc-agent of this node doesn't answer: " + exchange.error().what;
    }
    questions_.push_back(std::move(question));
  }
  void act(OpenStream& a) {
    auto& copy = copies_[a.is_err ? 1 : 0];
    copy.refusal.clear();
    copy.has_begun = false;
    auto exchange = NonblockingExchange::begin(socket_, {.target = a.target});
    if (exchange) {
      copy.exchange = std::move(*exchange);
    } else {
      failed_.push_back({a.is_err, 0, false, {}});
    }
  }
  void act(CloseStream& a) { copies_[a.is_err ? 1 : 0].exchange.reset(); }
  void act(SendMark& a) { copies_[0].unwritten += agent::encode(a.mark, token_); }
  void act(TellBridge& a) {
    const bool is_named = state_.phase != BridgePhase::checking && !is_early_;
    const std::string program = state_.wish.job.empty() ? "acc-launch: " : "acc-ctl: ";
    copies_[1].unwritten +=
        program + (is_named ? state_.wish.name + ": " : std::string{}) + a.text + "\n";
  }
  void act(ArmBridgeTimer& a) {
    timers_[static_cast<std::size_t>(a.timer)] = clock_now() + a.delay;
  }
  void act(FinishBridge& a) {
    code_ = a.code;
    flush_until_ = clock_now() + kFlushPatience;
    events_until_ = clock_now() + (state_.ended ? kLastEvents : Millis{0});
    questions_.clear();
    for (auto& copy : copies_) copy.exchange.reset();
  }

  // ---- events ----

  void wait() {
    std::vector<pollfd> fds;
    fds.push_back({line_is_open_ && !code_ ? STDIN_FILENO : -1, POLLIN, 0});
    for (const auto& copy : copies_) {
      // POLLERR alone says that nothing reads any more.
      fds.push_back({copy.is_gone ? -1 : copy.fd,
                     static_cast<short>(copy.unwritten.empty() ? 0 : POLLOUT), 0});
      const bool reads = copy.exchange && copy.unwritten.size() < kChunk;
      fds.push_back(
          {reads ? copy.exchange->fd() : -1, reads ? copy.exchange->wants() : short{0}, 0});
    }
    const auto asked = questions_.size();
    for (const auto& question : questions_)
      fds.push_back({question.exchange ? question.exchange->fd() : -1,
                     question.exchange ? question.exchange->wants() : short{0}, 0});
    const bool reads_events =
        events_.is_open() && !copies_[0].is_gone && copies_[0].unwritten.size() < kChunk;
    fds.push_back({reads_events ? events_.exchange().fd() : -1,
                   reads_events ? events_.exchange().wants() : short{0}, 0});
    const int n = ::poll(fds.data(), fds.size(), patience());
    if (n > 0 && fds[0].revents != 0) read_line();
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      if (fds[1 + 2 * i].revents != 0) write_some(copies_[i]);
      if (fds[2 + 2 * i].revents != 0 && copies_[i].exchange) read_some(i == 1);
    }
    if (reads_events && fds.back().revents != 0) copies_[0].unwritten += events_.read(token_, clock_now());
    for (const auto& one : std::exchange(failed_, {})) handle(one);
    hear_answers(fds, asked);
  }

  void hear_answers(const std::vector<pollfd>& fds, std::size_t asked) {
    const auto now = clock_now();
    std::vector<BridgeEvent> events;
    std::vector<Question> open;
    auto questions = std::exchange(questions_, {});
    for (std::size_t i = 0; i < questions.size(); ++i) {
      auto& one = questions[i];
      // What was asked since poll isn't among its descriptors.
      const bool is_ready = i < asked && one.exchange && 5 + i < fds.size() &&
                            fds[5 + i].fd == one.exchange->fd() && fds[5 + i].revents != 0;
      std::string piece;
      const auto got = is_ready ? one.exchange->receive(piece) : Received::nothing;
      if (one.exchange) one.body += piece;
      if (!one.exchange) {
        events.emplace_back(BridgeUnanswered{one.ask, one.body});
      } else if (got == Received::end) {
        events.emplace_back(BridgeAnswered{one.ask, one.exchange->status(), one.body});
      } else if (got == Received::lost || one.body.size() > kMostBridgeAnswer) {
        events.emplace_back(BridgeUnanswered{
            one.ask, "the acc-agent of this node closed the connection without an answer"});
      } else if (now >= one.due) {
        events.emplace_back(
            BridgeUnanswered{one.ask, "the acc-agent of this node gives no answer"});
      } else {
        open.push_back(std::move(one));
      }
    }
    questions_ = std::move(open);
    for (const auto& event : events) handle(event);
  }

  [[nodiscard]] int patience() const {
    if (!failed_.empty()) return 0;
    std::optional<Instant> next;
    const auto heed = [&](Instant at) { next = next ? std::min(*next, at) : at; };
    for (const auto& timer : timers_) {
      if (timer) heed(*timer);
    }
    for (const auto& question : questions_) {
      if (!question.exchange) return 0;
      heed(question.due);
    }
    if (code_) heed(flush_until_);
    if (code_ && events_.is_open()) heed(events_until_);
    if (const auto again = events_.tries_again()) heed(*again);
    if (!next) return -1;
    const auto left = std::chrono::ceil<Millis>(*next - clock_now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
  }

  void fire_timers() {
    for (std::size_t i = 0; i < timers_.size() && !code_; ++i) {
      if (!timers_[i] || clock_now() < *timers_[i]) continue;
      timers_[i].reset();
      handle(BridgeTimerFired{static_cast<BridgeTimer>(i)});
    }
  }

  void read_line() {
    std::array<char, 4096> chunk;
    const auto n = ::read(STDIN_FILENO, chunk.data(), chunk.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return close_line();
    held_.append(chunk.data(), static_cast<std::size_t>(n));
    for (auto end = held_.find('\n'); end != std::string::npos && !code_; end = held_.find('\n')) {
      auto order = agent::decode_order(std::string_view{held_}.substr(0, end));
      held_.erase(0, end + 1);
      if (!order) return close_line();
      if (const auto* prepare = std::get_if<agent::Prepare>(&*order)) token_ = prepare->token;
      if (std::holds_alternative<agent::Go>(*order)) is_early_ = false;
      if (std::holds_alternative<agent::SendEvents>(*order)) {
        events_.want();
        continue;
      }
      handle(BridgeOrdered{std::move(*order)});
    }
    if (held_.size() > agent::kMaxOrder) close_line();
  }

  void close_line() {
    line_is_open_ = false;
    handle(BridgeLineClosed{});
  }

  void read_some(bool is_err) {
    auto& copy = copies_[is_err ? 1 : 0];
    std::string piece;
    const auto got = copy.exchange->receive(piece);
    const auto status = copy.exchange->status();
    if (status == kHttpOk && !std::exchange(copy.has_begun, true)) {
      const auto from = parse_number<std::uint64_t>(copy.exchange->header("x-acc-from"));
      if (from) handle(BridgeStreamBegun{is_err, *from});
    }
    if (status == kHttpOk && !piece.empty()) {
      if (!copy.is_gone) copy.unwritten += piece;
      handle(BridgeCopied{is_err, piece.size()});
      if (copy.exchange) write_some(copy);
    } else if (copy.refusal.size() < kChunk) {
      copy.refusal += piece;
    }
    if (got != Received::end && got != Received::lost) return;
    copy.exchange.reset();
    handle(BridgeStreamEnded{is_err, status, got == Received::end, copy.refusal});
  }

  void write_some(Copy& copy) {
    if (copy.is_gone) return copy.unwritten.clear();
    if (copy.unwritten.empty()) {  // poll told of an error
      copy.is_gone = true;
      return handle(BridgeOutputGone{});
    }
    const auto n = ::write(copy.fd, copy.unwritten.data(), copy.unwritten.size());
    if (n >= 0) {
      copy.unwritten.erase(0, static_cast<std::size_t>(n));
    } else if (errno != EAGAIN && errno != EINTR) {
      copy.is_gone = true;
      copy.unwritten.clear();
      handle(BridgeOutputGone{});
    }
  }

  BridgeState state_;
  std::string socket_;
  std::string token_;
  std::string held_;  ///< of the life line, without an end yet
  bool line_is_open_ = true;
  bool is_early_ = true;
  std::array<Copy, 2> copies_;
  std::vector<Question> questions_;
  std::vector<BridgeStreamEnded> failed_;
  std::array<std::optional<Instant>, kBridgeTimers> timers_;
  std::optional<int> code_;
  EventFollower events_;
  Instant flush_until_{};
  Instant events_until_{};
};

std::string octal_umask() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  char text[8];
  std::snprintf(text, sizeof text, "%03o", static_cast<unsigned>(mask));
  return text;
}

}  // namespace

int run_bridge(std::span<const std::string> words) {
  auto command = parse_bridge_command(words);
  if (!command) {
    std::fprintf(stderr, "acc-ctl: %s\n", command.error().what.c_str());
    return to_int(ExitCode::usage);
  }
  // It outlives an acc-launch that is killed: who else would stop the job? The life line ends then.
  ::prctl(PR_SET_PDEATHSIG, 0);
  std::signal(SIGPIPE, SIG_IGN);
  // It is told by the life line, and ends by that line's end or by SIGKILL.
  for (const int signo : kPassedSignals) std::signal(signo, SIG_IGN);
  command->wish.umask = octal_umask();
  command->wish.user = user_name(::geteuid());
  return Bridge{std::move(command->wish), std::move(command->socket)}.run();
}

}  // namespace acc::ctl
