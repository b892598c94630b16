#include "runtime/bootstrap/store_place.hpp"

#include <unistd.h>

#include <string_view>

namespace acc::runtime {

namespace {

/// Below the ports that the kernel hands out, and apart from those that users name (29500, …).
constexpr std::uint64_t kFirstPort = 20'000, kPorts = 9'000;
constexpr int kCandidates = 8;
/// An abstract name takes 107 bytes.
constexpr std::size_t kLongestName = 100, kKeptOfName = 80;

/// FNV-1a: the same on every host and in every version.
std::uint64_t digest(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

std::string shortened(const std::string& name) {
  if (name.size() <= kLongestName) return name;
  return name.substr(0, kKeptOfName) + "#" + std::to_string(digest(name) % 1'000'000'000'000);
}

std::vector<std::uint16_t> ports_of(const std::string& job) {
  std::vector<std::uint16_t> ports;
  for (int i = 0; i < kCandidates; ++i)
    ports.push_back(
        static_cast<std::uint16_t>(kFirstPort + digest(job + "/" + std::to_string(i)) % kPorts));
  return ports;
}

[[noreturn]] void refuse(const Contract& contract) {
  throw Error{ErrorCode::invalid_argument,
              "rank " + std::to_string(contract.rank) + " of " + std::to_string(contract.size) +
                  " (by " + contract.launcher +
                  ") doesn't know where to meet the others: set MASTER_ADDR to rank 0's host and "
                  "MASTER_PORT to a free port there, or start with acc-launch"};
}

}  // namespace

TcpStorePlace place_of(const Contract& contract) {
  TcpStorePlace place;
  place.rank = contract.rank;
  place.size = contract.size;
  place.local = contract.all_local();
  place.job = contract.launcher + "/" + contract.job;
  const bool by_torchrun = contract.launcher == "torchrun";
  const bool has_address = !contract.master_address.empty();
  if (contract.master_port != 0) place.job += " at port " + std::to_string(contract.master_port);
  // Run ids are "none" by default: what tells torchrun's jobs apart on one host is the port that
  // each agent (or its rank 0) holds. No port of our own is needed there.
  if ((by_torchrun && contract.one_node) || (!has_address && contract.all_local())) {
    if (contract.job.empty()) refuse(contract);
    if (has_address) place.job += " of " + contract.master_address;
    place.name = shortened("acc-store/" + std::to_string(::geteuid()) + "/" + place.job);
    return place;
  }
  if (!has_address) refuse(contract);
  place.host = contract.master_address;
  // torchrun's or torch's own store has the port that torchrun names.
  if (by_torchrun || contract.master_port == 0)
    place.ports = ports_of(place.job);
  else
    place.ports = {contract.master_port};
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
