#include "agent/preload/preloader.hpp"

#include "agent/containment.hpp"
#include "agent/memory_limit.hpp"
#include "agent/preload/hook_archive.hpp"
#include "common/clocks.hpp"
#include "common/log.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace acc::agent {

using preload::PreloadCourse;

namespace {

// From the order to fork until all workers wait at their gate: usually some milliseconds each.
constexpr Millis kForkPatience{5'000};
constexpr Millis kForkPatienceEach{100};
constexpr Millis kCancelPatience{2'000};
constexpr Millis kEndPatience{500};
// Orders under way to the workers: enough that none waits, few enough for a socket's buffer.
constexpr std::size_t kOrdersAtOnce = 16;

UniqueFd memory_file(const char* name) {
  return UniqueFd{::memfd_create(name, MFD_CLOEXEC)};
}

// INTERPRETER [-u] -c FIRST_STAGE REST…: what follows the code is the worker's command line.
std::vector<std::string> first_command(const std::vector<std::string>& command) {
  const std::size_t options = command.size() > 1 && command[1] == "-u" ? 2 : 1;
  const auto rest = command.begin() + static_cast<std::ptrdiff_t>(options);
  std::vector<std::string> words{command.begin(), rest};
  words.emplace_back("-c");
  words.emplace_back(preload::first_stage());
  words.insert(words.end(), rest, command.end());
  return words;
}

}  // namespace

struct Preloader::ForkingRound {
  std::vector<Worker> workers;
  RoundHooks hooks;
  std::vector<std::pair<std::size_t, std::size_t>> environments;  ///< offset, length
  UniqueFd plan;                                                  ///< their text
  std::vector<pid_t> pids;
  std::size_t sent = 0;
  std::size_t made = 0;
  bool must_adopt = false;  ///< its workers were born elsewhere
  bool is_cancelled = false;
};

Preloader::Preloader(const Tools& tools, const PreloadPlan& plan)
    : tools_{tools},
      plan_{plan},
      course_{plan.patience},
      dev_null_{::open("/dev/null", O_RDONLY | O_CLOEXEC)},
      exit_{tools.io},
      control_{tools.io},
      timer_{tools.io},
      ahead_timer_{tools.io},
      gate_{tools.io} {}

Preloader::~Preloader() {
  stop();
  const auto wait_for = [](const UniqueFd& ended) {
    pollfd fd{ended.get(), POLLIN, 0};
    return ended && ::poll(&fd, 1, static_cast<int>(kEndPatience.count())) > 0;
  };
  static_cast<void>(wait_for(ended_set_));  // no worker that waits outlives the job
  if (ending_ == 0) return;
  // At the job's end nobody else reaps it.
  const UniqueFd ended{static_cast<int>(::syscall(SYS_pidfd_open, ending_, 0U))};
  if (wait_for(ended)) ::waitpid(ending_, nullptr, WNOHANG);
}

// ---- its process ----

void Preloader::start(Program program) {
  program_ = std::move(program);
  course_.begin(clock_now());
  const auto differing = program_->environment.unobservable();
  if (!differing.empty()) {
    return follow(course_.on_refused(differing + " differs between ranks, and native libraries "
                                     "read it while they are loaded"));
  }
  const auto placement = program_->environment.placement();
  if (program_->are_workers_bound && !placement.empty()) {
    return follow(course_.on_refused(placement + " is set, by which OpenMP takes cores while it is "
                                                 "loaded, and each worker is bound to its own"));
  }
  if (spawn()) return;
  const int why = errno;
  follow(why == ETIME ? course_.on_lease_over()
                      : course_.on_refused(std::string{"can't start the preloader: "} +
                                           std::strerror(why)));
}

bool Preloader::spawn() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  UniqueFd ours{ends[0]};
  const UniqueFd theirs{ends[1]};
  ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  printed_ = memory_file("acc-preloader-output");
  const CStringArray argv{first_command(program_->command)};
  const CStringArray envp{program_->environment.shared()};
  SpawnRequest request;
  request.path = program_->path.c_str();
  request.argv = argv.get();
  request.envp = envp.get();
  request.stdin_fd = dev_null_.get();
  request.stdout_fd = request.stderr_fd = printed_.get();
  request.pmi_fd = theirs.get();
  auto result = tools_.spawner(request);
  if (const auto* failure = std::get_if<SpawnFailure>(&result)) {
    errno = failure->errnum;
    return false;
  }
  auto& spawned = std::get<Spawned>(result);
  pid_ = spawned.pid;
  tools_.containment.set_helper(pid_);
  exit_.assign(spawned.pidfd.release());
  control_.assign(ours.release());
  watch_exit();
  read_on();
  limit(course_.deadline(), [this] { follow(course_.on_time_out()); });
  return send(preload::preloader_archive()) &&
         send(preload::encode_begin(::getpid(), plan_.modules, program_->environment.own_names()));
}

void Preloader::watch_exit() {
  exit_.async_wait(Descriptor::wait_read, alive_.bind([this](boost::system::error_code error) {
    if (error || pid_ == 0) return;
    take_packets();  // its last ones
    if (pid_ == 0) return;
    int status = 0;
    const pid_t reaped = ::waitpid(pid_, &status, WNOHANG);
    if (reaped == 0) return watch_exit();
    const auto how = reaped > 0 ? exit_status_from_wait(status) : ExitStatus{Exited{255}};
    pid_ = 0;
    tools_.containment.set_helper(0);
    if (round_) return fail_round("the preloader ended");
    follow(is_lease_over() ? course_.on_lease_over() : course_.on_exit(how, last_words()));
  }));
}

void Preloader::end_process() {
  set_.reset();
  tools_.containment.drop_reserve();
  example_ = 0;
  ahead_.on_preloader_ended(clock_now());
  follow_ahead();
  boost::system::error_code ignored;
  control_.close(ignored);
  exit_.close(ignored);
  timer_.cancel();
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  pid_ = 0;
  tools_.containment.set_helper(0);  // it is reaped as an orphan
}

std::string Preloader::last_words() const {
  std::array<char, 512> text{};
  const off_t size = ::lseek(printed_.get(), 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - static_cast<off_t>(text.size()));
  const auto got = ::pread(printed_.get(), text.data(), text.size(), from);
  std::string_view words{text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
  while (words.ends_with('\n')) words.remove_suffix(1);
  return std::string{words.substr(words.rfind('\n') + 1)};
}

void Preloader::stop() {
  waiter_ = nullptr;
  round_.reset();
  gate_.close();
  pause_ahead();
  if (set_) ended_set_ = set_->end();
  program_.reset();
  if (pid_ != 0) ending_ = pid_;
  end_process();
}

// The guardian kills all that the agent started when the lease ends, this process with the workers.
bool Preloader::is_lease_over() const {
  const auto ends = tools_.spawner.lease_ends_ns();
  return ends != 0 && boot_now().time_since_epoch() >= std::chrono::nanoseconds{ends};
}

// ---- its life ----

void Preloader::when_settled(std::function<void()> then) {
  if (course_.phase() == PreloadCourse::Phase::postponed && program_) start(std::move(*program_));
  if (course_.is_settled()) return then();
  waiter_ = std::move(then);
}

void Preloader::follow(PreloadCourse::Next next) {
  tell();
  if (next != PreloadCourse::Next::nothing) end_process();
  if (next == PreloadCourse::Next::replace && program_) return start(std::move(*program_));
  settle();
}

void Preloader::tell() {
  if (const auto words = course_.take_warning()) tools_.warn(*words);
  if (const auto words = course_.take_note()) tools_.note(*words);
}

void Preloader::settle() {
  if (!course_.is_settled()) return;
  if (!round_) timer_.cancel();
  if (const auto then = std::exchange(waiter_, nullptr)) then();
}

void Preloader::limit(Instant until, std::function<void()> then) {
  timer_.expires_at(until);
  timer_.async_wait(
      alive_.bind([then = std::move(then)](boost::system::error_code cancelled) {
        if (!cancelled) then();
      }));
}

// ---- its socket ----

void Preloader::read_on() {
  control_.async_wait(Descriptor::wait_read, alive_.bind([this](boost::system::error_code error) {
    if (error) return;
    take_packets();
    if (pid_ != 0 && control_.is_open()) read_on();
  }));
}

void Preloader::take_packets() {
  std::array<char, 4096> buffer{};
  const Alive::Watch watch = alive_.watch();
  const pid_t of = pid_;
  while (watch.is_alive() && pid_ == of && control_.is_open()) {
    const auto got = ::recv(control_.native_handle(), buffer.data(), buffer.size(),
                            MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return;
    if (got == 0) {  // its end: the exit follows
      boost::system::error_code ignored;
      control_.close(ignored);
      return;
    }
    const auto size = std::min(static_cast<std::size_t>(got), buffer.size());
    take({buffer.data(), size});
  }
}

void Preloader::take(std::string_view packet) {
  const auto message = preload::decode(packet);
  if (message) return std::visit([this](const auto& m) { act(m); }, *message);
  if (round_) return fail_round("it sent an unexpected message");
  follow(course_.on_nonsense());
}

bool Preloader::send(const std::string& packet, std::span<const int> fds) {
  return send_packet(control_.native_handle(), packet, fds);
}

// ---- workers ahead of their round ----

void Preloader::fork_ahead(std::uint32_t workers) {
  if (!course_.has_process()) return;
  ahead_.round_started(workers, clock_now());
  follow_ahead();
}

void Preloader::pause_ahead() {
  ahead_.pause();
  follow_ahead();
}

void Preloader::follow_ahead() {
  const auto due = ahead_.due();
  if (!due) return static_cast<void>(ahead_timer_.cancel());
  ahead_timer_.expires_at(*due);
  ahead_timer_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
    if (!cancelled) fork_one_ahead();
  }));
}

