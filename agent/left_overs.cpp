#include "agent/left_overs.hpp"

#include "agent/process_stat.hpp"
#include "agent/signal_targets.hpp"
#include "agent/small_file.hpp"
#include "common/text.hpp"

#include <boost/asio/post.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace acc::agent {

namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr nanoseconds kScanSlice{std::chrono::milliseconds{3}};
// A pass may follow each death. The rest after a long one keeps the loop free for four fifths of
// the time; after a short one it would only cost time.
constexpr nanoseconds kShortPass{std::chrono::microseconds{200}};
constexpr int kRestFactor = 4;

}  // namespace

Millis left_over_patience(Millis quiet, std::uint32_t runnable, std::uint32_t cores) {
  constexpr std::uint32_t kMost = 4;
  return quiet * std::clamp(runnable / std::max(cores, 1U), 1U, kMost);
}

// "0.20 0.18 0.12 3/80 11206": three averages, what could run of all, the newest pid. In a control
// group or container it is still the machine that is busy.
Millis left_over_patience(Millis quiet) {
  const auto fields = split(trim(read_small_file("/proc/loadavg")), ' ');
  if (fields.size() < 4) return quiet;
  const auto counts = split(fields[3], '/');
  const auto runnable = parse_number<std::uint32_t>(counts[0]);
  return left_over_patience(quiet, runnable.value_or(0),
                            static_cast<std::uint32_t>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

LeftOvers::LeftOvers(boost::asio::io_context& io, Containment& containment, Hooks hooks)
    : io_{io}, containment_{containment}, hooks_{std::move(hooks)}, rest_{io} {}

void LeftOvers::terminate() { request(Aim::terminate); }

void LeftOvers::kill() { request(Aim::kill); }

void LeftOvers::reset() {
  ++epoch_;
  rest_.cancel();
  aim_ = next_ = Aim::none;
  asked_.clear();
}

void LeftOvers::request(Aim aim) {
  if (aim_ == Aim::none) return begin_pass(aim);
  // A kill doesn't wait for its turn where the kernel does it all.
  if (aim == Aim::kill && aim_ != Aim::kill && next_ != Aim::kill) containment_.kill_cgroup();
  next_ = std::max(next_, aim);
}

void LeftOvers::begin_pass(Aim aim) {
  const auto begin = steady_clock::now();
  aim_ = aim;
  next_ = Aim::none;
  position_ = 0;
  newly_asked_.clear();
  descends_.clear();
  if (aim == Aim::kill) containment_.kill_cgroup();
  members_ = containment_.members();
  took_ = steady_clock::now() - begin;
  go_on();
}

void LeftOvers::go_on() {
  constexpr std::size_t kLookAtClock = 16;
  const auto begin = steady_clock::now();
  while (position_ < members_.size()) {
    visit(members_[position_++]);
    if (position_ % kLookAtClock == 0 && steady_clock::now() - begin > kScanSlice) break;
  }
  took_ += steady_clock::now() - begin;
  if (position_ == members_.size()) return end_pass();
  boost::asio::post(io_, [this, epoch = epoch_] {
    if (epoch == epoch_) go_on();
  });
}

void LeftOvers::visit(const Containment::Member& member) {
  // Time has passed since the list was made, but only we reap our children: what still is one
  // is the process that was listed, and stays it.
  switch (member.is_child ? look_at_child(member.pid) : ChildState::alive) {
    case ChildState::none:
      return;
    case ChildState::dead:
      if (!hooks_.is_worker(member.pid)) ::waitpid(member.pid, nullptr, WNOHANG);
      return;
    case ChildState::alive:
      break;
  }
  if (aim_ == Aim::terminate) return ask(member);
  if (member.is_child) {
    ::kill(member.pid, SIGKILL);
  } else {  // the kernel can't kill a whole cgroup, or another process enters it at this moment
    containment_.signal_member(member.pid, {SIGKILL});
  }
}

// By the parents, up to the first that is known; an orphan's are us. The list of a cgroup also has
// what a living worker started in a session of its own and may still need: its upload, a server.
bool LeftOvers::descends_from_worker(pid_t pid) {
  constexpr std::size_t kDeepest = 100;  // a parent may end while this goes up
  std::vector<pid_t> line;
  bool descends = false;
  for (pid_t at = pid; at > 1 && at != ::getpid() && line.size() < kDeepest;
       at = read_process_stat(at).parent) {
    const auto known = descends_.find(at);
    // Its group, too: of a shell that has ended the program in it may be what still saves.
    descends = known != descends_.end() ? known->second
                                        : hooks_.is_worker(at) || hooks_.is_worker(::getpgid(at)) ||
                                              hooks_.has_had_signal(at);
    if (descends || known != descends_.end()) break;
    line.push_back(at);
  }
  for (const pid_t at : line) descends_[at] = descends;
  return descends;
}

void LeftOvers::ask(const Containment::Member& member) {
  const pid_t pid = member.pid;
  // The group of a living worker had its signal with the worker.
  if (hooks_.is_worker(pid) || hooks_.is_worker(::getpgid(pid)) || hooks_.has_had_signal(pid))
    return;
  if (!member.is_child && descends_from_worker(pid)) return;
  // It works for a program that still lives, which may be saving; later it is an orphan, so ours.
  if (!member.is_child && is_helper(pid)) return;
  if (!asked_.insert(pid).second) return;
  if (member.is_child) {
    ::kill(pid, SIGTERM);
    ::kill(pid, SIGCONT);  // a stopped process reacts to nothing but SIGKILL
  } else if (!containment_.signal_member(pid, {SIGTERM, SIGCONT})) {
    return;
  }
  newly_asked_.push_back(newly_asked_.size() < kNamed ? look_up(pid) : LeftOver{pid, "", '?'});
}

void LeftOvers::end_pass() {
  const Aim was = std::exchange(aim_, Aim::none);
  members_.clear();
  const auto asked = std::exchange(newly_asked_, {});
  if (next_ != Aim::none) {
    aim_ = was;  // no other pass may begin in the rest
    rest_.expires_after(took_ > kShortPass ? took_ * kRestFactor : nanoseconds{0});
    rest_.async_wait([this, epoch = epoch_](boost::system::error_code error) {
      if (!error && epoch == epoch_) begin_pass(next_);
    });
  }
  if (!asked.empty()) hooks_.on_asked(asked);
}

}  // namespace acc::agent
