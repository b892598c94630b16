#include "agent/fanout/cluster_run.hpp"

#include "agent/delivered_signals.hpp"
#include "agent/event_log.hpp"
#include "agent/fanout/fan_out.hpp"
#include "agent/fanout/host_line.hpp"
#include "agent/fanout/launch_course.hpp"
#include "agent/fanout/launch_record.hpp"
#include "agent/fanout/launch_report.hpp"
#include "agent/fanout/launch_status_line.hpp"
#include "agent/fanout/orders.hpp"
#include "agent/fanout/trouble_text.hpp"
#include "agent/guardian_watch.hpp"
#include "agent/output/console_facts.hpp"
#include "agent/output/destinations.hpp"
#include "agent/output/pump.hpp"
#include "agent/report.hpp"
#include "agent/report_file.hpp"
#include "agent/shell_interrupt.hpp"
#include "agent/signal_sender.hpp"
#include "agent/small_file.hpp"
#include "agent/spawn.hpp"
#include "common/alive.hpp"
#include "common/exit_codes.hpp"
#include "common/passed_signals.hpp"
#include "common/random.hpp"
#include "common/text.hpp"
#include "common/version.hpp"
#include "rendezvous/secret.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <fcntl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
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
constexpr Millis kWithoutEnd{std::chrono::hours{24 * 365}};

ConsoleFacts facts_without_journal() {
  auto facts = detect_console();
  facts.journal_out = facts.journal_err = false;  // lines of many hosts are text
  return facts;
}

/// The state machine, its events and its actions, on one thread.
class ClusterRun {
 public:
  ClusterRun(const ClusterLaunch& launch, const GuardianLink& guardian,
             std::optional<rendezvous::SecretBytes> secret, SlotWait& wait)
      : launch_{launch},
        guardian_{guardian},
        secret_{std::move(secret)},
        wait_{wait},
        console_{facts_without_journal()},
        course_{names_of(launch)},
        names_{names_of(launch)},
        words_{launch.is_ssh, launch.transport, version(), launch.uses_daemons},
        state_{fan_out_over(launch.hosts.size(), policy_of(launch))},
        signals_{io_, open_hosts_signals().release()},
        reader_{io_},
        guardian_watch_{io_, guardian},
        pump_{io_, [this] { destinations_.flush(); }},
        destinations_{console_, OutputOptions{}, nullptr, launch.patience, wake()},
        status_line_{io_, destinations_, course_, state_},
        contact_timer_{io_} {
    if (launch.shows_status && !launch.detaches && console_.err_is_tty && !console_.no_color &&
        (console_.same_target || !console_.out_is_tty))
      status_line_.open();
    for (std::size_t i = 0; i < kFanOutTimers; ++i) timers_.emplace_back(io_);
    for (std::size_t i = 0; i < launch.hosts.size(); ++i)
      lines_.push_back(std::make_unique<HostLine>(io_, pump_, destinations_));
    destinations_.program = launch.program;
    destinations_.on_degraded = [this](const Losses& losses) {
      // Who only follows a job has nothing to do without a reader.
      if (losses.reader_left && launch_.leaves_at != 0) return on_reader_gone();
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
    status_line_.draw();
    for (const auto& warning : launch_.warnings) say("warning: " + warning);
    watch_signals();
    watch_reader();
    guardian_watch_.begin([this] { on_guardian_lost(); });
    asio::post(io_, alive_.bind([this] { handle(FanOutBegan{}); }));
    io_.run();
    const int code = exit_code_.value_or(to_int(ExitCode::agent_lost));
    if (is_guardian_lost_) return code;
    destinations_.set_status("");
    destinations_.finish([this] { return flush_limits(); });
    auto losses = destinations_.losses();
    const auto others_lost = tell_losses_of_hosts();
    if (events_) {
      events_->finish({kEventsPatience, kEventsPatience});
      if (auto lost = events_->losses()) losses.push_back(std::move(*lost));
    }
    complete_report(code, losses, others_lost);
    for (const auto& lost : losses) {
      if (!lost.reader_left)
        say(lost.where + ": " + std::to_string(lost.lines) + " lines were lost: " + lost.why);
    }
    destinations_.finish([] { return FlushLimits{kStoppedHostsPatience, kStoppedHostsPatience}; });
    return code;  // the job's, as on one host
  }

  /// All hosts are to be asked again, as one has no room.
  [[nodiscard]] bool is_to_wait() const {
    return launch_.waits && !is_guardian_lost_ && wait_.is_due(state_);
  }
  /// What is waited for, for the user; nothing: it is what was told last.
  [[nodiscard]] std::optional<std::string> wait_words() const {
    std::vector<std::string> why;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const auto& trouble = state_.hosts[i].trouble;
      const bool is_known =
          trouble && (trouble->what != HostTrouble::What::exited || !trouble->text.empty());
      why.push_back(is_known ? describe(*trouble, names_[i], words_)
                             : "another job took its last free slots");
    }
    return wait_.tell(state_, names_, why);
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
    policy.is_reader = launch.is_reader;
    policy.leaves_at = launch.leaves_at;
    policy.min_hosts = launch.min_hosts;
    policy.lost_patience = launch.lost_patience;
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

  void say(const std::string& text) { destinations_.say(launch_.program + ": " + text); }

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
    return status_line_.is_open() || events_ || (launch_.min_hosts != 0 && launch_.leaves_at == 0);
  }

