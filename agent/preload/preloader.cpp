#include "agent/preload/preloader.hpp"

#include "agent/containment.hpp"
#include "agent/preload/hook_archive.hpp"
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
constexpr Millis kEndPatience{500};
// Orders under way to the maker: enough that it never waits, few enough for a socket's buffer.
constexpr std::size_t kOrdersAtOnce = 16;
constexpr std::size_t kMostDescriptors = 4;

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
  std::vector<pid_t> pids;
  std::size_t sent = 0;
  std::size_t made = 0;
  bool has_maker = false;
  bool is_cancelled = false;
  std::optional<preload::Made> maker_ended;
};

Preloader::Preloader(const Tools& tools, const PreloadPlan& plan)
    : tools_{tools},
      plan_{plan},
      course_{plan.patience},
      dev_null_{::open("/dev/null", O_RDONLY | O_CLOEXEC)},
      exit_{tools.io},
      control_{tools.io},
      timer_{tools.io} {}

Preloader::~Preloader() {
  stop();
  if (ending_ == 0) return;
  // At the job's end nobody else reaps it.
  const UniqueFd ended{static_cast<int>(::syscall(SYS_pidfd_open, ending_, 0U))};
  pollfd fd{ended.get(), POLLIN, 0};
  if (::poll(&fd, 1, static_cast<int>(kEndPatience.count())) > 0)
    ::waitpid(ending_, nullptr, WNOHANG);
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
  if (!spawn()) return follow(course_.on_refused(std::string{"can't start the preloader: "} +
                                                 std::strerror(errno)));
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
  return send(preload::make_archive("sitecustomize", preload::preloader_source())) &&
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
    follow(course_.on_exit(how, last_words()));
  }));
}

void Preloader::end_process() {
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
  gate_.reset();
  program_.reset();
  if (pid_ != 0) ending_ = pid_;
  end_process();
}

// ---- its life ----

