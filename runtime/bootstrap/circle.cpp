#include "runtime/bootstrap/circle.hpp"

#include "common/text.hpp"
#include "runtime/bootstrap/fields.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace acc::runtime {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kMaxNote = 64 * 1024;  ///< bytes
/// For what a peer that is there sends at once.
constexpr auto kNoteTime = 10s;

[[noreturn]] void fail(const acc::Error& error) {
  throw Error{error.code == Errc::timed_out ? ErrorCode::timed_out : ErrorCode::system, error.what};
}

UniqueFd watch(const Member& member) {
  if (member.pid == ::getpid()) return {};  // a thread of ours
  return UniqueFd{static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(member.pid), 0))};
}

}  // namespace

UniqueFd make_memory(std::size_t bytes) {
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

Circle Circle::meet(UniqueFd door, std::vector<Member> ranks, std::size_t mine,
                    const std::string& group, Deadline deadline) {
  Circle circle{std::move(ranks), mine};
  if (mine == 0)
    circle.gather(door, group, deadline);
  else
    circle.connect_to_leader(group, deadline);
  return circle;
}

void Circle::connect_to_leader(const std::string& group, Deadline deadline) {
  auto line = connect_to(SocketAddress::abstract(ranks_[0].circle), deadline);
  if (!line) lost(0, line.error());
  if (!is_same_user(line->get()))
    throw Error{ErrorCode::system,
                "the socket of rank " + describe(ranks_[0]) + " belongs to another user"};
  lines_.push_back(*std::move(line));
  write_note(0, pack({group, std::to_string(mine_)}), -1, deadline);
}

void Circle::gather(const UniqueFd& door, const std::string& group, Deadline deadline) {
  lines_.resize(ranks_.size());
  std::vector<UniqueFd> watched;
  for (std::size_t i = 1; i < ranks_.size(); ++i) watched.push_back(watch(ranks_[i]));
  for (std::size_t missing = ranks_.size() - 1; missing > 0;) {
    std::vector<pollfd> waits{{door.get(), POLLIN, 0}};
    for (std::size_t i = 1; i < ranks_.size(); ++i) {
      const bool gone = !watched[i - 1] && ranks_[i].pid != ::getpid();
      if (!lines_[i] && gone) lost(i, {Errc::not_found, "its process isn't there"});
      waits.push_back({lines_[i] ? -1 : watched[i - 1].get(), POLLIN, 0});
    }
    const int ready = ::poll(waits.data(), waits.size(), poll_time(deadline));
    if (ready == 0) {
      for (std::size_t i = 1; i < ranks_.size(); ++i)
        if (!lines_[i]) lost(i, {Errc::timed_out, "it doesn't come to its host's circle"});
    }
    for (std::size_t i = 1; ready > 0 && i < ranks_.size(); ++i)
      if (waits[i].revents != 0) lost(i, {Errc::not_found, "its process ended"});
    while (auto guest = accept_from(door.get())) {
      if (!is_same_user(guest->get())) continue;  // abstract names are seen by everybody
      lines_[0] = *std::move(guest);
      const auto note = unpack(read_note(0, nullptr, std::min(deadline, Clock::now() + kNoteTime)));
      auto line = std::move(lines_[0]);
      if (!note || note->size() != 2 || note->front() != group) continue;
      const auto index = parse_number<std::size_t>(note->at(1));
      if (!index || *index == 0 || *index >= lines_.size() || lines_[*index]) continue;
      lines_[*index] = std::move(line);
      --missing;
    }
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
    write_note(0, failure ? to_text(*failure) : well, -1, deadline);
    const auto note = read_note(0, nullptr, deadline);
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

// ---- notes: a length and bytes ----

std::string Circle::read_note(std::size_t from, UniqueFd* descriptor, Deadline deadline) {
  std::uint32_t size = 0;
  auto got =
      receive_with(lines_[from].get(), std::as_writable_bytes(std::span{&size, 1}), deadline);
  if (!got || size > kMaxNote)
    lost(from, got ? acc::Error{Errc::malformed, "a broken note"} : got.error());
  if (descriptor != nullptr) *descriptor = *std::move(got);
  std::string note(size, '\0');
  if (auto rest =
          receive_all(lines_[from].get(), std::as_writable_bytes(std::span{note}), deadline);
      !rest)
    lost(from, rest.error());
  return note;
}

void Circle::write_note(std::size_t to, std::string_view note, int descriptor, Deadline deadline) {
  note = note.substr(0, kMaxNote);
  const auto size = static_cast<std::uint32_t>(note.size());
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  bytes += note;
  if (auto sent = send_with(lines_[to].get(), bytes_of(bytes), descriptor, deadline); !sent)
    lost(to, sent.error());
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
  throw Error{ErrorCode::peer_lost, who + " is gone: " + how.what, {member.rank}};
}

}  // namespace acc::runtime
