#include "agent/daemon/daemon.hpp"

#include "agent/daemon/api_routes.hpp"
#include "agent/daemon/connection_bounds.hpp"
#include "agent/daemon/http_server.hpp"
#include "agent/daemon/http_socket_file.hpp"
#include "agent/daemon/login_user.hpp"
#include "agent/daemon/loopback_door.hpp"
#include "agent/daemon/peer_api.hpp"
#include "agent/daemon/peer_door.hpp"
#include "agent/daemon/peer_proxy.hpp"
#include "agent/daemon/signal_loop.hpp"
#include "agent/daemon/startup_pages.hpp"
#include "agent/daemon/state_mark.hpp"
#include "agent/service_notify.hpp"
#include "agent/service_watchdog.hpp"
#include "agent/small_file.hpp"
#include "common/exit_codes.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"
#include "common/made_folder.hpp"
#include "common/text.hpp"
#include "common/unmapped_id.hpp"
#include "common/version.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/steady_timer.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <optional>
#include <tuple>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

constexpr Millis kStopTime{2'000};  ///< for replies that are being made
constexpr Millis kLockTime{1'000};  ///< a predecessor that was killed may still be on its way out

void say(const std::string& text) { std::fprintf(stderr, "acc-agent: %s\n", text.c_str()); }

std::string describe_holder(const Settings& settings) {
  const auto [pid, host] = holder_in(read_small_file(settings.state_dir + "/lock"));
  const auto where = host.empty() || host == host_name() ? "" : " on " + printable(host, 80);
  return "another acc-agent" + (pid.empty() ? "" : " (pid " + printable(pid, 20) + where + ")") +
         " serves the state folder '" + settings.state_dir +
         "': stop it, or choose another with --state-dir, and a --jobs-dir of its own where there "
         "are job files";
}

bool has_account(uid_t uid) {
  const auto user = look_up_user(uid, 0);
  return user && user->has_account;
}

void tell_of_failed_handler(const std::exception& failed) noexcept {
  try {
    log::error("daemon_handler_failed", {{"why", failed.what()}});
  } catch (const std::exception&) {  // no memory for that either
  }
}

class Daemon {
 public:
  Daemon(LoadSettings load, Settings settings)
      : load_{std::move(load)},
        settings_{std::move(settings)},
        notifier_{::getpid()},
        signals_{io_, {SIGTERM, SIGINT, SIGHUP}, [this](int signo) { on_signal(signo); }},
        watchdog_{io_, notifier_, [this] { return is_well(); }},
        stop_timer_{io_} {}

  int run(const StartJobs& start_jobs);

 private:
  Result<void> open(const StartJobs& start_jobs);
  Result<void> listen();
  Result<void> load_job_files();
  Result<void> listen_to_peers();
  Result<void> listen_to_browsers();
  [[nodiscard]] std::size_t connections() const;
  void bound_connections();
  void run_loop();
  void on_signal(int signo);
  asio::awaitable<void> reload();
  asio::awaitable<Result<void>> reload_jobs();
  void take_fresh(Settings fresh);
  void arm_stop_timer();
  void stop(int signo);
  [[nodiscard]] bool is_well() const;
  [[nodiscard]] std::string status() const;

  LoadSettings load_;
  Settings settings_;
  ServiceNotifier notifier_;
  asio::io_context io_{1};
  /// The loop ends by stop() alone. Without it a thread of the pool that has just handed over its
  /// last result could end the loop before it was run.
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  SignalLoop signals_;
  ServiceWatchdog watchdog_;
  asio::steady_timer stop_timer_;
  JobsRun run_;
  std::unique_ptr<FileGrowth> growth_;
  ConnectionBounds bounds_;
  std::optional<ApiContext> api_;
  QuotaOwners owners_{io_, ::geteuid(), has_account};
  std::optional<SocketFile> socket_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<ClusterSecret> secret_;
  std::unique_ptr<PeerProxy> proxy_;
  std::unique_ptr<PeerApi> peer_api_;        ///< with --listen
  std::unique_ptr<HttpServer> peer_server_;  ///< with --listen
  std::unique_ptr<PeerDoor> door_;
  std::unique_ptr<LoopbackDoor> loopback_;  ///< with --http
  Jobs::Subscription told_;
  bool is_stopping_ = false;
};

Result<void> Daemon::open(const StartJobs& start_jobs) {
  const bool is_root = ::geteuid() == 0;
  // A predecessor that was killed may hold the lock for a moment: by a child before its exec.
  const Instant deadline = clock_now() + kLockTime;
  for (;;) {
    auto run = start_jobs(io_, settings_);
    if (run) {
      run_ = std::move(*run);
      break;
    }
    if (run.error().code != Errc::unavailable) return run.error();
    if (clock_now() >= deadline) return Error{Errc::unavailable, describe_holder(settings_)};
    constexpr timespec kPause{0, 50'000'000};
    ::nanosleep(&kPause, nullptr);
  }
  bound_connections();
  growth_ = std::make_unique<FileGrowth>(io_);
  secret_ = std::make_unique<ClusterSecret>(settings_.secret_file, is_root);
  ProxySettings proxy;
  proxy.nodes = settings_.nodes;
  proxy.kept = bounds_.kept;
  proxy.listed = bounds_.listed;
  // All nodes of a cluster listen at the same port, unless a name says another.
  if (!settings_.listen.empty()) proxy.port = parse_listen_address(settings_.listen)->port;
  proxy_ = std::make_unique<PeerProxy>(io_, *run_.jobs, *secret_, std::move(proxy));
  api_.emplace(ApiContext{*run_.jobs, *growth_, ::geteuid(), proxy_.get()});
  HttpSettings http;
  http.own = ::geteuid();
  http.owners = &owners_;
  // A user's own socket is that user's alone (0600), by numbers that the kernel doesn't confuse.
  if (is_root) http.unmapped = uid_of_unmapped();
  http.limits = bounds_.clients;
  server_ = std::make_unique<HttpServer>(io_, http, [this](Principal who, HttpRequest request) {
    return answer(*api_, std::move(who), std::move(request));
  });
  if (!settings_.listen.empty()) {
    const auto listening = listen_to_peers();
    if (!listening) return listening.error();
  }
  if (!settings_.http.empty()) {
    const auto listening = listen_to_browsers();
    if (!listening) return listening.error();
  }
  const auto listening = listen();
  return listening ? load_job_files() : listening;
}

// Behind the doors: one that can't serve, as another daemon does, starts no job of theirs. It would
// be there twice.
Result<void> Daemon::load_job_files() {
  std::optional<Result<void>> loaded;
  asio::co_spawn(io_, run_.reload(settings_), [&](std::exception_ptr failed, Result<void> done) {
    loaded = failed ? Error{Errc::exhausted, "can't read the job files: " + what_of(failed)}
                    : std::move(done);
  });
  while (!loaded) {
    try {
      io_.run_one();
    } catch (const std::exception& error) {
      tell_of_failed_handler(error);
    }
  }
  return *loaded;
}

// Before a door is opened, and behind start_jobs, which has raised the limit to the hard one.
void Daemon::bound_connections() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = RLIM_INFINITY;
  const Doors doors{!settings_.listen.empty(), !settings_.http.empty()};
  bounds_ = connection_bounds(limit.rlim_cur, doors);
  if (!bounds_.is_lowered) return;
  const auto wanted = std::to_string(descriptors_wanted(doors));
  log::warn("connections_lowered", {{"descriptors", limit.rlim_cur},
                                    {"connections", bounds_.clients.connections},
                                    {"of_a_user", bounds_.clients.connections_of_a_user},
                                    {"of_nodes", doors.has_peers ? bounds_.peers.connections : 0},
                                    {"cure", "raise the limit of descriptors: LimitNOFILE=" +
                                                 wanted + ", ulimit -Hn " + wanted}});
}

Result<void> Daemon::listen_to_browsers() {
  loopback_ = std::make_unique<LoopbackDoor>(io_, *api_, &owners_, bounds_.browsers);
  api_->tokens = loopback_.get();
  return loopback_->listen(*parse_loopback_address(settings_.http),
                           settings_.state_dir + "/token.key");
}

Result<void> Daemon::listen_to_peers() {
  HttpSettings http;
  http.limits = bounds_.peers;
  peer_api_ = std::make_unique<PeerApi>(PeerApi{*api_, *secret_, bounds_.shares});
  peer_server_ =
      std::make_unique<HttpServer>(io_, http, [this](Principal door, HttpRequest request) {
        return answer_peer(*peer_api_, std::move(door), std::move(request));
      });
  auto limits = kPeerLimits;
  limits.half_open = bounds_.half_open;
  limits.named_per_source = bounds_.half_open_named;
  limits.half_open_per_source = std::min(limits.half_open_per_source, limits.half_open / 2);
  door_ = std::make_unique<PeerDoor>(io_, *secret_, *peer_server_, limits);
  return door_->listen(*parse_listen_address(settings_.listen));
}

std::size_t Daemon::connections() const {
  return server_->connections() + (peer_server_ ? peer_server_->connections() : 0) +
         (loopback_ ? loopback_->connections() : 0);
}

Result<void> Daemon::listen() {
  const bool is_root = ::geteuid() == 0;
  const auto folder = settings_.socket.substr(0, settings_.socket.rfind('/'));
  if (!folder.empty()) {
    const auto safe = SocketFile::check_place(settings_.socket);  // before folders are made there
    if (!safe) return safe.error();
    const auto made = make_with_parents(folder, is_root ? 0755 : 0700);
    if (!made) return made.error();
  }
  // Everybody may ask root's daemon: each request is judged by its user.
  auto opened = SocketFile::open(settings_.socket, is_root ? 0666 : 0600);
  if (!opened) return opened.error();
  const auto listening = server_->listen(opened->take());
  if (!listening) return listening.error();
  socket_.emplace(std::move(*opened));
  return {};
}

std::string Daemon::status() const {
  const auto node = run_.jobs->node();
  return std::to_string(node.slots_free) + " of " + plural(node.slots, "slot") + " free" +
         (node.drained.empty() ? "" : ", drained: " + printable(node.drained, 100));
}

int Daemon::run(const StartJobs& start_jobs) {
  const auto opened = open(start_jobs);
  if (!opened) {
    say(opened.error().what);
    return to_int(ExitCode::failure);
  }
  signals_.start();
  if (notifier_.is_service()) {
    told_ = run_.jobs->on_event([this](const JobEvent&) { notifier_.status(status()); });
    watchdog_.begin();
  }
  notifier_.ready(status());
  log::info("listening", {{"socket", settings_.socket},
                          {"state_dir", settings_.state_dir},
                          {"nodes_at", settings_.listen.empty() ? "no" : settings_.listen},
                          {"http_at", settings_.http.empty() ? "no" : settings_.http},
                          {"pid", ::getpid()},
                          {"version", version()}});
  release_startup_pages();
  run_loop();
  return 0;
}

// What one handler could not do, for want of memory or threads, ends that alone: jobs go on, and
// where this is the first process of a container they would end with it.
void Daemon::run_loop() {
  for (;;) {
    try {
      if (!is_stopping_) signals_.start();  // where the handler couldn't wait for the next one
    } catch (const std::exception& error) {
      tell_of_failed_handler(error);
    }
    try {
      io_.run();
      return;
    } catch (const std::exception& error) {
      tell_of_failed_handler(error);
    }
  }
}

void Daemon::on_signal(int signo) {
  if (signo != SIGHUP) return stop(signo);
  if (is_stopping_) return;
  asio::co_spawn(io_, reload(), [](const std::exception_ptr& failed) {
    if (failed) log::error("reload_failed", {{"why", what_of(failed)}});
  });
}

void Daemon::take_fresh(Settings fresh) {
  std::vector<std::string> waiting;
  const auto compare = [&](const char* name, auto field) {
    if (fresh.*field != settings_.*field) waiting.emplace_back(name);
  };
  compare("state-dir", &Settings::state_dir);
  compare("socket", &Settings::socket);
  compare("launch", &Settings::launch);
  compare("jobs-dir", &Settings::jobs_dir);
  compare("slots", &Settings::slots);
  compare("gpus", &Settings::gpus);
  compare("listen", &Settings::listen);
  compare("http", &Settings::http);
  compare("secret-file", &Settings::secret_file);
  if (!waiting.empty()) log::warn("settings_wait_for_restart", {{"settings", join(waiting, ", ")}});
  settings_.prune_age = fresh.prune_age;
  settings_.prune_jobs = fresh.prune_jobs;
  settings_.nodes = fresh.nodes;
  proxy_->set_nodes(settings_.nodes);
  settings_.log_level = fresh.log_level;
  log::set_level(settings_.log_level);
}

asio::awaitable<Result<void>> Daemon::reload_jobs() {
  try {
    co_return co_await run_.reload(settings_);
  } catch (const std::exception& failed) {  // no memory or thread: the rest may go well
    co_return Error{Errc::exhausted, failed.what()};
  }
}

asio::awaitable<void> Daemon::reload() {
  notifier_.reloading();
  auto fresh = load_();
  const bool is_taken = fresh.has_value();
  if (fresh) {
    take_fresh(std::move(*fresh));
  } else {
    log::error("reload_refused", {{"why", fresh.error().what}, {"instead", "the old settings"}});
  }
  const auto done = co_await reload_jobs();
  if (!done) log::error("reload_incomplete", {{"why", done.error().what}});
  if (!is_stopping_ && !socket_->is_in_place()) {
    // A cleaner of temporary files: no client would find us until the next start.
    const auto again = listen();
    if (!again) log::error("socket_lost", {{"why", again.error().what}});
  }
  if (loopback_) {
    // A removed key ends all tokens.
    const auto key = loopback_->reload();
    if (!key) log::error("tokens_keep_their_key", {{"why", key.error().what}});
  }
  if (is_taken) log::info("reloaded");
  notifier_.ready(status());
}

void Daemon::arm_stop_timer() {
  try {
    stop_timer_.expires_after(kStopTime);
    stop_timer_.async_wait([this](boost::system::error_code error) {
      if (!error) io_.stop();
    });
  } catch (const std::exception&) {
    io_.stop();  // no memory for it: at once, as at a second signal
  }
}

void Daemon::stop(int signo) {
  if (is_stopping_) return io_.stop();  // asked twice: at once
  // First: whatever throws after it, the daemon ends.
  arm_stop_timer();
  is_stopping_ = true;
  log::info("stopping",
            {{"signal", signo == SIGTERM ? "SIGTERM" : "SIGINT"}, {"connections", connections()}});
  notifier_.stopping("stopping; jobs go on");
  run_.close();
  socket_.reset();  // no client comes to a socket that is about to be gone
  if (door_) door_->stop();
  const auto ended = [this] {
    if (connections() == 0) io_.stop();
  };
  server_->stop(ended);
  if (peer_server_) peer_server_->stop(ended);
  if (loopback_) loopback_->stop(ended);
}

// A loop that turns, and still serves: at each of its doors, and on a signal.
bool Daemon::is_well() const {
  if (is_stopping_) return true;
  return signals_.is_waiting() && server_->is_listening() && (!door_ || door_->is_listening()) &&
         (!loopback_ || loopback_->is_listening());
}

}  // namespace

int run_daemon(const LoadSettings& load, const StartJobs& start_jobs) {
  auto settings = load();
  if (!settings) {
    say(settings.error().what);
    return to_int(ExitCode::usage);
  }
  log::set_level(settings->log_level);
  Daemon daemon{load, std::move(*settings)};
  return daemon.run(start_jobs);
}

}  // namespace acc::agent::daemon