void Preloader::when_settled(std::function<void()> then) {
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
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> space{};
  iovec part{const_cast<char*>(packet.data()), packet.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = space.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  return ::sendmsg(control_.native_handle(), &header, MSG_NOSIGNAL) >= 0;
}

// ---- a round ----

bool Preloader::can_fork(const std::vector<WorkerEnvironment>& workers) const {
  if (course_.phase() == PreloadCourse::Phase::off || !program_) return false;  // it was told
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
  round_ = std::make_unique<ForkingRound>();
  round_->workers = std::move(workers);
  round_->hooks = std::move(hooks);
  round_->pids.resize(round_->workers.size());
  waiting_at_gate_ = round_->workers.size();
  preload::Environments environments;
  for (const auto& worker : round_->workers)
    round_->environments.push_back(environments.add(worker.envp));
  const UniqueFd plan = memory_file("acc-environments");
  const auto& text = environments.text();
  int ends[2];
  if (::pwrite(plan.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::pipe2(ends, O_CLOEXEC) != 0)
    return fail_round(std::strerror(errno));
  const UniqueFd gate{ends[0]};
  gate_.reset(ends[1]);
  const std::array fds{gate.get(), plan.get()};
  limit(clock_now() + kForkPatience + kForkPatienceEach * round_->workers.size(),
        [this] { fail_round("it took too long"); });
  ++forks_;
  if (!send(preload::encode_round(forks_), fds)) fail_round(std::strerror(errno));
}

// It is in the control group of the round before it forks, so all workers are born there.
void Preloader::act(const preload::Maker& m) {
  if (!is_current(m.fork) || round_->has_maker) return;
  round_->has_maker = true;
  if (round_->is_cancelled) {
    send(preload::encode_end(forks_));
    return;
  }
  tools_.containment.adopt(m.pid);
  send_workers();
}

void Preloader::send_workers() {
  auto& round = *round_;
  for (; round.sent < round.workers.size() && round.sent < round.made + kOrdersAtOnce;
       ++round.sent) {
    const auto& worker = round.workers[round.sent];
    std::vector<int> fds;
    for (int standard = 0; standard < 3; ++standard) {
      const int given = worker.streams.at(static_cast<std::size_t>(standard));
      fds.push_back(given >= 0 ? given : standard);
    }
    if (worker.pmi >= 0) fds.push_back(worker.pmi);
    if (!send(preload::encode_worker(forks_, worker.local, round.environments[round.sent], worker.cores,
                                     worker.takes_terminal),
              fds))
      return fail_round(std::strerror(errno));
    if (round.sent + 1 == round.workers.size() && !send(preload::encode_end(forks_)))
      return fail_round(std::strerror(errno));
  }
}

void Preloader::act(const preload::WorkerMade& m) {
  if (!is_current(m.fork) || round_->is_cancelled) return;
  auto& round = *round_;
  const auto found =
      std::ranges::find(round.workers, m.local, [](const Worker& w) { return w.local; });
  const auto index = static_cast<std::size_t>(found - round.workers.begin());
  if (found == round.workers.end() || round.pids[index] != 0)
    return fail_round("it sent an unexpected message");
  round.pids[index] = m.pid;
  ++round.made;
  const Alive::Watch watch = alive_.watch();
  round.hooks.on_made(m.local, m.pid);
  if (!watch.is_alive() || !round_ || round_->is_cancelled) return;
  send_workers();
  if (round_) finish_round_if_made();
}

void Preloader::act(const preload::WorkerFailed& m) {
  if (is_current(m.fork) && !round_->is_cancelled)
    fail_round("local rank " + std::to_string(m.local.value()) + ": " + m.why);
}

void Preloader::act(const preload::Made& m) {
  if (!is_current(m.fork)) return;
  if (round_->is_cancelled) {
    round_.reset();
    return follow(course_.end_round(m.resident_bytes));
  }
  round_->maker_ended = m;
  if (m.status != 0 || round_->sent < round_->workers.size())
    return fail_round("the process that forks them " +
                      describe(exit_status_from_wait(m.status)));
  finish_round_if_made();
}

// The messages of the workers and the preloader come in any order.
void Preloader::finish_round_if_made() {
  if (!round_->maker_ended || round_->made < round_->workers.size()) return;
  const bool all_are_ours = std::ranges::all_of(
      round_->pids, [](pid_t pid) { return look_at_child(pid) == ChildState::alive; });
  if (!all_are_ours) return fail_round("one of them has ended");
  timer_.cancel();
  const auto round = std::move(round_);
  const auto grown = course_.end_round(round->maker_ended->resident_bytes);
  const Alive::Watch watch = alive_.watch();
  round->hooks.on_all_made();
  if (watch.is_alive()) follow(grown);
}

void Preloader::open_gate(std::int64_t lease_ends_ns) {
  const std::vector<std::int64_t> words(waiting_at_gate_, lease_ends_ns);
  const auto bytes = words.size() * sizeof words.front();
  // A pipe takes 64 KiB at once: 8,192 workers.
  if (::write(gate_.get(), words.data(), bytes) != static_cast<ssize_t>(bytes))
    log::error("gate_not_opened", {{"errno", errno}});
  gate_.reset();
}

void Preloader::fail_round(const std::string& why) {
  timer_.cancel();
  gate_.reset();
  const auto round = std::move(round_);
  const auto next = course_.fail_round(why);
  const Alive::Watch watch = alive_.watch();
  follow(next);  // at the end of the socket the maker ends, too
  if (watch.is_alive() && round && !round->is_cancelled) round->hooks.on_failed();
}

// The maker ends when it was told that no order follows, and the preloader is free for the next
// round after that.
void Preloader::cancel_round() {
  gate_.reset();
  if (!round_ || round_->is_cancelled) return;
  round_->is_cancelled = true;
  if (round_->has_maker && round_->sent < round_->workers.size())
    send(preload::encode_end(forks_));
}

}  // namespace acc::agent
