#include "agent/fanout/cluster_launch.hpp"

#include "agent/descriptor_limit.hpp"
#include "agent/event_log.hpp"
#include "agent/fanout/contact_watch.hpp"
#include "agent/fanout/fan_out.hpp"
#include "agent/fanout/host_stream.hpp"
#include "agent/fanout/launch_course.hpp"
#include "agent/fanout/launch_record.hpp"
#include "agent/fanout/orders.hpp"
#include "agent/fanout/slot_wait.hpp"
#include "agent/fanout/transport.hpp"
#include "agent/fanout/trouble_text.hpp"
#include "agent/output/console_facts.hpp"
#include "agent/output/destinations.hpp"
#include "agent/output/pump.hpp"
#include "agent/report.hpp"
#include "agent/report_file.hpp"
#include "agent/small_file.hpp"
#include "agent/spawn.hpp"
#include "agent/status_text.hpp"
#include "common/alive.hpp"
#include "common/exit_codes.hpp"
#include "common/poll_now.hpp"
#include "common/random.hpp"
#include "common/text.hpp"
#include "common/version.hpp"
#include "rendezvous/secret.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

namespace acc::agent {

namespace {

namespace asio = boost::asio;

constexpr Millis kStoppedHostsPatience{2'000};
constexpr Millis kStoppedHostsFlush{30'000};
constexpr Millis kHurriedHostsFlush{300};
constexpr Millis kEventsPatience{2'000};
constexpr Millis kLineDelay{500};
/// For transports that stop the job on their hosts, when we were killed.
constexpr Millis kStopPatience{20'000};
constexpr Millis kWithoutEnd{std::chrono::hours{24 * 365}};
constexpr std::uint64_t kDescriptorsOfHost = 4, kDescriptorsOfOurs = 40;

ConsoleFacts facts_without_journal() {
  auto facts = detect_console();
  facts.journal_out = facts.journal_err = false;  // lines of many hosts are text
  return facts;
}

UniqueFd open_hosts_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signo : {SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2}) ::sigaddset(&set, signo);
  struct sigaction hang_up {};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) ::sigaddset(&set, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return UniqueFd{::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)};
}

std::size_t pipe_capacity(int fd) {
  const int bytes = ::fcntl(fd, F_GETPIPE_SZ);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : std::size_t{64} << 10U;
}

/// One host: its transport, and its two streams.
struct HostLine {
  explicit HostLine(asio::io_context& io) : transport{io} {}
  Transport transport;
  std::unique_ptr<HostStream> out;
  std::unique_ptr<HostStream> err;
  std::shared_ptr<Pump::Reader> out_reader;
  std::shared_ptr<Pump::Reader> err_reader;
  int out_fd = -1;  ///< of the readers, which own them
  int err_fd = -1;
  std::vector<OutputLost> lost;         ///< of its output, as its daemon tells
  std::optional<ContactWatch> contact;  ///< of a running job, without a daemon
};

/// Feeds the state machine with events and carries out its actions. One thread.
class ClusterRun {
 public:
  ClusterRun(const ClusterLaunch& launch, const GuardianLink& guardian,
             std::optional<rendezvous::SecretBytes> secret)
      : launch_{launch},
        guardian_{guardian},
        secret_{std::move(secret)},
        console_{facts_without_journal()},
        course_{names_of(launch)},
        names_{names_of(launch)},
        words_{launch.is_ssh, launch.transport, version(), launch.uses_daemons},
        state_{fan_out_over(launch.hosts.size(), policy_of(launch))},
        signals_{io_, open_hosts_signals().release()},
        guardian_fd_{io_},
        pump_{io_, [this] { destinations_.flush(); }},
        destinations_{console_, OutputOptions{}, nullptr, launch.patience, wake()},
        status_timer_{io_},
        contact_timer_{io_} {
    shows_status_ = launch.shows_status && !launch.detaches && console_.err_is_tty &&
                    !console_.no_color && (console_.same_target || !console_.out_is_tty);
    for (std::size_t i = 0; i < kFanOutTimers; ++i) timers_.emplace_back(io_);
    for (std::size_t i = 0; i < launch.hosts.size(); ++i)
      lines_.push_back(std::make_unique<HostLine>(io_));
    destinations_.on_degraded = [this](const Losses& losses) {
      say("warning: " + losses.where + ": " + losses.why +
          "; output is being dropped, the workers go on");
    };
  }
  ~ClusterRun() {
    destinations_.on_degraded = nullptr;
    alive_.end();
    destinations_.stop();
  }
  ClusterRun(const ClusterRun&) = delete;
  ClusterRun& operator=(const ClusterRun&) = delete;

  int run() {
    destinations_.begin_round();
    open_events();
    draw_status();
    for (const auto& warning : launch_.warnings) say("warning: " + warning);
    watch_signals();
    watch_guardian();
    asio::post(io_, alive_.bind([this] { handle(FanOutBegan{}); }));
    io_.run();
    const int code = exit_code_.value_or(to_int(ExitCode::agent_lost));
    if (is_guardian_lost_) return code;
    destinations_.set_status("");
    destinations_.finish([this] { return flush_limits(); });
    auto losses = destinations_.losses();
    tell_losses_of_hosts();
    if (events_) {
      events_->finish({kEventsPatience, kEventsPatience});
      if (auto lost = events_->losses()) losses.push_back(std::move(*lost));
    }
    for (const auto& lost : losses) {
      if (!lost.reader_left)
        say(lost.where + ": " + std::to_string(lost.lines) + " lines were lost: " + lost.why);
    }
    destinations_.finish([] { return FlushLimits{kStoppedHostsPatience, kStoppedHostsPatience}; });
    return code;  // the job's, as on one host
  }

  /// All hosts are to be asked again, as one has no room.
  [[nodiscard]] bool is_to_wait() const {
    return launch_.waits && !is_guardian_lost_ && SlotWait::is_due(state_);
  }
  /// What is waited for, for the user; nothing: it is what was told last.
  [[nodiscard]] std::optional<std::string> wait_words(SlotWait& wait) const {
    std::vector<std::string> why;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const auto& trouble = state_.hosts[i].trouble;
      const bool is_known = trouble && !trouble->text.empty();
      why.push_back(is_known ? describe(*trouble, names_[i], words_)
                             : "another job took its last free slots");
    }
    return wait.tell(state_, names_, why);
  }
  /// A stop signal that came when all had ended; 0: none.
  [[nodiscard]] int late_signal() const { return late_signal_; }

 private:
  using Descriptor = asio::posix::stream_descriptor;

  static FanOutPolicy policy_of(const ClusterLaunch& launch) {
    FanOutPolicy policy;
    policy.at_once = launch.at_once;
    policy.end_patience = launch.end_patience;
    policy.version = version();
    policy.uses_daemons = launch.uses_daemons;
    policy.detaches = launch.detaches;
    policy.leaves_at = launch.leaves_at;
    policy.min_hosts = launch.min_hosts;
    // What they do then is to see the jobs' ends.
    if (launch.uses_daemons) policy.leave_patience = launch.end_patience;
    return policy;
  }

  std::function<void()> wake() {
    return [this, on_wake = alive_.bind([this] {
      pump_.resume();
      destinations_.tell_news();
    })]() mutable { asio::post(io_, on_wake); };
  }

  void say(const std::string& text) { destinations_.say("acc-launch: " + text); }

  // ---- what the hosts tell of the job ----

  static std::vector<std::string> names_of(const ClusterLaunch& launch) {
    std::vector<std::string> names;
    for (const auto& host : launch.hosts) names.push_back(host.name);
    return names;
  }

  void open_events() {
    if (launch_.events_file.empty()) return;
    events_ = std::make_unique<EventLog>(io_, launch_.events_file, launch_.events_size,
                                         launch_.patience, destinations_.on_degraded);
  }

  [[nodiscard]] bool wants_events() const {
    return shows_status_ || events_ || launch_.min_hosts != 0;
  }

  void on_event(HostIndex host, const std::string& line) {
    if (events_) events_->write(line);
    course_.take(host, line);
    const HostWorks works{host, course_.is_at_work(host)};
    asio::post(io_, alive_.bind([this, works] { handle(works); }));
  }

  void draw_status() {
    if (!shows_status_ || exit_code_) return;
    const bool is_stopping = state_.stop_signal != 0;
    const auto seen = std::pair{state_.phase, is_stopping ? UINT64_MAX : course_.changes()};
    if (std::exchange(status_of_, seen) != seen) in_phase_since_ = clock_now();
    const auto in_phase = std::chrono::duration_cast<Millis>(clock_now() - in_phase_since_);
    // What is over sooner isn't worth a line, but for the answer to a Ctrl-C.
    auto text = course_.status(state_, in_phase, clock_now());
    if (in_phase < kLineDelay && !is_stopping) text.clear();
    const auto window = window_size(STDOUT_FILENO, STDERR_FILENO).columns;
    if (!text.empty()) text = cut_to("acc-launch: " + text, (window == 0 ? 80U : window) - 1U);
    destinations_.set_status(std::move(text));
    destinations_.flush();
    status_timer_.expires_after(kLineDelay);
    status_timer_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
      if (!cancelled) draw_status();
    }));
  }

  // ---- output that isn't here ----

  void tell_losses_of_hosts() {
    if (!launch_.uses_daemons) return;
    const bool is_left = launch_.leaves_at != 0 && state_.stop_requests >= launch_.leaves_at;
    std::vector<Losses> others;
    for (HostIndex i = 0; i < names_.size(); ++i) {
      const auto& host = state_.hosts[i];
      auto& lost = lines_[i]->lost;
      if (!host.job.empty() && !host.exit_code && !state_.is_detached && !is_left)
        lost.push_back(output_there(i));
      if (i == 0 && host.exit_code) continue;  // its own are in the report already
      for (const auto& one : lost)
        others.push_back({names_[i] + ": " + one.where, one.why, one.bytes, one.lines});
    }
    add_to_report(others);
    for (HostIndex i = 0; i < names_.size(); ++i) {
      for (const auto& one : lines_[i]->lost) say(describe_loss(one, names_[i]));
    }
  }

  [[nodiscard]] OutputLost output_there(HostIndex i) const {
    const auto& node = launch_.hosts[i].node;
    return {0, 0, "output",
            "it is there: acc-ctl " + (node.empty() ? "" : "--node " + names_[i] + " ") + "logs " +
                state_.hosts[i].job};
  }

  void add_to_report(const std::vector<Losses>& others) {
    const auto& file = launch_.report_file;
    if (file.empty()) return;
    const auto text = read_small_file(file);
    // With --report that host's daemon has no report of its own.
    if (auto& first = lines_[0]->lost; first.empty()) {
      for (const auto& one : losses_in(text))
        first.push_back({one.lines, one.bytes, one.where, one.why});
    }
    const auto whole = others.empty() ? std::nullopt : with_losses(text, others);
    if (!whole) return;
    const auto written = write_report_file(file, *whole, {});
    if (written.has_error())
      say("warning: the report lacks what other hosts lost: " + written.error().what);
  }

  // ---- events in ----

  void handle(const FanOutEvent& event) {
    for (const auto& action : step(state_, event))
      std::visit([this](const auto& one) { act(one); }, action);
  }

  void watch_signals() {
    signals_.async_wait(Descriptor::wait_read, [this](boost::system::error_code error) {
      if (error) return;
      signalfd_siginfo info{};
      while (::read(signals_.native_handle(), &info, sizeof info) == sizeof info)
        on_signal(static_cast<int>(info.ssi_signo));
      if (!exit_code_) watch_signals();
    });
  }

  void on_signal(int signo) {
    // The signal of our parent's death can't be told from another SIGTERM.
    if (signo == SIGTERM && guardian_.pid != 0 && ::getppid() != guardian_.pid)
      return on_guardian_lost();
    const bool is_stop = signo != SIGUSR1 && signo != SIGUSR2;
    if (is_stop) {
      destinations_.shorten_patience(kStoppedHostsPatience);
      pump_.resume();  // what is held, is held until the former time
    }
    handle(FanOutSignal{signo});
    draw_status();
  }

  // Nobody waits for the exit code. The transports end with us, and so do the life lines.
  void on_guardian_lost() {
    is_guardian_lost_ = true;
    io_.stop();
  }

  void watch_guardian() {
    if (guardian_.pid == 0) return;
    const int fd = static_cast<int>(::syscall(SYS_pidfd_open, guardian_.pid, 0U));
    if (fd < 0) return;  // the kernel still sends SIGTERM
    guardian_fd_.assign(fd);
    await_guardian_end();
  }

  void await_guardian_end() {
    guardian_fd_.async_wait(Descriptor::wait_read, [this](boost::system::error_code error) {
      if (error) return;
      if (!is_ready(guardian_fd_.native_handle(), POLLIN)) return await_guardian_end();
      on_guardian_lost();
    });
  }

  // What comes later is not of a connection that lives: acc-launch there is about to notice.
  void take_last_output(HostIndex index) {
    auto& line = *lines_[index];
    for (const auto& reader : {line.out_reader, line.err_reader}) {
      pump_.drain(*reader);
      pump_.close(*reader);
    }
    destinations_.flush();
  }

  void on_exit(HostIndex index, ExitStatus status) {
    handle(TransportExited{index, status, lines_[index]->err->tail()});
  }

  void on_mark(HostIndex index, const LaunchMark& mark) {
    if (const auto* event = std::get_if<HostEvent>(&mark)) return on_event(index, event->line);
    // Posted: the stream that found it is being read.
    asio::post(io_, alive_.bind([this, index, mark] {
      if (const auto* prepared = std::get_if<Prepared>(&mark))
        handle(HostPrepared{index, prepared->version, prepared->daemon});
      if (const auto* lost = std::get_if<OutputLost>(&mark))
        lines_[index]->lost.push_back(*lost);
      if (const auto* started = std::get_if<JobStarted>(&mark))
        handle(HostReportedStart{index, started->id});
      if (const auto* lost = std::get_if<ContactLost>(&mark))
        handle(HostContact{index, HostSilence{clock_now() - lost->silent,
                                              clock_now() - lost->silent + lost->limit}});
      if (std::holds_alternative<ContactBack>(mark)) handle(HostContact{index, std::nullopt});
      if (auto& contact = lines_[index]->contact; contact && std::holds_alternative<Here>(mark))
        contact->answered();
      if (const auto* ended = std::get_if<JobEnded>(&mark))
        handle(HostReportedEnd{index, ended->exit_code});
    }));
  }

  // ---- actions out ----

  void act(const StartTransport& a) {
    auto& line = *lines_[a.host];
    Transport::Pipes pipes;
    const int failed = line.transport.start(
        spawner_, launch_.hosts[a.host].command, pipes, [this, host = a.host](ExitStatus status) {
          take_last_output(host);
          // After the marks that stood in it.
          asio::post(io_, alive_.bind([this, host, status] { on_exit(host, status); }));
        });
    if (failed != 0) {
      asio::post(io_, alive_.bind([this, host = a.host, failed] {
        handle(TransportFailed{host, failed});
      }));
      return;
    }
    const auto targets = [&](bool is_err) {
      WorkerStream::Targets to;
      to.console = &destinations_.console(is_err);
      to.show = Show::prefixed;  // whole lines only
      if (launch_.tags_lines) to.prefix = names_[a.host] + ": ";
      return to;
    };
    line.out = std::make_unique<HostStream>(
        targets(false), token_,
        [this, host = a.host](const LaunchMark& mark) { on_mark(host, mark); });
    HostStream::OnMark on_event;
    if (wants_events() || !launch_.uses_daemons)
      on_event = [this, host = a.host](const LaunchMark& mark) { on_mark(host, mark); };
    line.err = std::make_unique<HostStream>(targets(true), token_, std::move(on_event));
    line.out_fd = pipes.out.get();
    line.err_fd = pipes.err.get();
    destinations_.console(false).reserve(pipe_capacity(pipes.out.get()));
    destinations_.console(true).reserve(pipe_capacity(pipes.err.get()));
    line.out_reader = pump_.add(std::move(pipes.out), *line.out);
    line.err_reader = pump_.add(std::move(pipes.err), *line.err);
    line.transport.send(first_orders());
  }

  [[nodiscard]] std::string first_orders() const {
    std::string text;
    text.reserve(std::size_t{64} << 10U);  // or growing leaves copies of the secret behind
    if (secret_) text.append(secret_->view()) += '\n';
    if (!launch_.folder.empty()) text += encode(SetFolder{launch_.folder});
    for (const auto& variable : launch_.variables)
      text += encode(SetVariable{variable.name, variable.value});
    if (wants_events()) text += encode(SendEvents{});
    return text + encode(Prepare{token_});
  }

  void act(const SendGo& a) {
    // The first host reports the job from now on, on success too; it may be this machine.
    if (a.host == 0) note_report_written(guardian_);
    auto& line = *lines_[a.host];
    if (!std::exchange(has_begun_, true)) record();  // before anything runs there
    line.err->open();
    line.transport.send(encode(Go{}));
    if (launch_.uses_daemons) return;  // acc-ctl bridge watches its daemon
    line.contact.emplace(clock_now());
    if (!std::exchange(looks_for_contact_, true)) look_for_contact();
  }
  void look_for_contact() {
    for (HostIndex i = 0; i < lines_.size(); ++i) {
      const auto& host = state_.hosts[i];
      auto& line = *lines_[i];
      if (host.phase != HostPhase::running || host.exit_code || !line.contact) continue;
      const auto heard = std::max(line.out->last_heard(), line.err->last_heard());
      const bool has_unread = is_ready(line.out_fd, POLLIN) || is_ready(line.err_fd, POLLIN);
      const auto found = line.contact->look(clock_now(), heard, has_unread);
      if (found.asks) line.transport.send(encode(AskContact{}));
      if (found.silent_since && !host.silence)
        handle(HostContact{i, HostSilence{*found.silent_since, {}}});
      if (!found.silent_since && host.silence) handle(HostContact{i, std::nullopt});
    }
    if (exit_code_) return;
    contact_timer_.expires_after(ContactWatch::kEvery);
    contact_timer_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
      if (!cancelled) look_for_contact();
    }));
  }
  void act(const SendSignal& a) { lines_[a.host]->transport.send(encode(PassSignal{a.signo})); }
  void act(const SendLeave& a) { lines_[a.host]->transport.send(encode(Leave{})); }
  void act(const RecordLaunch&) { record(); }  // with the ids of all jobs

  // A job that acc-ctl doesn't know can still be seen on each host.
  void record() {
    if (!launch_.uses_daemons || !launch_.is_recorded) return;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    LaunchRecord record{launch_.id, launch_.socket, launch_.folder,
                        std::chrono::duration_cast<Millis>(now).count(), launch_.detaches, {}};
    for (std::size_t i = 0; i < names_.size(); ++i)
      record.parts.push_back({names_[i], launch_.hosts[i].node, state_.hosts[i].job});
    const auto written = write_record(record);
    if (!written && !std::exchange(has_no_record_, true))
      say("warning: acc-ctl on this machine will not know the job: " + written.error().what);
  }

  void act(const CloseLifeLine& a) { lines_[a.host]->transport.close_line(); }
  void act(const KillTransport& a) { lines_[a.host]->transport.kill(); }
  void act(const ArmFanOutTimer& a) {
    auto& timer = timers_[static_cast<std::size_t>(a.timer)];
    timer.expires_after(a.delay);
    timer.async_wait(alive_.bind([this, which = a.timer](boost::system::error_code cancelled) {
      if (!cancelled) handle(FanOutTimerFired{which});
    }));
  }
  void act(const DisarmFanOutTimer& a) { timers_[static_cast<std::size_t>(a.timer)].cancel(); }
  void act(const TellTroubles&) {
    if (is_to_wait()) return;  // wait_words
    const auto text = describe_troubles(state_, names_, words_);
    std::string line;
    for (const auto& part : split(text, '\n')) {
      const auto words = trim(part);
      if (!words.empty()) line.append(line.empty() ? "" : " ").append(words);
    }
    note_refusal(guardian_, line);
    say(text);
  }
  void act(const TellLost& a) { say(describe_lost(a, names_[a.host], words_)); }
  void act(const TellMissed& a) { say(describe_missed(state_.hosts[a.host], names_[a.host])); }
  void act(const TellContact& a) {
    const auto& silence = state_.hosts[a.host].silence;
    say(silence ? "warning: " + silence_words(names_[a.host], *silence, clock_now())
                : names_[a.host] + " answers again");
  }
  void act(const TellAlone&) {
    say("warning: no host is in contact: the network of this machine may be down. The job goes on "
        "there, and is waited for");
  }
  void act(const SendWaitLonger& a) { lines_[a.host]->transport.send(encode(WaitLonger{})); }
  void act(const TellLeft& a) { say(describe_left(state_.hosts[a.host], names_[a.host], words_)); }
  void act(const TellNotStarted& a) {
    say("the job is stopped on all hosts, as " + names_[a.host] + " could not start its part" +
        (is_to_wait() ? ", and all are asked again" : ""));
  }
  void act(const TellStoppedEarly& a) {
    say("stopped by " + signal_name(a.signo) + " before anything was started");
  }
  void act(const TellLate& a) {
    say("the job has ended on other hosts, and " + names_[a.host] +
        " doesn't follow: its connection is closed, so acc-launch there kills the workers");
  }
  void act(const FinishFanOut& a) {
    exit_code_ = a.exit_code;
    if (state_.is_detached && a.exit_code == 0) {
      const auto line = launch_.id + "\n";
      [[maybe_unused]] const auto n = ::write(STDOUT_FILENO, line.data(), line.size());
    }
    const auto& first = state_.hosts.front();
    const bool all_ended = std::ranges::all_of(
        state_.hosts, [](const FanOutHost& host) { return host.exit_code.has_value(); });
    // What has ended needs no record; where an end wasn't seen, something may still run.
    if (launch_.uses_daemons && launch_.is_recorded && (all_ended || !has_begun_))
      remove_record(launch_.id);
    // The first host's agent reports the job, if it could.
    const bool is_untold = !first.exit_code && !first.trouble && a.exit_code != 0 &&
                           state_.stop_signal == 0 && !state_.has_failed;
    if (is_untold)
      say("job failed (exit code " + std::to_string(a.exit_code) + "); " + names_.front() +
          ", which would have reported it, was lost");
    io_.stop();
  }

  FlushLimits flush_limits() {
    signalfd_siginfo info{};
    while (::read(signals_.native_handle(), &info, sizeof info) == sizeof info) {
      const auto signo = static_cast<int>(info.ssi_signo);
      if (signo != SIGUSR1 && signo != SIGUSR2) late_signal_ = signo;
    }
    if (late_signal_ != 0 || state_.stop_requests >= 2)
      return {kHurriedHostsFlush, kHurriedHostsFlush};
    if (state_.stop_signal == 0) return {launch_.patience, kWithoutEnd};
    return {std::min(launch_.patience, kStoppedHostsPatience), kStoppedHostsFlush};
  }

  const ClusterLaunch& launch_;
  const GuardianLink& guardian_;
  std::optional<rendezvous::SecretBytes> secret_;
  const ConsoleFacts console_;
  LaunchCourse course_;
  const std::vector<std::string> names_;
  const TransportWords words_;
  const std::string token_ = random_name() + random_name();
  FanOutState state_;

  asio::io_context io_{1};
  Alive alive_;  // before what is destroyed after it; ended by our destructor
  Descriptor signals_;
  Descriptor guardian_fd_;
  Pump pump_;
  Destinations destinations_;
  std::unique_ptr<EventLog> events_;  ///< --events
  asio::steady_timer status_timer_;
  asio::steady_timer contact_timer_;
  bool shows_status_ = false;
  std::pair<FanOutPhase, std::uint64_t> status_of_{};
  Instant in_phase_since_ = clock_now();
  Spawner spawner_;
  std::vector<std::unique_ptr<HostLine>> lines_;
  std::vector<asio::steady_timer> timers_;
  std::optional<int> exit_code_;
  bool is_guardian_lost_ = false;
  int late_signal_ = 0;
  bool has_no_record_ = false;
  bool has_begun_ = false;  ///< a host was told to go
  bool looks_for_contact_ = false;
};

