#include "agent/output/journal_queue.hpp"

#include "common/text.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace acc::agent {

namespace {

// In a batch each datagram stands behind its length.
using Length = std::uint32_t;

Length length_at(std::string_view bytes) {
  Length length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return length;
}

std::string field(std::string_view name, std::string_view value) {
  return std::string{name} + "=" + std::string{value} + "\n";
}

UniqueFd open_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return {};
  path.copy(address.sun_path, path.size());
  UniqueFd fd{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (fd && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    fd.reset();
  return fd;
}

}  // namespace

std::string journal_fields(std::string_view job_id) {
  return field("PRIORITY", "5") + field("SYSLOG_IDENTIFIER", "acc-launch") +
         field("ACC_JOB_ID", printable(job_id));
}

std::string journal_fields(std::string_view job_id, Round round, Rank rank, LocalRank local,
                           std::string_view stream) {
  // stderr is where Python's logging, warnings and progress bars go: worth telling apart, not an
  // alarm.
  return field("PRIORITY", stream == "stderr" ? "5" : "6") +
         field("SYSLOG_IDENTIFIER", "acc-launch") + field("ACC_JOB_ID", printable(job_id)) +
         field("ACC_ROUND", std::to_string(round.value())) +
         field("ACC_RANK", std::to_string(rank.value())) +
         field("ACC_LOCAL_RANK", std::to_string(local.value())) + field("ACC_STREAM", stream);
}

void append_record(std::string& batch, std::string_view message, std::string_view fields) {
  static constexpr std::string_view kName =
      "MESSAGE\n";  // the form with a length: right for any bytes
  const std::uint64_t size = message.size();
  char little_endian[8];
  for (unsigned i = 0; i < 8; ++i) little_endian[i] = static_cast<char>(size >> (8 * i) & 0xffU);
  const auto total = static_cast<Length>(kName.size() + 8 + message.size() + 1 + fields.size());
  char length[sizeof total];
  std::memcpy(length, &total, sizeof total);
  batch.append(length, sizeof length).append(kName).append(little_endian, 8);
  batch.append(message).append("\n").append(fields);
}

std::shared_ptr<JournalQueue> JournalQueue::connect(const std::string& path,
                                                    DropPolicy::Limits limits,
                                                    std::function<void()> wake) {
  UniqueFd socket = open_socket(path);
  if (!socket) return nullptr;
  return std::shared_ptr<JournalQueue>{
      new JournalQueue{path, std::move(socket), limits, std::move(wake)}};
}

// The kernel tells nobody of the last datagram that was read, so this looks.
void JournalQueue::settle() {
  constexpr int kLooks = 200;
  constexpr int kPauseMillis = 5;
  const auto unread = [this] {
    int bytes = 0;
    return socket_ && ::ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
  };
  int looks = 0;
  while (looks < kLooks && unread()) {
    ::poll(nullptr, 0, kPauseMillis);
    ++looks;
  }
  // It has read the last one just now, and still has to ask.
  if (looks > 0 && looks < kLooks) ::poll(nullptr, 0, kPauseMillis);
}

std::size_t JournalQueue::write_once(std::string_view bytes) {
  const std::string_view datagram = bytes.substr(sizeof(Length), length_at(bytes));
  const std::string_view whole = bytes.substr(0, sizeof(Length) + datagram.size());
  if (waits_for_retry()) {
    lose(whole, refused());
    return whole.size();
  }
  if (!socket_) socket_ = open_socket(path_);
  if (!socket_) return refuse(whole, ENOTCONN);
  if (::send(socket_.get(), datagram.data(), datagram.size(), MSG_NOSIGNAL) >= 0) {
    set_refused(0);
    progressed(whole.size());
    return whole.size();
  }
  const int why = errno;
  if (why == EAGAIN) wait_writable(socket_.get());
  if (why == EAGAIN || why == EINTR) return 0;
  if (why != EMSGSIZE && why != ENOBUFS) socket_.reset();  // journald was restarted
  if (why != EMSGSIZE) return refuse(whole, why);
  lose(whole, why);
  return whole.size();
}

std::uint64_t JournalQueue::lines_in(std::string_view bytes) const {
  std::uint64_t records = 0;
  for (; bytes.size() >= sizeof(Length); ++records)
    bytes.remove_prefix(std::min(bytes.size(), sizeof(Length) + length_at(bytes)));
  return records;
}

}  // namespace acc::agent
