#include "launcher/ctl/follow.hpp"

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

using How = Followed::How;

/// A daemon that starts (503), or one that doesn't reach the job's node now, where a restart of the
/// daemon takes a moment as well (502, 504).
bool may_come_back(unsigned status) {
  return status >= kHttpBadGateway && status <= kHttpGatewayTimeout;
}

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
        return {
            How::lost,
            std::nullopt,
            {},
            (exchange ? "acc-agent closes the connection" : exchange.error().what) + left_undone()};
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
  /// What is said after the cause when the daemon stays away.
  [[nodiscard]] virtual std::string left_undone() const { return {}; }

  static void say(const std::string& text) {
    write_out(STDERR_FILENO, "acc-ctl: " + text + "\n", nullptr);
  }
  [[nodiscard]] const std::string& socket() const { return socket_; }
  Interrupts interrupts_;

 private:
  static Followed refused(Exchange& exchange) {
    std::string body;
    std::string piece;
    constexpr std::size_t kMost = 65536;
    const auto until = clock_now() + kAnswerPatience;
    while (body.size() < kMost && exchange.next(piece, until, nullptr) == Arrived::data)
      body += piece;
    auto failure = failure_of(Answer{exchange.status(), std::move(body)});
    return {How::lost, std::nullopt, {}, std::move(failure.text), failure.exit};
  }

  /// Nothing: the connection is lost.
  std::optional<Followed> read(Exchange& exchange) {
    was_connected_ = true;
    std::string piece;
    for (;;) {
      switch (exchange.next(piece, std::nullopt, &interrupts_)) {
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
    const auto& text = data.get_ref<const std::string&>();
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
    if (owes_stop_) ask_to_stop();
  }
  [[nodiscard]] std::string left_undone() const override {
    return owes_stop_ ? "; " + id_ + " was not asked to stop and goes on" : std::string{};
  }

  void ask_to_stop() {
    const auto answer = ask_service(
        socket(), {.method = "POST", .target = at_ + "/v1/jobs/" + id_ + "/stop", .body = "{}"});
    const bool was_owed = std::exchange(owes_stop_, !answer || may_come_back(answer->status));
    const std::string again = asked_by_ == SIGINT ? "Ctrl-C again" : "another signal";
    if (answer && answer->status < 300) {
      say("asked " + id_ + " to stop; " + again + " leaves it alone");
      return;
    }
    if (was_owed && owes_stop_) return;  // it was said
    say("could not ask " + id_ +
        " to stop: " + (answer ? error_of(answer->body) : answer.error().what) +
        (owes_stop_ ? "; it is asked again when acc-agent answers, " + again + " leaves it alone"
                    : std::string{}));
  }

  std::string id_;
  std::string at_;
  FollowWish wish_;
  std::array<SafeText, 2> safe_;  ///< of stdout and stderr: a character may be cut between events
  int asked_by_ = 0;              ///< the signal; 0: it wasn't
  bool owes_stop_ = false;  ///< asked while no daemon answered
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