/// @return the stop signal that ended the pause, SIGTERM also for the guardian's death; 0: it is
/// over
int pause_between_tries(Millis length, const GuardianLink& guardian) {
  const UniqueFd signals = open_hosts_signals();
  const Instant end = clock_now() + length;
  for (;;) {
    if (guardian.pid != 0 && ::getppid() != guardian.pid) return SIGTERM;
    const auto left = std::chrono::ceil<Millis>(end - clock_now()).count();
    if (left <= 0) return 0;
    pollfd fd{signals.get(), POLLIN, 0};
    ::poll(&fd, 1, static_cast<int>(left));
    signalfd_siginfo info{};
    while (::read(signals.get(), &info, sizeof info) == sizeof info) {
      const auto signo = static_cast<int>(info.ssi_signo);
      if (signo != SIGUSR1 && signo != SIGUSR2) return signo;
    }
  }
}

/// Once, or until no host of a launch that waits is full.
int run_tries(const ClusterLaunch& launch, const GuardianLink& guardian) {
  SlotWait wait;
  for (;;) {
    std::optional<rendezvous::SecretBytes> secret;
    if (launch.sends_secret) {
      auto made = rendezvous::random_secret();
      if (!made) {
        std::fprintf(stderr, "acc-launch: %s\n", made.error().what.c_str());
        return to_int(ExitCode::resources);
      }
      secret = std::move(*made);
    }
    int signo = 0;
    {
      ClusterRun run{launch, guardian, std::move(secret)};
      const int code = run.run();
      if (!run.is_to_wait()) return code;
      if (const auto text = run.wait_words(wait))
        std::fprintf(stderr, "acc-launch: %s\n", text->c_str());
      signo = run.late_signal();
    }
    if (signo == 0) signo = pause_between_tries(wait.pause(random_fraction()), guardian);
    if (signo == 0) continue;
    std::fprintf(stderr, "acc-launch: stopped by %s before anything was started\n",
                 signal_name(signo).c_str());
    if (launch.is_recorded) remove_record(launch.id);
    return 128 + signo;
  }
}

}  // namespace

int run_on_hosts(const ClusterLaunch& launch, const GuardianLink& guardian) {
  if (!outlive(guardian)) return to_int(ExitCode::agent_lost);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);
  DescriptorLimit limit;
  const auto needed =
      count_open_descriptors() + kDescriptorsOfOurs + kDescriptorsOfHost * launch.hosts.size();
  if (needed > limit.now()) {
    std::fprintf(stderr,
                 "acc-launch: %zu hosts need %zu descriptors, and the limit is %zu: raise it with "
                 "ulimit -n, or name fewer hosts (exit code %d)\n",
                 launch.hosts.size(), static_cast<std::size_t>(needed),
                 static_cast<std::size_t>(limit.now()), to_int(ExitCode::resources));
    return to_int(ExitCode::resources);
  }
  if (launch.uses_daemons) note_orphan_patience(guardian, kStopPatience);
  note_hosts(guardian);
  try {
    return run_tries(launch, guardian);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "acc-launch: the job's hosts can't be watched any longer: %s\n", e.what());
    return to_int(ExitCode::agent_lost);
  }
}

}  // namespace acc::agent
