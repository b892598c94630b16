#pragma once

#include "agent/accept_loop.hpp"
#include "agent/control_protocol.hpp"
#include "common/alive.hpp"
#include "common/control_folders.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::agent {

/// Where an agent's control socket lies: a name in a folder that is held open, so that the path may
/// be longer than sun_path.
struct ControlPlace {
  UniqueFd folder;
  std::string name;
  std::string path;  ///< under which others look for it
};

/// $ACC_JOB_FOLDER/control.sock, else JOB.PID.sock in the first of `folders` that can be used. An
/// error says why each of them can't, and is not_permitted if one is a link or another user's.
[[nodiscard]] Result<ControlPlace> find_control_place(const char* job_folder,
                                                      const std::vector<ControlFolder>& folders,
                                                      const std::string& job, pid_t pid);

/// The agent's end of the control socket. Only root and the same user are heard, each for one
/// request of a bounded size; a connection that says nothing, or doesn't read, is closed after some
/// seconds. Without a connection it has no timer.
class ControlServer {
 public:
  using Reply = std::function<void(std::string)>;
  /// `uid`: who asks. The reply may come later, or never.
  using Handler = std::function<void(const control::Request&, uid_t uid, Reply)>;

  ControlServer(boost::asio::io_context& io, Handler handler);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// The socket appears listening, in one step. One that a killed agent left is replaced; that of a
  /// living one is an error.
  Result<void> listen(ControlPlace place);
  /// Calls `then` once nobody finds the socket any more: at a logout /run/user/UID is emptied and
  /// unmounted. Once it listens; `then` may destroy this. Nothing is watched where the user has no
  /// inotify instance left.
  void watch_place(std::function<void()> then);
  /// Removes the socket and closes all connections.
  void close();

 private:
  class Connection;

  void take(UniqueFd fd);
  void await_change();
  void look_for_socket();
  [[nodiscard]] bool is_found() const;

  boost::asio::io_context& io_;
  std::shared_ptr<const Handler> handler_;
  ControlPlace place_;
  ino_t inode_ = 0;  ///< of our socket: another agent's isn't ours to remove
  std::vector<std::weak_ptr<Connection>> connections_;
  AcceptLoop accepting_;
  boost::asio::posix::stream_descriptor changes_;
  boost::asio::steady_timer settled_;
  std::function<void()> on_lost_;
  Alive alive_;
};

}  // namespace acc::agent
