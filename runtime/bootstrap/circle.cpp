#include "runtime/bootstrap/circle.hpp"

#include "common/text.hpp"
#include "runtime/bootstrap/fields.hpp"
#include "runtime/shm/process_watch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace acc::runtime {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kMaxNote = 64 * 1024;  ///< bytes
/// For what a peer that is there sends at once.
constexpr auto kNoteTime = 10s;
/// How often a process is looked up that can't be polled.
constexpr auto kLookTime = 20ms;

[[noreturn]] void fail(const acc::Error& error) {
  throw Error{error.code == Errc::timed_out ? ErrorCode::timed_out : ErrorCode::system, error.what};
}

/// Whether a rank's process has ended, while it is waited for.
class Watched {
 public:
  explicit Watched(const Member& member)
      : pid_{member.pid == ::getpid() ? 0 : static_cast<pid_t>(member.pid)} {
    if (pid_ == 0) return;  // a thread of ours
    fd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  }
  /// For poll; -1: it has to be asked from time to time (a kernel before 5.3, a filter of system
  /// calls, no descriptor left).
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool must_be_asked() const { return pid_ != 0 && !fd_; }
  [[nodiscard]] bool has_ended() const { return must_be_asked() && shm::has_ended(pid_); }

 private:
  pid_t pid_;
  UniqueFd fd_;
};

/// A note is a length and bytes, and may bring a descriptor.
Result<std::string> receive_note(int fd, UniqueFd* descriptor, Deadline deadline) {
  std::uint32_t size = 0;
  auto got = receive_with(fd, std::as_writable_bytes(std::span{&size, 1}), deadline);
  if (!got) return got.error();
  if (size > kMaxNote) return acc::Error{Errc::malformed, "a broken note"};
  if (descriptor != nullptr) *descriptor = *std::move(got);
  std::string note(size, '\0');
  if (auto rest = receive_all(fd, std::as_writable_bytes(std::span{note}), deadline); !rest)
    return rest.error();
  return note;
}

}  // namespace

