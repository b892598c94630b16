#include "rendezvous/port_holder.hpp"

#include "common/ports.hpp"
#include "common/text.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace acc::rendezvous {

namespace {

namespace fs = std::filesystem;

// Lines of /proc/net/tcp: number, local address:port in hex, remote, state (0A: listens), …, inode
// as the tenth field.
void collect_listeners(const char* path, std::uint16_t port, std::set<std::string>& sockets) {
  char wanted[8];
  std::snprintf(wanted, sizeof wanted, ":%04X", unsigned{port});
  std::ifstream file{path};
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    std::string number, local, remote, state, skipped, inode;
    words >> number >> local >> remote >> state;
    for (int i = 4; i < 9; ++i) words >> skipped;
    words >> inode;
    if (state == "0A" && local.ends_with(wanted)) sockets.insert("socket:[" + inode + "]");
  }
}

bool holds(const fs::path& process, const std::set<std::string>& sockets) {
  std::error_code failed;
  for (fs::directory_iterator fd{process / "fd", failed}, end; !failed && fd != end;
       fd.increment(failed)) {
    std::error_code gone;
    if (sockets.count(fs::read_symlink(fd->path(), gone).string()) != 0) return true;
  }
  return false;
}

}  // namespace

std::string describe_port_holder(std::uint16_t port) {
  std::set<std::string> sockets;
  collect_listeners("/proc/self/net/tcp", port, sockets);
  collect_listeners("/proc/self/net/tcp6", port, sockets);
  if (sockets.empty()) return {};
  std::error_code failed;
  for (fs::directory_iterator process{"/proc", failed}, end; !failed && process != end;
       process.increment(failed)) {
    const std::string pid = process->path().filename().string();
    if (!parse_number<int>(pid) || !holds(process->path(), sockets)) continue;
    std::string name;
    std::getline(std::ifstream{process->path() / "comm"}, name);
    return printable(name, 32) + " (pid " + pid + ")";
  }
  return foreign_port_holder(port);
}

}  // namespace acc::rendezvous
