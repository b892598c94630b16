#include "launcher/ctl/follow.hpp"

#include "common/json_bytes.hpp"
#include "common/plain_text.hpp"
#include "common/text.hpp"
#include "launcher/ctl/sse_reader.hpp"

#include <nlohmann/json.hpp>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

namespace acc::ctl {

namespace {

constexpr Millis kReconnectFor{60'000};
constexpr Millis kFirstPause{50};
constexpr Millis kLongestPause{1'000};
constexpr Millis kAskStopAgainAfter{1'500};
constexpr Millis kStopAgainPatience{3'000};

using How = Followed::How;

/// A stream of events that is connected anew when it is lost.
class Stream {
 public:
  Stream(std::string socket, std::string target) : socket_{std::move(socket)} {
    request_.target = std::move(target);
  }
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Followed run() {
    std::optional<Instant> lost_since;
    Millis pause = kFirstPause;
    for (;;) {
      request_.last_id = reader_.last_id();
      auto exchange = Exchange::open(socket_, request_);
      const bool is_away = exchange && was_connected_ && may_come_back(exchange->status());
      if (exchange && exchange->status() != kHttpOk && !is_away) return refused(*exchange);
      if (exchange && !is_away) {
        has_news_ = false;
        answered();
        if (const auto end = read(*exchange)) return *end;
        reader_.begin_again();
        if (has_news_) {
          lost_since.reset();
          pause = kFirstPause;
        }
      } else if (!was_connected_) {
        return {How::lost, std::nullopt, {}, exchange.error().what};
      }
      was_connected_ = true;
      const auto now = clock_now();
      if (!lost_since) {
        lost_since = now;
        say("the connection to acc-agent is lost, trying again for a minute; the job goes on");
      }
      if (now - *lost_since > kReconnectFor) {
        if (is_away) return refused(*exchange);
        const auto why = exchange ? "acc-agent closes the connection" : exchange.error().what;
        return {How::lost, std::nullopt, {}, why + left_undone()};
      }
      if (const auto end = wait(pause)) return *end;
      pause = std::min(2 * pause, kLongestPause);
    }
  }

 protected:
  /// Something: it was the last event that matters.
  virtual std::optional<Followed> take(const ServerEvent& event) = 0;
  virtual std::optional<Followed> interrupted(int signo) {
    return Followed{How::interrupted, 128 + signo, {}, {}};
  }
  /// The daemon answers on a new connection.
  virtual void answered() {}
  /// Until when there is something to do beside reading; nothing: there is none.
  [[nodiscard]] virtual std::optional<Instant> due() const { return std::nullopt; }
  virtual void do_what_is_due() {}
  /// What is said after the cause when the daemon stays away, or refuses the stream.
  [[nodiscard]] virtual std::string left_undone() const { return {}; }

  static void say(const std::string& text) {
    write_out(STDERR_FILENO, "acc-ctl: " + text + "\n", nullptr);
  }
  [[nodiscard]] const std::string& socket() const { return socket_; }
  Interrupts interrupts_;

 private:
  [[nodiscard]] Followed refused(Exchange& exchange) const {
    std::string body;
    std::string piece;
    constexpr std::size_t kMost = 65536;
    const auto until = clock_now() + kAnswerPatience;
    while (body.size() < kMost && exchange.next(piece, until, nullptr) == Arrived::data)
      body += piece;
    auto failure = failure_of(Answer{exchange.status(), std::move(body)});
    const bool is_gone = exchange.status() == kHttpNotFound;
    if (!is_gone) failure.text += left_undone();
    return {How::lost, std::nullopt, {}, std::move(failure.text), failure.exit};
  }

  /// Nothing: the connection is lost.
  std::optional<Followed> read(Exchange& exchange) {
    was_connected_ = true;
    std::string piece;
    for (;;) {
      // Also where there always is something to read.
      if (const auto until = due(); until && clock_now() >= *until) do_what_is_due();
      switch (exchange.next(piece, due(), &interrupts_)) {
        case Arrived::data:
          has_news_ = true;
          reader_.feed(piece);
          while (const auto event = reader_.next()) {
            if (auto end = take(*event)) return end;
          }
          break;
        case Arrived::interrupted:
          if (const int signo = interrupts_.take(); signo != 0) {
            if (auto end = interrupted(signo)) return end;
          }
          break;
        case Arrived::timed_out:
          break;
        default:
          return std::nullopt;
      }
    }
  }

  std::optional<Followed> wait(Millis pause) {
    pollfd fd{interrupts_.fd(), POLLIN, 0};
    if (::poll(&fd, 1, static_cast<int>(pause.count())) <= 0) return std::nullopt;
    const int signo = interrupts_.take();
    return signo == 0 ? std::nullopt : interrupted(signo);
  }

  std::string socket_;
  HttpRequest request_;
  SseReader reader_;
  bool was_connected_ = false;
  bool has_news_ = false;  ///< of this connection
};

class OutputStream : public Stream {
 public:
  OutputStream(const JobRow& job, const FollowWish& wish)
      : Stream{job.socket, job.at + "/v1/jobs/" + job.id + "/logs?follow=1" + wish.query},
        id_{job.id},
        at_{job.at},
        wish_{wish} {}

 private:
  std::optional<Followed> take(const ServerEvent& event) override {
    const auto data = parse_json(event.data);
    if (event.name == "end") {
      Followed end{How::job_ended, {}, text_of(data, "state"), text_of(data, "reason")};
      if (data.is_object() && data.contains("exit_code") && data["exit_code"].is_number_integer())
        end.exit_code = data["exit_code"].get<int>();
      end.stopped_by = asked_by_;
      return end;
    }
    const bool is_error = event.name == "stderr";
    if ((!is_error && event.name != "stdout") || !data.is_string()) return std::nullopt;
    const auto text = bytes_of(data.get_ref<const std::string&>());
    const int fd = is_error ? STDERR_FILENO : STDOUT_FILENO;
    const bool is_escaped = wish_.is_escaped && ::isatty(fd) == 1;
    const auto safe = is_escaped ? safe_[is_error ? 1 : 0].add(text) : std::string{};
    if (!write_out(fd, is_escaped ? safe : text, &interrupts_)) {
      const int signo = interrupts_.take();
      if (signo == 0) return Followed{How::output_closed, {}, {}, {}};
      if (auto end = interrupted(signo)) return end;
      return std::nullopt;  // what the reader didn't take is lost to the one who interrupts
    }
    return std::nullopt;
  }

  std::optional<Followed> interrupted(int signo) override {
    const bool asks = wish_.on_interrupt == OnInterrupt::stop_then_leave &&
                      (signo == SIGINT || wish_.on_term == OnTerm::as_interrupt);
    if (!asks || asked_by_ != 0) return Stream::interrupted(signo);
    asked_by_ = signo;
    ask_to_stop();
    return std::nullopt;
  }

  /// A daemon that is restarted just now doesn't hear the request: it's asked again when it
  /// answers.
  void answered() override {
    if (asks_again_at_) ask_to_stop();
  }
  /// So does one that stays connected and doesn't reach the job's node just now.
  [[nodiscard]] std::optional<Instant> due() const override { return asks_again_at_; }
  void do_what_is_due() override { ask_to_stop(); }
  [[nodiscard]] std::string left_undone() const override {
    return asks_again_at_ ? "; " + id_ + " was not asked to stop and goes on" : std::string{};
  }

  void ask_to_stop() {
    HttpRequest request{
        .method = "POST", .target = at_ + "/v1/jobs/" + id_ + "/stop", .body = "{}"};
    const bool was_owed = asks_again_at_.has_value();
    // Meanwhile neither output is copied nor a second Ctrl-C seen.
    if (was_owed) request.patience = kStopAgainPatience;
    const auto answer = ask_service(socket(), request);
    const bool is_owed = !answer || may_be_asked_again(answer->status, answer->body);
    asks_again_at_.reset();
    if (is_owed) asks_again_at_ = clock_now() + kAskStopAgainAfter;
    const std::string again = asked_by_ == SIGINT ? "Ctrl-C again" : "another signal";
    if (answer && answer->status < 300) {
      say("asked " + id_ + " to stop; " + again + " leaves it alone" + warning_in(*answer));
      return;
    }
    if (was_owed && is_owed) return;  // it was said
    say("could not ask " + id_ +
        " to stop: " + (answer ? failure_of(*answer).text : answer.error().what) +
        (is_owed ? "; it is asked again when acc-agent answers, " : "; ") + again +
        " leaves it alone");
  }

  std::string id_;
  std::string at_;
  FollowWish wish_;
  std::array<SafeText, 2> safe_;  ///< of stdout and stderr: a character may be cut between events
  int asked_by_ = 0;              ///< the signal; 0: it wasn't
  std::optional<Instant> asks_again_at_;  ///< for the stop, which wasn't heard; nothing: it was
};

class EventStream : public Stream {
 public:
  EventStream(std::string socket, const OnEvent& on_event)
      : Stream{std::move(socket), "/v1/events?follow=1"}, on_event_{on_event} {}

 private:
  std::optional<Followed> take(const ServerEvent& event) override {
    if (on_event_(event.data)) return std::nullopt;
    return Followed{How::output_closed, {}, {}, {}};
  }
  const OnEvent& on_event_;
};

}  // namespace

Followed follow_output(const JobRow& job, const FollowWish& wish) {
  return OutputStream{job, wish}.run();
}

Followed follow_events(const std::string& socket, const OnEvent& on_event) {
  return EventStream{socket, on_event}.run();
}

}  // namespace acc::ctl
