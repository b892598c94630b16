#include "agent/control_server.hpp"

#include "common/random.hpp"
#include "common/unmapped_id.hpp"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

namespace acc::agent {

namespace {

constexpr std::size_t kMostConnections = 16;
constexpr int kBacklog = 64;
constexpr Millis kRequestPatience{2'000};
constexpr Millis kReplyPatience{15'000};  // stacks take up to 11 s

/// Nothing: it is another user's, or the kernel doesn't tell.
std::optional<uid_t> own_or_root(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  if (peer.uid != 0 && !is_own_user(peer.uid, peer.pid)) return std::nullopt;
  return peer.uid;
}

/// Through the descriptor of its folder: short enough for any sun_path.
std::string path_of(int folder, const std::string& name) {
  return "/proc/self/fd/" + std::to_string(folder) + "/" + name;
}

std::pair<sockaddr_un, socklen_t> address_of(int folder, const std::string& name) {
  const std::string path = path_of(folder, name);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path.copy(at.sun_path, sizeof at.sun_path - 1);
  return {at, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1)};
}

bool is_listening(const ControlPlace& place) {
  const UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const auto [at, length] = address_of(place.folder.get(), place.name);
  if (!fd) return false;
  const bool connected = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), length) == 0;
  return connected || errno == EAGAIN;  // EAGAIN: its queue is full
}

}  // namespace

Result<ControlPlace> find_control_place(const char* job_folder,
                                        const std::vector<ControlFolder>& folders,
                                        const std::string& job, pid_t pid) {
  if (job_folder != nullptr && job_folder[0] == '/') {
    const std::string shown = std::string{"open the folder '"} + job_folder + "'";
    UniqueFd folder{::open(job_folder, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    struct stat info {};
    if (!folder || ::fstat(folder.get(), &info) != 0) return system_error(errno, shown);
    if (info.st_uid != ::geteuid())
      return Error{Errc::not_permitted,
                   shown + ": it belongs to uid " + std::to_string(info.st_uid)};
    return ControlPlace{std::move(folder), "control.sock",
                        job_folder + std::string{"/control.sock"}};
  }
  std::string why;
  bool is_foreign = false;  // a link, or another user's
  for (const auto& place : folders) {
    auto folder = open_control_folder(place, true);
    const auto name = control::socket_name(job, pid);
    if (folder) return ControlPlace{std::move(*folder), name, place.path() + "/" + name};
    const auto& error = folder.error();
    why += (why.empty() ? "" : "; ") + error.what;
    is_foreign = is_foreign || error.code == Errc::not_permitted || error.errnum == ENOTDIR ||
                 error.errnum == ELOOP;
  }
  return Error{is_foreign ? Errc::not_permitted : Errc::unavailable,
               why.empty() ? "there is no folder for it" : why};
}

// ---- a connection ----

class ControlServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::io_context& io, UniqueFd fd, uid_t uid,
             std::shared_ptr<const Handler> handler)
      : descriptor_{io, fd.release()}, patience_{io}, uid_{uid}, handler_{std::move(handler)} {}

  void begin() {
    give(kRequestPatience);
    take_in();
  }
  void close() {
    boost::system::error_code ignored;
    descriptor_.close(ignored);
    patience_.cancel();
  }

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;

  void give(Millis limit) {
    patience_.expires_after(limit);
    patience_.async_wait([weak = weak_from_this()](boost::system::error_code cancelled) {
      const auto self = weak.lock();
      if (!cancelled && self) self->close();
    });
  }

  void take_in() {
    std::array<char, control::kMaxRequest> chunk;
    const auto n = ::recv(descriptor_.native_handle(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      descriptor_.async_wait(Descriptor::wait_read,
                             [self = shared_from_this()](boost::system::error_code error) {
                               if (!error) self->take_in();
                             });
      return;
    }
    if (n < 0) return close();
    input_.append(chunk.data(), static_cast<std::size_t>(n));
    const auto end = input_.find('\n');
    if (end != std::string::npos) return carry_out(input_.substr(0, end));
    if (input_.size() > control::kMaxRequest || (n == 0 && !input_.empty()))
      return carry_out(input_);  // the end of the writing ends a line, too
    if (n == 0) return close();
    take_in();
  }

  void carry_out(const std::string& line) {
    give(kReplyPatience);
    const auto request = control::decode(line);
    if (!request) return send(control::refusal("bad_request", request.error().what));
    (*handler_)(*request, uid_, [weak = weak_from_this()](std::string reply) {
      if (const auto self = weak.lock()) self->send(std::move(reply));
    });
    // Kept for a later reply by the timer's wait for it to be read or to expire.
    if (output_.empty() && descriptor_.is_open()) hold();
  }

  void hold() {
    descriptor_.async_wait(Descriptor::wait_error,
                           [self = shared_from_this()](boost::system::error_code error) {
                             if (!error && self->output_.empty()) self->close();
                           });
  }

  void send(std::string reply) {
    if (!descriptor_.is_open() || !output_.empty()) return;
    output_ = std::move(reply);
    flush();
  }

  void flush() {
    while (sent_ < output_.size()) {
      const auto n = ::send(descriptor_.native_handle(), output_.data() + sent_,
                            output_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n >= 0) {
        sent_ += static_cast<std::size_t>(n);
      } else if (errno == EAGAIN) {
        descriptor_.async_wait(Descriptor::wait_write,
                               [self = shared_from_this()](boost::system::error_code error) {
                                 if (!error) self->flush();
                               });
        return;
      } else if (errno != EINTR) {
        break;
      }
    }
    close();
  }

  Descriptor descriptor_;
  boost::asio::steady_timer patience_;
  uid_t uid_;
  std::shared_ptr<const Handler> handler_;
  std::string input_;
  std::string output_;
  std::size_t sent_ = 0;
};

// ---- the server ----

ControlServer::ControlServer(boost::asio::io_context& io, Handler handler)
    : io_{io},
      handler_{std::make_shared<const Handler>(std::move(handler))},
      accepting_{io,
                 "commands wait: the agent has no descriptor or memory left for its control socket",
                 [this](UniqueFd fd) { take(std::move(fd)); }},
      changes_{io},
      settled_{io} {}

ControlServer::~ControlServer() { close(); }

Result<void> ControlServer::listen(ControlPlace place) {
  const std::string attempted = "listen at the control socket '" + place.name + "'";
  if (::faccessat(place.folder.get(), place.name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
      is_listening(place))
    return Error{Errc::unavailable, attempted + ": another agent listens there"};
  // Under another name until it listens: who finds the name may connect at once.
  const std::string beside = ".new-" + random_name();
  UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const auto [at, length] = address_of(place.folder.get(), beside);
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), length) != 0)
    return system_error(errno, attempted);
  struct stat info {};
  const bool is_there =
      ::fchmodat(place.folder.get(), beside.c_str(), 0600, 0) == 0 &&
      ::fstatat(place.folder.get(), beside.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      ::listen(fd.get(), kBacklog) == 0 &&
      ::renameat(place.folder.get(), beside.c_str(), place.folder.get(), place.name.c_str()) == 0;
  if (!is_there) {
    const int why = errno;
    ::unlinkat(place.folder.get(), beside.c_str(), 0);
    return system_error(why, attempted);
  }
  inode_ = info.st_ino;
  place_ = std::move(place);
  auto started = accepting_.start(std::move(fd));
  if (!started) close();
  return started;
}

