#pragma once

#include "runtime/tcp/abortable_wait.hpp"
#include "runtime/tcp/mesh.hpp"

#include <map>
#include <string>

namespace acc::runtime::tcp {

/// Point-to-point messages, over a connection for each ordered pair of ranks, made on first use.
/// One thread may send while another receives.
class Messages {
 public:
  Messages(Mesh& mesh, NodeSegment& node, AbortableWait& abortable, const RankPlacement& placement,
           std::string group, bool check);

  void send(ActiveCall& active);
  void recv(ActiveCall& active);

 private:
  [[nodiscard]] int connection_to(ActiveCall& active, int rank);
  [[nodiscard]] int connection_from(ActiveCall& active, int rank);
  /// @throws Error peer_lost: the program has closed it
  [[nodiscard]] int open_fd(ActiveCall& active, const KeptFd& connection);
  void write(ActiveCall& active, int fd, const void* at, std::size_t bytes);
  void read(ActiveCall& active, int fd, void* at, std::size_t bytes);
  void compare(ActiveCall& active, const Descriptor& theirs);

  Mesh& mesh_;
  NodeSegment& node_;
  AbortableWait& abortable_;
  const RankPlacement& placement_;
  std::string group_;
  bool check_;
  std::map<int, KeptFd> out_;  ///< the sending thread's
  std::map<int, KeptFd> in_;   ///< the receiving thread's
};

}  // namespace acc::runtime::tcp