void Preloader::fork_one_ahead() {
  if (!course_.has_process()) return;
  if (ahead_.waiting() == 0) gate_.look_for_store();
  if (course_.phase() != PreloadCourse::Phase::ready || round_) {
    ahead_.postpone(clock_now());
    return follow_ahead();
  }
  const auto workers = ahead_.on_due(free_memory_bytes(), course_.resident_bytes(), clock_now());
  if (workers == 0) return;
  // A maker that has just begun is asked when it is where its workers are to be born.
  if (set_ ? set_->ask(workers, false) : open_set()) return;
  log::info("not_forked_ahead", {{"errno", errno}});
  lose_set();
}

void Preloader::act(const preload::Waits& m) {
  if (!set_ || m.fork != set_->number()) return;
  ahead_.on_waits(m.own_bytes, clock_now());
  if (ahead_.phase() == preload::WaitingCourse::Phase::complete)
    log::info("workers_forked_ahead", {{"workers", ahead_.waiting()}, {"own_bytes", m.own_bytes}});
  follow_ahead();
}

bool Preloader::open_set() {
  set_ = std::make_unique<WorkerSet>(tools_.io, ++forks_);
  if (!set_->is_open()) return false;
  const bool is_sent = send(preload::encode_round(forks_, example_), set_->theirs());
  set_->close_theirs();
  set_->watch([this] {
    round_ ? fail_round("one of them, or the process that forks them, has ended") : lose_set();
  });
  return is_sent;
}