UniqueFd make_memory(std::size_t bytes) {
  rlimit files{};
  // Beyond it the kernel sends SIGXFSZ, which ends the process without a word.
  if (::getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < bytes)
    throw Error{ErrorCode::system, "make shared memory of " + std::to_string(bytes) +
                                       " bytes: the limit of file sizes (ulimit -f) is " +
                                       std::to_string(files.rlim_cur) + " bytes"};
  UniqueFd memory{::memfd_create("acc", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    throw Error{
        ErrorCode::system,
        system_error(errno, "make shared memory of " + std::to_string(bytes) + " bytes").what};
  return memory;
}

UniqueFd Circle::open_door() {
  auto door = listen_at(SocketAddress::abstract(""), SOMAXCONN);
  if (!door) fail(door.error());
  return *std::move(door);
}

std::string Circle::name_of_door(const UniqueFd& door) { return local_address(door.get()).host(); }

Circle Circle::meet(const UniqueFd& door, std::vector<Member> ranks, std::size_t mine,
                    const std::string& group, Deadline deadline) {
  Circle circle{std::move(ranks), mine};
  if (mine != 0) {
    circle.connect_to_leader(group, deadline);
    return circle;
  }
  try {
    circle.gather(door, group, deadline);
  } catch (const Error& error) {
    circle.pass_on(to_text(error));
    throw;
  }
  return circle;
}

void Circle::connect_to_leader(const std::string& group, Deadline deadline) {
  auto line = connect_to(SocketAddress::abstract(ranks_[0].circle), deadline);
  if (!line && line.error().code == Errc::exhausted)
    throw Error{ErrorCode::system, "rank " + describe(ranks_[mine_]) + ": " + line.error().what};
  if (!line) lost(0, line.error());
  if (!is_same_user(line->get()))
    throw Error{ErrorCode::system,
                "the socket of rank " + describe(ranks_[0]) + " belongs to another user"};
  lines_.push_back(*std::move(line));
  write_note(0, pack({group, std::to_string(mine_)}), -1, deadline);
}

void Circle::gather(const UniqueFd& door, const std::string& group, Deadline deadline) {
  lines_.resize(ranks_.size());
  std::vector<Watched> watched;
  for (std::size_t i = 1; i < ranks_.size(); ++i) watched.emplace_back(ranks_[i]);
  const auto all_came = [this] {
    return std::all_of(lines_.begin() + 1, lines_.end(), [](const UniqueFd& fd) { return !!fd; });
  };
  while (!all_came()) {
    std::vector<pollfd> waits{{door.get(), POLLIN, 0}};
    auto until = deadline;
    for (std::size_t i = 1; i < ranks_.size(); ++i) {
      const auto& process = watched[i - 1];
      if (!lines_[i] && process.has_ended()) ended(i);
      if (!lines_[i] && process.must_be_asked()) until = std::min(until, Clock::now() + kLookTime);
      waits.push_back({lines_[i] ? -1 : process.fd(), POLLIN, 0});
    }
    const int ready = ::poll(waits.data(), waits.size(), poll_time(until));
    for (std::size_t i = 1; i < ranks_.size(); ++i) {
      if (lines_[i]) continue;
      if (ready > 0 && waits[i].revents != 0) ended(i);
      if (Clock::now() >= deadline)
        lost(i, {Errc::timed_out, "it doesn't come to its host's circle"});
    }
    take_in(door, group, deadline);
  }
}

void Circle::take_in(const UniqueFd& door, const std::string& group, Deadline deadline) {
  for (;;) {
    auto guest = accept_from(door.get());
    if (!guest && guest.error().code == Errc::not_found) return;
    if (!guest)
      throw Error{ErrorCode::system, "rank " + describe(ranks_[0]) + ": " + guest.error().what};
    if (!is_same_user(guest->get())) continue;  // abstract names are seen by everybody
    const auto hello =
        receive_note(guest->get(), nullptr, std::min(deadline, Clock::now() + kNoteTime));
    const auto note = hello ? unpack(*hello) : std::nullopt;
    if (!note || note->size() != 2 || note->front() != group) continue;
    const auto index = parse_number<std::size_t>(note->at(1));
    if (!index || *index == 0 || *index >= lines_.size() || lines_[*index]) continue;
    lines_[*index] = *std::move(guest);
  }
}

UniqueFd Circle::share(std::size_t bytes, Deadline deadline) {
  if (!leads()) {
    UniqueFd memory;
    const auto note = read_note(0, &memory, deadline);
    if (auto error = parse_error(note)) throw *std::move(error);
    if (!memory || note != std::to_string(bytes))
      throw Error{ErrorCode::mismatch, "shared memory: the ranks of this host ask for " +
                                           std::to_string(bytes) + " and " + printable(note, 40) +
                                           " bytes"};
    return memory;
  }
  try {
    auto memory = make_memory(bytes);
    for (std::size_t i = 1; i < lines_.size(); ++i)
      write_note(i, std::to_string(bytes), memory.get(), deadline);
    return memory;
  } catch (const Error& error) {
    pass_on(to_text(error));
    throw;
  }
}

std::vector<UniqueFd> Circle::open_lines(Deadline deadline) {
  std::vector<UniqueFd> lines(leads() ? lines_.size() : 1);
  if (!leads()) {
    const auto note = read_note(0, &lines[0], deadline);
    if (auto error = parse_error(note)) throw *std::move(error);
    if (!lines[0]) throw Error{ErrorCode::system, "the leader of this host handed out no line"};
    return lines;
  }
  try {
    for (std::size_t i = 1; i < lines_.size(); ++i) {
      int pair[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        throw Error{ErrorCode::system, system_error(errno, "make a pair of sockets").what};
      lines[i].reset(pair[0]);
      const UniqueFd theirs{pair[1]};
      write_note(i, "line", theirs.get(), deadline);
    }
    return lines;
  } catch (const Error& error) {
    pass_on(to_text(error));
    throw;
  }
}

void Circle::agree(const std::optional<Error>& failure, Deadline deadline, const Beyond& beyond) {
  const std::string well = "well";
  if (!leads()) {
    std::string note;
    try {
      write_note(0, failure ? to_text(*failure) : well, -1, deadline);
      note = read_note(0, nullptr, deadline);
    } catch (const Error&) {
      if (failure) throw *failure;  // the leader's own, perhaps: it told it, and left
      throw;
    }
    if (auto error = parse_error(note)) throw *std::move(error);
    return;
  }
  std::optional<Error> first = failure;
  for (std::size_t i = 1; i < lines_.size() && !first; ++i) {
    try {
      first = parse_error(read_note(i, nullptr, deadline));
    } catch (const Error& error) {
      first = error;
    }
  }
  try {
    if (beyond) beyond(first);
  } catch (const Error& error) {
    first = error;
  }
  pass_on(first ? to_text(*first) : well);
  if (first) throw *std::move(first);
}

// ---- notes ----

std::string Circle::read_note(std::size_t from, UniqueFd* descriptor, Deadline deadline) {
  auto note = receive_note(lines_[from].get(), descriptor, deadline);
  if (!note) lost(from, note.error());
  return *std::move(note);
}

void Circle::write_note(std::size_t to, std::string_view note, int descriptor, Deadline deadline) {
  note = note.substr(0, kMaxNote);
  const auto size = static_cast<std::uint32_t>(note.size());
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  bytes += note;
  if (auto sent = send_with(lines_[to].get(), bytes_of(bytes), descriptor, deadline); !sent) {
    if (auto cause = last_word_of(to)) throw *std::move(cause);
    lost(to, sent.error());
  }
}

// A leader that failed says why to all and leaves; its word is there before the end of the
// connection is, and a rank that was about to write reads it in place of its own answer.
std::optional<Error> Circle::last_word_of(std::size_t whom) noexcept {
  try {
    return parse_error(read_note(whom, nullptr, Clock::now()));
  } catch (const std::exception&) {
    return std::nullopt;  // it said nothing
  }
}

// Who is gone hears nothing; the others must.
void Circle::pass_on(const std::string& note) noexcept {
  for (std::size_t i = 1; i < lines_.size(); ++i) {
    try {
      if (lines_[i]) write_note(i, note, -1, Clock::now() + kNoteTime);
    } catch (const std::exception&) {
      continue;
    }
  }
}

void Circle::lost(std::size_t whom, const acc::Error& how) const {
  const auto& member = ranks_[whom];
  const std::string who = "rank " + describe(member);
  if (how.code == Errc::timed_out)
    throw Error{ErrorCode::timed_out, who + " didn't answer: " + how.what, {member.rank}};
  // That a connection ended is seen by who didn't hear why.
  throw Error{ErrorCode::peer_lost, who + " is gone: " + how.what, {member.rank}, kNoCause};
}

void Circle::ended(std::size_t whom) const {
  const auto& member = ranks_[whom];
  throw Error{ErrorCode::peer_lost,
              "rank " + describe(member) + " is gone: its process ended",
              {member.rank}};
}

}  // namespace acc::runtime