void ControlServer::watch_place(std::function<void()> then) {
  on_lost_ = std::move(then);
  UniqueFd changes{::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
  const std::string socket = path_of(place_.folder.get(), place_.name);
  // The socket's own: those of its folder come with each job that ends.
  if (!changes || ::inotify_add_watch(changes.get(), socket.c_str(), IN_ATTRIB) < 0) return;
  changes_.assign(changes.release());
  await_change();
}

void ControlServer::await_change() {
  changes_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      alive_.bind([this](boost::system::error_code error) {
                        if (!error) look_for_socket();
                      }));
}

// Amid a logout the folder may still be there, and what was made in it would be removed, too.
void ControlServer::look_for_socket() {
  constexpr std::chrono::seconds kSettled{2};
  settled_.expires_after(kSettled);
  settled_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
    if (cancelled) return;
    if (!is_found()) {
      const auto tell = std::exchange(on_lost_, nullptr);
      if (tell) tell();
      return;
    }
    alignas(inotify_event) std::array<char, 1024> events;
    while (::read(changes_.native_handle(), events.data(), events.size()) > 0) continue;
    await_change();
  }));
}

bool ControlServer::is_found() const {
  struct stat folder {};
  struct stat socket {};
  return ::fstat(place_.folder.get(), &folder) == 0 && ::stat(place_.path.c_str(), &socket) == 0 &&
         socket.st_dev == folder.st_dev && socket.st_ino == inode_;
}

void ControlServer::close() {
  on_lost_ = nullptr;
  settled_.cancel();
  boost::system::error_code ignored;
  changes_.close(ignored);
  accepting_.close();
  for (const auto& weak : std::exchange(connections_, {})) {
    if (const auto connection = weak.lock()) connection->close();
  }
  if (!place_.folder) return;
  struct stat info {};
  const auto place = std::exchange(place_, {});
  if (::fstatat(place.folder.get(), place.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      info.st_ino == inode_)
    ::unlinkat(place.folder.get(), place.name.c_str(), 0);
}

void ControlServer::take(UniqueFd fd) {
  const auto uid = own_or_root(fd.get());
  if (!uid) return;  // it learns nothing
  std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
  if (connections_.size() >= kMostConnections) return;
  auto connection = std::make_shared<Connection>(io_, std::move(fd), *uid, handler_);
  connections_.push_back(connection);
  connection->begin();
}

}  // namespace acc::agent
