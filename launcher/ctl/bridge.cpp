#include "launcher/ctl/bridge.hpp"

#include "agent/fanout/orders.hpp"
#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "launcher/ctl/bridge_command.hpp"
#include "launcher/ctl/bridge_machine.hpp"
#include "launcher/ctl/http_response.hpp"
#include "launcher/ctl/wire.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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

namespace acc::ctl {

namespace {

constexpr std::size_t kChunk = std::size_t{64} << 10U;
constexpr std::size_t kMostBridgeAnswer = std::size_t{16} << 20U;
/// The daemon has 3 s to connect and 25 s for the other one's answer.
constexpr Millis kAskPatience{32'000};
constexpr Millis kFlushPatience{60'000};
constexpr Millis kEventsPause{1'000};  // no events are there yet, or the stream broke
constexpr Millis kLastEvents{2'000};   // when the job has ended

/// One request, and its answer as it arrives; never blocks.
class Talk {
 public:
  enum class Now { waits, has_bytes, done, broken };

  static Result<std::unique_ptr<Talk>> begin(const std::string& socket,
                                             const HttpRequest& request) {
    auto fd = connect_to(socket);
    if (!fd) return fd.error();
    return std::unique_ptr<Talk>{new Talk{std::move(*fd), encode(request)}};
  }

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] short wants() const { return unsent_.empty() ? POLLIN : POLLIN | POLLOUT; }
  [[nodiscard]] unsigned status() const { return response_.has_header() ? response_.status() : 0; }

  [[nodiscard]] std::string header(std::string_view name) const { return response_.header(name); }

  /// What the descriptor is ready for. `into`: a piece of the body.
  Now go_on(std::string& into) {
    if (!unsent_.empty() && !send_some()) return Now::broken;
    std::array<char, kChunk> chunk;
    const auto n = ::recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Now::waits;
    if (n <= 0) {
      const bool is_whole = n == 0 && response_.end();
      into = response_.take_body();
      return is_whole ? Now::done : Now::broken;
    }
    if (!response_.feed({chunk.data(), static_cast<std::size_t>(n)})) return Now::broken;
    into = response_.take_body();
    if (response_.is_done()) return Now::done;
    return into.empty() ? Now::waits : Now::has_bytes;
  }

 private:
  Talk(UniqueFd fd, std::string request) : fd_{std::move(fd)}, unsent_{std::move(request)} {}

  bool send_some() {
    const auto n = ::send(fd_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    unsent_.erase(0, static_cast<std::size_t>(n));
    return true;
  }

  UniqueFd fd_;
  std::string unsent_;
  HttpResponse response_;
};

struct Question {
  BridgeAsk ask{};
  std::unique_ptr<Talk> talk;
  std::string body;
  Instant due;
};

/// One stream of the job on its way to ours. What was read and not yet written is at most a chunk,
/// and a mark.
struct Copy {
  int fd = -1;
  std::unique_ptr<Talk> talk;
  std::string refusal;  ///< the body of an answer that isn't the stream
  std::string unwritten;
  bool is_gone = false;    ///< nothing reads it
  bool has_begun = false;  ///< the answer's header is there
};

/// The events of the job, whose lines become marks.
class EventFollower {
 public:
  void want() { is_wanted_ = true; }
  [[nodiscard]] bool is_open() const { return static_cast<bool>(talk_); }
  [[nodiscard]] const Talk& talk() const { return *talk_; }
  [[nodiscard]] std::optional<Instant> tries_again() const { return again_; }

  /// Opens the stream when there is a job, and again when it broke. @param is_over  not any more
  void follow(const std::string& socket, const BridgeState& state, bool is_over) {
    if (is_over) again_.reset();
    if (!is_wanted_ || is_over || talk_ || is_whole_ || (again_ && clock_now() < *again_)) return;
    if (state.job.empty()) return;
    const auto target = events_target(state.wish, state.job, offset_);
    again_.reset();
    has_begun_ = false;
    if (auto talk = Talk::begin(socket, {.target = target}))
      talk_ = std::move(*talk);
    else
      again_ = clock_now() + kEventsPause;
  }

  /// What the descriptor is ready for. @return marks
  std::string read(const std::string& token) {
    std::string piece;
    const auto what = talk_->go_on(piece);
    const bool is_stream = talk_->status() == kHttpOk;
    if (is_stream && !std::exchange(has_begun_, true)) {
      // Above what was asked for, if the oldest events are kept no longer.
      const auto from = parse_number<std::uint64_t>(talk_->header("x-acc-from")).value_or(offset_);
      if (std::exchange(offset_, from) != from) held_.clear();
    }
    if (is_stream) {
      held_ += piece;
      offset_ += piece.size();
    }
    if (what == Talk::Now::done || what == Talk::Now::broken) {
      is_whole_ = is_stream && what == Talk::Now::done;
      talk_.reset();
      if (!is_whole_) again_ = clock_now() + kEventsPause;
    }
    std::string marks;
    std::size_t from = 0;
    for (auto end = held_.find('\n'); end != std::string::npos; end = held_.find('\n', from)) {
      const auto line = std::string_view{held_}.substr(from, end - from);
      const bool is_of_file = line.find(R"("event":"file_continued")") != std::string_view::npos;
      if (!is_of_file && line.size() < agent::kMaxEventMark / 2)
        marks += agent::encode(agent::HostEvent{std::string{line}}, token);
      from = end + 1;
    }
    held_.erase(0, from);
    return marks;
  }

 private:
  bool is_wanted_ = false;
  bool is_whole_ = false;
  bool has_begun_ = false;  ///< the answer's header is there
  std::unique_ptr<Talk> talk_;
  std::string held_;
  std::uint64_t offset_ = 0;
  std::optional<Instant> again_;
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
      events_.follow(socket_, state_, code_.has_value());
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
    auto talk = Talk::begin(socket_, {.method = a.method, .target = a.target, .body = a.body});
    Question question{a.ask, nullptr, {}, clock_now() + kAskPatience};
    if (talk) {
      question.talk = std::move(*talk);
    } else {
      question.body = "the acc-agent of this node doesn't answer: " + talk.error().what;
    }
    questions_.push_back(std::move(question));
  }
  void act(OpenStream& a) {
    auto& copy = copies_[a.is_err ? 1 : 0];
    copy.refusal.clear();
    copy.has_begun = false;
    auto talk = Talk::begin(socket_, {.target = a.target});
    if (talk) {
      copy.talk = std::move(*talk);
    } else {
      failed_.push_back({a.is_err, 0, false, {}});
    }
  }
  void act(CloseStream& a) { copies_[a.is_err ? 1 : 0].talk.reset(); }
  void act(SendMark& a) { copies_[0].unwritten += agent::encode(a.mark, token_); }
  void act(TellBridge& a) {
    const bool is_named = state_.phase != BridgePhase::checking && !is_early_;
    copies_[1].unwritten +=
        "acc-launch: " + (is_named ? state_.wish.name + ": " : std::string{}) + a.text + "\n";
  }
  void act(ArmBridgeTimer& a) {
    timers_[static_cast<std::size_t>(a.timer)] = clock_now() + a.delay;
  }
  void act(FinishBridge& a) {
    code_ = a.code;
    flush_until_ = clock_now() + kFlushPatience;
    events_until_ = clock_now() + (state_.ended ? kLastEvents : Millis{0});
    questions_.clear();
    for (auto& copy : copies_) copy.talk.reset();
  }

  // ---- events ----

  void wait() {
    std::vector<pollfd> fds;
    fds.push_back({line_is_open_ && !code_ ? STDIN_FILENO : -1, POLLIN, 0});
    for (const auto& copy : copies_) {
      // POLLERR alone says that nothing reads any more.
      fds.push_back({copy.is_gone ? -1 : copy.fd,
                     static_cast<short>(copy.unwritten.empty() ? 0 : POLLOUT), 0});
      const bool reads = copy.talk && copy.unwritten.size() < kChunk;
      fds.push_back({reads ? copy.talk->fd() : -1, reads ? copy.talk->wants() : short{0}, 0});
    }
    const auto asked = questions_.size();
    for (const auto& question : questions_)
      fds.push_back({question.talk ? question.talk->fd() : -1,
                     question.talk ? question.talk->wants() : short{0}, 0});
    const bool reads_events =
        events_.is_open() && !copies_[0].is_gone && copies_[0].unwritten.size() < kChunk;
    fds.push_back({reads_events ? events_.talk().fd() : -1,
                   reads_events ? events_.talk().wants() : short{0}, 0});
    const int n = ::poll(fds.data(), fds.size(), patience());
    if (n > 0 && fds[0].revents != 0) read_line();
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      if (fds[1 + 2 * i].revents != 0) write_some(copies_[i]);
      if (fds[2 + 2 * i].revents != 0 && copies_[i].talk) read_some(i == 1);
    }
    if (reads_events && fds.back().revents != 0) copies_[0].unwritten += events_.read(token_);
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
      const bool is_ready = i < asked && one.talk && 5 + i < fds.size() &&
                            fds[5 + i].fd == one.talk->fd() && fds[5 + i].revents != 0;
      std::string piece;
      const auto what = is_ready ? one.talk->go_on(piece) : Talk::Now::waits;
      if (one.talk) one.body += piece;
      if (!one.talk) {
        events.emplace_back(BridgeUnanswered{one.ask, one.body});
      } else if (what == Talk::Now::done) {
        events.emplace_back(BridgeAnswered{one.ask, one.talk->status(), one.body});
      } else if (what == Talk::Now::broken || one.body.size() > kMostBridgeAnswer) {
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
      if (!question.talk) return 0;
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
    const auto what = copy.talk->go_on(piece);
    const auto status = copy.talk->status();
    if (status == kHttpOk && !std::exchange(copy.has_begun, true)) {
      const auto from = parse_number<std::uint64_t>(copy.talk->header("x-acc-from"));
      if (from) handle(BridgeStreamBegun{is_err, *from});
    }
    if (status == kHttpOk && !piece.empty()) {
      if (!copy.is_gone) copy.unwritten += piece;
      handle(BridgeCopied{is_err, piece.size()});
      if (copy.talk) write_some(copy);
    } else if (copy.refusal.size() < kChunk) {
      copy.refusal += piece;
    }
    if (what != Talk::Now::done && what != Talk::Now::broken) return;
    copy.talk.reset();
    handle(BridgeStreamEnded{is_err, status, what == Talk::Now::done, copy.refusal});
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
  for (const int signo : {SIGINT, SIGHUP, SIGQUIT}) std::signal(signo, SIG_IGN);
  command->wish.umask = octal_umask();
  return Bridge{std::move(command->wish), std::move(command->socket)}.run();
}

}  // namespace acc::ctl
