#include "agent/daemon/reserved_ports.hpp"

#include "common/random.hpp"
#include "common/unique_fd.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace acc::agent::daemon {

using boost::system::error_code;

bool ReservedPorts::has_free(RequestKind kind) {
  constexpr int kMost = 16;
  constexpr int kMostForStreams = 8;
  const bool is_stream = kind == RequestKind::stream;
  return taken_ < kMost && !(is_stream && taken_for_streams_ >= kMostForStreams) && are_permitted();
}

ReservedPorts::Share ReservedPorts::take(RequestKind kind) {
  const bool is_stream = kind == RequestKind::stream;
  if (!has_free(kind)) return nullptr;
  ++taken_;
  if (is_stream) ++taken_for_streams_;
  return Share{this, [this, is_stream, watch = alive_.watch()](void*) {
                 if (!watch.is_alive()) return;
                 --taken_;
                 if (is_stream) --taken_for_streams_;
               }};
}

void ReservedPorts::note_crowded(const std::string& address) {
  constexpr std::chrono::seconds kLasts{30};
  const auto now = clock_now();
  std::erase_if(crowded_, [&](const auto& one) { return one.second <= now; });
  crowded_[address] = now + kLasts;
}

bool ReservedPorts::is_crowded(const std::string& address) const {
  const auto found = crowded_.find(address);
  return found != crowded_.end() && clock_now() < found->second;
}

// A user's own daemon may not, nor root's without CAP_NET_BIND_SERVICE.
bool ReservedPorts::are_permitted() {
  if (permission_ == Permission::unknown) {
    const UniqueFd probe{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (!probe) return false;
    const auto error = bind_reserved_port(probe.get(), false);
    permission_ = error.value() == EACCES ? Permission::no : Permission::yes;
  }
  return permission_ == Permission::yes;
}

error_code bind_reserved_port(int fd, bool is_v6) {
  constexpr int kFirst = 665;  // fewer services have those above, as with NFS
  constexpr int kCount = 1024 - kFirst;
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto port = static_cast<std::uint16_t>(kFirst + random_fraction() * kCount);
  using boost::asio::ip::tcp;
  const tcp::endpoint from{is_v6 ? tcp::v6() : tcp::v4(), port};
  if (::bind(fd, from.data(), static_cast<socklen_t>(from.size())) == 0) return {};
  return {errno, boost::system::system_category()};
}

}  // namespace acc::agent::daemon
