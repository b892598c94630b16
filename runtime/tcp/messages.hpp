#pragma once

#include "runtime/tcp/lifeline.hpp"
#include "runtime/tcp/mesh.hpp"

#include <map>
#include <string>

namespace acc::runtime::hosts {

/// Messages between two ranks, over a connection for each ordered pair that is made when it is
/// first used. One thread may send while another receives.
class Messages {
 public:
  Messages(Mesh& mesh, Room& room, Lifeline& lifeline, const Placement& placement,
           std::string group, bool check);

  void send(Turn& turn);
  void recv(Turn& turn);

 private:
  [[nodiscard]] int line_to(Turn& turn, int rank);
  [[nodiscard]] int line_from(Turn& turn, int rank);
  void write(Turn& turn, int fd, const void* at, std::size_t bytes);
  void read(Turn& turn, int fd, void* at, std::size_t bytes);
  void compare(Turn& turn, const Descriptor& theirs);

  Mesh& mesh_;
  Room& room_;
  Lifeline& lifeline_;
  const Placement& placement_;
  std::string group_;
  bool check_;
  std::map<int, UniqueFd> out_;  ///< the sending thread's
  std::map<int, UniqueFd> in_;   ///< the receiving thread's
};

}  // namespace acc::runtime::hosts