  void on_event(HostIndex host, const std::string& line) {
    if (events_) events_->write(line);
    course_.take(host, line);
    const HostWorks works{host, course_.is_at_work(host), course_.is_ending(host)};
    asio::post(io_, alive_.bind([this, works] { handle(works); }));
  }

  // ---- output that isn't here ----

  /// @return what the report lacks of them
  std::vector<Losses> tell_losses_of_hosts() {
    if (!launch_.uses_daemons) return {};
    LostOutput lost;
    for (const auto& line : lines_) lost.push_back(std::move(line->lost));
    lost = with_output_left_there(std::move(lost), launch_, state_);
    auto unreported = losses_to_report(lost, launch_, state_);
    // With --report the first host's daemon has no report of its own.
    if (lost.front().empty() && !launch_.report_file.empty()) {
      for (const auto& one : losses_in(read_small_file(launch_.report_file)))
        lost.front().push_back({one.lines, one.bytes, one.where, one.why});
    }
    for (HostIndex i = 0; i < names_.size(); ++i) {
      for (const auto& one : lost[i]) say(describe_loss(one, names_[i]));
    }
    return unreported;
  }

  /// The first host's agent wrote it.
  void complete_report(int code, const std::vector<Losses>& own,
                       const std::vector<Losses>& others) {
    const auto& file = launch_.report_file;
    if (file.empty()) return;
    const auto written_there = read_small_file(file);
    const auto reported = exit_code_in(written_there);
    if (!reported) return;
    auto whole = written_there;
    if (const auto end = end_to_report(state_, names_, code, *reported))
      whole = with_end(whole, *end).value_or(whole);
    auto lost = own_losses_to_report(own);
    lost.insert(lost.end(), others.begin(), others.end());
    if (!lost.empty()) whole = with_losses(whole, lost).value_or(whole);
    if (whole == written_there) return;
    const auto written = write_report_file(file, whole, {});
    if (written.has_error())
      say("warning: the report has the end and the losses of the first host alone: " +
          written.error().what);
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
      while (::read(signals_.native_handle(), &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGINT && info.ssi_code == SI_KERNEL) note_interrupt_key();
        const int signo = static_cast<int>(info.ssi_signo);
        if (delivered_.take(signo, sender_of(info), clock_now())) on_signal(signo);
      }
      if (!exit_code_) watch_signals();
    });
  }

  [[nodiscard]] DeliveredSignals::From sender_of(const signalfd_siginfo& info) const {
    if (static_cast<pid_t>(info.ssi_pid) == guardian_.pid) return DeliveredSignals::From::guardian;
    return is_of_job_manager(info) ? DeliveredSignals::From::manager
                                   : DeliveredSignals::From::other;
  }

  // A job may be silent for hours: without it nothing is written that would fail.
  void watch_reader() {
    struct stat info {};
    const bool is_pipe = ::fstat(STDOUT_FILENO, &info) == 0 && S_ISFIFO(info.st_mode);
    if (launch_.leaves_at == 0 || !is_pipe) return;
    const std::string path = "/proc/self/fd/" + std::to_string(STDOUT_FILENO);
    // Opened anew, so that O_NONBLOCK is ours alone.
    const int fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno == ENXIO ? on_reader_gone() : void();
    reader_.assign(fd);
    reader_.async_wait(Descriptor::wait_error,
                       alive_.bind([this](boost::system::error_code cancelled) {
                         if (!cancelled) on_reader_gone();
                       }));
  }
  void on_reader_gone() {
    asio::post(io_, alive_.bind([this] { handle(FanOutReaderGone{}); }));
  }

  void on_signal(int signo) {
    // The signal of our parent's death can't be told from another SIGTERM.
    if (signo == SIGTERM && is_guardian_gone(guardian_)) return on_guardian_lost();
    if (ends_any_job(signo)) {
      destinations_.shorten_patience(kStoppedHostsPatience);
      pump_.resume();  // what is held, is held until the former time
    }
    handle(FanOutSignal{signo});
    status_line_.draw();
  }

  // Nobody waits for the exit code. The transports end with us, and so do the life lines.
  void on_guardian_lost() {
    is_guardian_lost_ = true;
    io_.stop();
  }

  void on_exit(HostIndex index, ExitStatus status) {
    handle(TransportExited{index, status, lines_[index]->last_words()});
  }

  void on_mark(HostIndex index, const LaunchMark& mark) {
    if (const auto* event = std::get_if<HostEvent>(&mark)) return on_event(index, event->line);
    // Posted: the stream that found it is being read.
    asio::post(io_, alive_.bind([this, index, mark] {
      if (const auto* prepared = std::get_if<Prepared>(&mark))
        handle(HostPrepared{index, prepared->version, prepared->daemon});
      if (const auto* lost = std::get_if<OutputLost>(&mark)) lines_[index]->lost.push_back(*lost);
      if (const auto* started = std::get_if<JobStarted>(&mark))
        handle(HostReportedStart{index, started->id});
      if (const auto* lost = std::get_if<ContactLost>(&mark))
        handle(HostContact{index, HostSilence{clock_now() - lost->silent,
                                              clock_now() - lost->silent + lost->limit}});
      if (std::holds_alternative<ContactBack>(mark)) handle(HostContact{index, std::nullopt});
      if (std::holds_alternative<Here>(mark)) lines_[index]->answered();
      if (const auto* ended = std::get_if<JobEnded>(&mark))
        handle(HostReportedEnd{index, ended->exit_code, clock_now()});
    }));
  }

  // ---- actions out ----

  void act(const StartTransport& a) {
    const auto host = a.host;
    HostLine::Settings settings;
    settings.command = launch_.hosts[host].command;
    settings.heeds_signals = launch_.hosts[host].is_direct;
    if (launch_.tags_lines) settings.prefix = names_[host] + ": ";
    settings.token = token_;
    settings.on_mark = [this, host](const LaunchMark& mark) { on_mark(host, mark); };
    if (wants_events() || !launch_.uses_daemons) settings.on_event = settings.on_mark;
    const int failed =
        lines_[host]->start(spawner_, std::move(settings), [this, host](ExitStatus status) {
          // After the marks that stood in it.
          asio::post(io_, alive_.bind([this, host, status] { on_exit(host, status); }));
        });
    if (failed == 0) return lines_[host]->send(first_orders());
    asio::post(io_, alive_.bind([this, host, failed] { handle(TransportFailed{host, failed}); }));
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
    line.open();
    line.send(encode(Go{}));
    if (launch_.uses_daemons) return;  // acc-ctl bridge watches its daemon
    line.watch_contact();
    if (!std::exchange(looks_for_contact_, true)) look_for_contact();
  }
  void look_for_contact() {
    for (HostIndex i = 0; i < lines_.size(); ++i) {
      const auto& host = state_.hosts[i];
      auto& line = *lines_[i];
      if (host.phase != HostPhase::running || host.exit_code) continue;
      const auto found = line.look_for_contact();
      if (!found) continue;
      if (found->asks) line.send(encode(AskContact{}));
      if (found->silent_since && !host.silence)
        handle(HostContact{i, HostSilence{*found->silent_since, {}}});
      if (!found->silent_since && host.silence) handle(HostContact{i, std::nullopt});
    }
    if (exit_code_) return;
    contact_timer_.expires_after(ContactWatch::kEvery);
    contact_timer_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
      if (!cancelled) look_for_contact();
    }));
  }
  void act(const SendSignal& a) { lines_[a.host]->send(encode(PassSignal{a.signo})); }
  void act(const SendLeave& a) { lines_[a.host]->send(encode(Leave{})); }
  void act(const RecordLaunch&) { record(); }  // with the ids of all jobs

  // A job that acc-ctl doesn't know can still be seen on each host.
  void record() {
    if (!launch_.uses_daemons || !launch_.is_recorded) return;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    LaunchRecord record{launch_.id,       launch_.socket,
                        launch_.folder,   std::chrono::duration_cast<Millis>(now).count(),
                        launch_.detaches, {},
                        launch_.node,     {},
                        launch_.min_hosts};
    for (std::size_t i = 0; i < names_.size(); ++i)
      record.parts.push_back({names_[i], launch_.hosts[i].node, state_.hosts[i].job});
    const auto written = write_record(record);
    if (!written && !std::exchange(has_no_record_, true))
      say("warning: acc-ctl on this machine will not know the job: " + written.error().what);
  }

  void act(const CloseLifeLine& a) { lines_[a.host]->close(); }
  void act(const KillTransport& a) { lines_[a.host]->kill(); }
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
    say("warning: no host is in contact: the acc-agent or the network of this machine may be down. "
        "The job goes on there, and is waited for");
  }
  void act(const SendWaitLonger& a) { lines_[a.host]->send(encode(WaitLonger{})); }
  void act(const TellLeft& a) {
    say(describe_left(a, state_.hosts[a.host], names_[a.host], words_));
  }
  void act(const TellNotStarted& a) {
    say("the job is stopped on all hosts, as " + names_[a.host] + " could not start its part" +
        (is_to_wait() ? ", and all are asked again" : ""));
  }
  void act(const TellStoppedEarly& a) {
    say("stopped by " + signal_name(a.signo) + " before anything was started");
  }
  void act(const TellAsked&) {
    say("asked " + launch_.id + " to stop; Ctrl-C again leaves it alone");
  }
  void act(const TellLetGo&) {
    // A reader of logs never asked it for anything.
    if (launch_.leaves_at > 1) say("left " + launch_.id + " alone: acc-ctl attach " + launch_.id);
  }
  void act(const TellLate& a) {
    say("the job has ended on other hosts, and " + names_[a.host] +
        " doesn't follow: its connection is closed, so acc-launch there kills the workers");
  }
  void act(const FinishFanOut& a) {
    exit_code_ = a.exit_code;
    status_line_.close();
    const bool is_over = has_ended_before_detach(state_);
    if (is_over || (state_.is_detached && a.exit_code == 0)) {
      const auto line = launch_.id + "\n";
      [[maybe_unused]] const auto n = ::write(STDOUT_FILENO, line.data(), line.size());
    }
    if (is_over) {
      record();
      say(launch_.id + " has ended already, with exit code " + std::to_string(a.exit_code) +
          ": acc-ctl status " + launch_.id);
    }
    const auto& first = state_.hosts.front();
    const bool all_ended = std::ranges::all_of(
        state_.hosts, [](const FanOutHost& host) { return host.exit_code.has_value(); });
    // What has ended needs no record; where an end wasn't seen, something may still run.
    if (launch_.uses_daemons && launch_.is_recorded && !is_over && (all_ended || !has_begun_))
      remove_record(launch_.id);
    // The first host's agent reports the job, if it could; where the coordinator went to another
    // one, that one's did.
    const bool is_untold = !first.exit_code && !first.trouble && a.exit_code != 0 &&
                           state_.stop_signal == 0 && !state_.left && !state_.has_failed;
    if (is_untold)
      say(names_.front() + ", the first host, was lost; exit code " + std::to_string(a.exit_code));
    io_.stop();
  }

  FlushLimits flush_limits() {
    signalfd_siginfo info{};
    while (::read(signals_.native_handle(), &info, sizeof info) == sizeof info) {
      const auto signo = static_cast<int>(info.ssi_signo);
      if (ends_any_job(signo)) late_signal_ = signo;
    }
    if (late_signal_ != 0 || state_.left || state_.stop_requests >= 2)
      return {kHurriedHostsFlush, kHurriedHostsFlush};
    if (state_.stop_signal == 0) return {launch_.patience, kWithoutEnd};
    return {std::min(launch_.patience, kStoppedHostsPatience), kStoppedHostsFlush};
  }

  const ClusterLaunch& launch_;
  const GuardianLink& guardian_;
  std::optional<rendezvous::SecretBytes> secret_;
  SlotWait& wait_;  ///< of all tries
  const ConsoleFacts console_;
  LaunchCourse course_;
  const std::vector<std::string> names_;
  const TransportWords words_;
  const std::string token_ = random_name() + random_name();
  FanOutState state_;

  asio::io_context io_{1};
  Alive alive_;  // before what is destroyed after it; ended by our destructor
  Descriptor signals_;
  DeliveredSignals delivered_;
  Descriptor reader_;  ///< our standard output, where it is a pipe and we only follow
  GuardianWatch guardian_watch_;
  Pump pump_;
  Destinations destinations_;
  std::unique_ptr<EventLog> events_;  ///< --events
  LaunchStatusLine status_line_;
  asio::steady_timer contact_timer_;
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

}  // namespace

UniqueFd open_hosts_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  struct sigaction hang_up {};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  const bool has_nohup = hang_up.sa_handler == SIG_IGN;
  for (const int signo : kPassedSignals) {
    if (signo != SIGHUP || !has_nohup) ::sigaddset(&set, signo);
  }
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return UniqueFd{::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)};
}

ClusterRunEnd run_cluster_once(const ClusterLaunch& launch, const GuardianLink& guardian,
                               std::optional<rendezvous::SecretBytes> secret, SlotWait& wait) {
  ClusterRun run{launch, guardian, std::move(secret), wait};
  ClusterRunEnd end;
  end.exit_code = run.run();
  end.is_to_wait = run.is_to_wait();
  if (end.is_to_wait) end.words = run.wait_words();
  end.late_signal = run.late_signal();
  return end;
}

}  // namespace acc::agent