void Preloader::lose_set() {
  end_set();
  ahead_.on_lost(clock_now());
  follow_ahead();
}

// What has no order ends. The maker's end makes the others children of this process.
void Preloader::end_set() {
  if (!set_) return;
  const auto number = set_->number();
  set_.reset();
  tools_.containment.drop_reserve();
  send(preload::encode_collect(number));
}

// ---- a round ----

bool Preloader::can_fork(const std::vector<WorkerEnvironment>& workers) const {
  if (!course_.has_process() || !program_) return false;  // it was told
  const auto refuse = [this](const std::string& why) {
    tools_.warn("--preload: in this round the workers start cold: " + why);
    return false;
  };
  if (course_.phase() != PreloadCourse::Phase::ready) return refuse("the preloader is busy");
  const bool fits = std::ranges::all_of(workers, [this](const WorkerEnvironment& worker) {
    return program_->environment.fits(worker.pointers.data());
  });
  return fits || refuse("their environment differs from that of the imports");
}

void Preloader::fork_round(std::vector<Worker> workers, RoundHooks hooks) {
  course_.begin_round();
  ahead_.take();
  follow_ahead();
  round_ = std::make_unique<ForkingRound>();
  round_->workers = std::move(workers);
  round_->hooks = std::move(hooks);
  round_->pids.resize(round_->workers.size());
  preload::Environments environments;
  std::vector<const char* const*> pointers;
  for (const auto& worker : round_->workers) {
    round_->environments.push_back(environments.add(worker.envp));
    pointers.push_back(worker.envp);
  }
  round_->plan = memory_file("acc-environments");
  const auto& text = environments.text();
  if (::pwrite(round_->plan.get(), text.data(), text.size(), 0) !=
          static_cast<ssize_t>(text.size()) ||
      !gate_.make(pointers))
    return fail_round(std::strerror(errno));
  limit(clock_now() + kForkPatience + kForkPatienceEach * round_->workers.size(),
        [this] { fail_round("it took too long"); });
  if (!set_ && !open_set()) return fail_round(std::strerror(errno));
  if (set_->maker() != 0) begin_orders();
}

