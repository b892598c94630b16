#include "runtime/bootstrap/store_place.hpp"

#include "common/fnv.hpp"
#include "common/text.hpp"
#include "runtime/net/sockets.hpp"

#include <unistd.h>

namespace acc::runtime {

namespace {

/// Below the kernel's ephemeral ports, and apart from those that users choose (29500, …).
constexpr std::uint64_t kFirstPort = 20'000, kPorts = 9'000;
constexpr int kCandidates = 8;
/// An abstract name has at most 107 bytes.
constexpr std::size_t kLongestName = 100, kKeptOfName = 80;

std::string shortened(const std::string& name) {
  if (name.size() <= kLongestName) return name;
  return name.substr(0, kKeptOfName) + "#" + std::to_string(fnv1a(name) % 1'000'000'000'000);
}

std::vector<std::uint16_t> ports_of(const std::string& job) {
  std::vector<std::uint16_t> ports;
  for (int i = 0; i < kCandidates; ++i)
    ports.push_back(
        static_cast<std::uint16_t>(kFirstPort + fnv1a(job + "/" + std::to_string(i)) % kPorts));
  return ports;
}

/// Does the master's address imply that all ranks are on its host? A name that resolves to loopback
/// doesn't: Debian's /etc/hosts has 127.0.1.1 for the host's own name. Nor does localhost in a pod:
/// a PyTorchJob of Kubeflow gives it to the master's pod, and the service's name to the others.
bool names_loopback(const LaunchEnvironment& launch) {
  if (is_localhost(launch.master_address)) return !launch.in_pod;
  const auto address = SocketAddress::numeric(launch.master_address, 0);
  return address && address->is_loopback();
}

[[noreturn]] void refuse(const LaunchEnvironment& launch) {
  throw Error{ErrorCode::invalid_argument,
              "rank " + std::to_string(launch.rank) + " of " + std::to_string(launch.size) +
                  " (by " + launch.launcher +
                  ") doesn't know where to meet the others: set MASTER_ADDR to rank 0's host and "
                  "MASTER_PORT to a free port there, or start with acc-launch"};
}

}  // namespace

bool is_localhost(std::string_view host) {
  const auto name = to_lower(host);
  return name == "localhost" || name == "localhost.";
}

TcpStorePlace place_of(const LaunchEnvironment& launch) {
  TcpStorePlace place;
  place.rank = launch.rank;
  place.size = launch.size;
  place.local = launch.all_local();
  place.job = launch.launcher + "/" + launch.job;
  const bool by_torchrun = launch.launcher == "torchrun";
  const bool has_address = !launch.master_address.empty();
  if (launch.master_port != 0) place.job += " at port " + std::to_string(launch.master_port);
  // Run ids are "none" by default: jobs of torchrun on one host differ by the port that each agent
  // (or its rank 0) holds. No port of our own is needed.
  if ((by_torchrun && launch.one_node) || (!has_address && launch.all_local())) {
    if (launch.job.empty()) refuse(launch);
    if (has_address) place.job += " of " + launch.master_address;
    place.name = shortened("acc-store/" + std::to_string(::geteuid()) + "/" + place.job);
    return place;
  }
  if (!has_address) refuse(launch);
  place.host = launch.master_address;
  place.local = place.local || names_loopback(launch);
  // torchrun's port is taken by its own store or that of torch.
  if (by_torchrun || launch.master_port == 0)
    place.ports = ports_of(place.job);
  else
    place.ports = {launch.master_port};
  return place;
}

std::string describe(const TcpStorePlace& place) {
  if (place.host.empty()) return "@" + place.name;
  const bool is_v6 = place.host.find(':') != std::string::npos;
  auto text = (is_v6 ? "[" + place.host + "]" : place.host) + ":" +
              std::to_string(place.ports.empty() ? 0 : place.ports.front());
  if (place.ports.size() > 1)
    text += " and " + std::to_string(place.ports.size() - 1) + " other ports";
  return text;
}

}  // namespace acc::runtime