void Preloader::act(const preload::Maker& m) {
  if (!set_ || m.fork != set_->number() || set_->maker() != 0) return;
  set_->set_maker(m.pid);
  if (round_) return begin_orders();
  tools_.containment.reserve(m.pid);
  if (!set_->ask(1, false)) lose_set();
}

// The maker is in the control group of the round before it forks for it: these workers are born
// there. One that forked ahead has brought its own.
void Preloader::begin_orders() {
  if (tools_.containment.use_reserve()) {
    tools_.cgroup_changed();
  } else {
    tools_.containment.adopt(set_->maker());
    round_->must_adopt = set_->has_forked_ahead();
  }
  if (!set_->ask(static_cast<std::uint32_t>(round_->workers.size()), true))
    return fail_round(std::strerror(errno));
  send_orders();
}

void Preloader::send_orders() {
  auto& round = *round_;
  for (; round.sent < round.workers.size() && round.sent < round.made + kOrdersAtOnce;
       ++round.sent) {
    const auto& worker = round.workers[round.sent];
    std::vector<int> fds{gate_.end_of(round.sent), round.plan.get()};
    for (int standard = 0; standard < 3; ++standard) {
      const int given = worker.streams.at(static_cast<std::size_t>(standard));
      fds.push_back(given >= 0 ? given : standard);
    }
    if (worker.pmi >= 0) fds.push_back(worker.pmi);
    if (!set_->order(preload::encode_worker(worker.local, round.environments[round.sent],
                                            worker.cores, worker.takes_terminal),
                     fds))
      return fail_round(std::strerror(errno));
  }
}

void Preloader::act(const preload::WorkerMade& m) {
  if (!is_current(m.fork) || round_->is_cancelled || !set_) return;
  auto& round = *round_;
  const auto found =
      std::ranges::find(round.workers, m.local, [](const Worker& w) { return w.local; });
  const auto index = static_cast<std::size_t>(found - round.workers.begin());
  if (found == round.workers.end() || round.pids[index] != 0)
    return fail_round("it sent an unexpected message");
  round.pids[index] = m.pid;
  ++round.made;
  if (round.must_adopt) tools_.containment.adopt(m.pid);
  const Alive::Watch watch = alive_.watch();
  round.hooks.on_made(m.local, m.pid);
  if (!watch.is_alive() || !round_ || round_->is_cancelled) return;
  round_->made < round_->workers.size() ? send_orders() : end_set();
}

void Preloader::act(const preload::WorkerFailed& m) {
  if (is_current(m.fork) && !round_->is_cancelled)
    fail_round("local rank " + std::to_string(m.local.value()) + ": " + m.why);
}

void Preloader::act(const preload::Made& m) {
  if (!is_current(m.fork)) return;
  timer_.cancel();
  if (round_->is_cancelled) {
    round_.reset();
    return follow(course_.end_round(m.resident_bytes));
  }
  if (m.status != 0 || round_->made < round_->workers.size())
    return fail_round("the process that forks them " + describe(exit_status_from_wait(m.status)));
  const bool all_are_ours = std::ranges::all_of(
      round_->pids, [](pid_t pid) { return look_at_child(pid) == ChildState::alive; });
  if (!all_are_ours) return fail_round("one of them has ended");
  const auto round = std::move(round_);
  example_ = round->pids.front();
  const auto grown = course_.end_round(m.resident_bytes);
  const Alive::Watch watch = alive_.watch();
  round->hooks.on_all_made();
  if (watch.is_alive()) follow(grown);
}

void Preloader::fail_round(const std::string& why) {
  timer_.cancel();
  gate_.close();
  const auto round = std::move(round_);
  const bool is_cancelled = round && round->is_cancelled;
  const auto next = is_lease_over() ? course_.on_lease_over()
                    : is_cancelled  ? course_.fail_cancelled(why)
                                    : course_.fail_round(why);
  const Alive::Watch watch = alive_.watch();
  follow(next);  // the preloader ends, and with it the maker and all that still have no order
  if (watch.is_alive() && round && !is_cancelled) round->hooks.on_failed();
}

// The preloader is free for the next round when the maker has ended.
void Preloader::cancel_round() {
  gate_.close();
  if (!round_ || round_->is_cancelled) return;
  round_->is_cancelled = true;
  end_set();
  limit(clock_now() + kCancelPatience, [this] { fail_round("it took too long"); });
}

}  // namespace acc::agent
