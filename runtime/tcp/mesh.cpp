#include "runtime/tcp/mesh.hpp"

#include "common/text.hpp"
#include "runtime/net/error_text.hpp"
#include "runtime/net/fields.hpp"
#include "runtime/net/gather.hpp"
#include "runtime/tcp/interfaces.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

namespace acc::runtime::tcp {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

/// Time limit for the text of a rank that connected to report a failure.
constexpr auto kFailureTime = 2s;
constexpr auto kReportTime = 300ms;
/// All ranks listen before any address is known.
constexpr Clock::duration kConnectTime = 30s;
/// Without acknowledgements for this long the peer's host is considered gone. Shorter than the
/// time-outs of store and agent; the host of a merely stopped process acknowledges what it has room
/// for.
constexpr int kSilenceSeconds = 20;

// bbr paces each stream by its own estimate, which alternating directions spoil: 16 MiB over two
// hosts took 34 ms with it and 20 with cubic. Other system settings are respected, and
// ACC_TCP_CONGESTION overrides ("system": unchanged).
void choose_congestion(int fd, const std::string& wanted) {
  std::string name = wanted;
  if (name == "system") return;
  if (name.empty()) {
    char current[16] = {};
    socklen_t size = sizeof current - 1;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, current, &size) != 0) return;
    if (std::string_view{current} != "bbr") return;
    name = "cubic";
  }
  // Not available: the default of the system stays.
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                     static_cast<socklen_t>(name.size()));
}

/// Where a rank listens, as sent to the others.
struct Address {
  std::string interface;
  SocketAddress at;
};

std::string to_text(const Address& address) {
  return pack({address.interface, address.at.host(), std::to_string(address.at.port())});
}

Address parse_address(const std::string& text) {
  const auto fields = unpack(text);
  const auto port =
      fields && fields->size() == 3 ? parse_number<std::uint16_t>(fields->at(2)) : std::nullopt;
  const auto at = port ? SocketAddress::numeric(fields->at(1), *port) : std::nullopt;
  if (!at) throw Error{ErrorCode::system, "a rank's address that can't be read"};
  return {fields->front(), *at};
}

/// "host a eth0 10.0.0.1:4711, host b …": the address of each rank.
std::string table(const GroupManifest& manifest, const std::vector<Address>& addresses) {
  std::string text;
  for (std::size_t r = 0; r < addresses.size(); ++r) {
    if (r == 32) return text + " …";
    text += (r == 0 ? "" : ", ") + ("rank " + std::to_string(r)) + " host " +
            manifest.members[r].host.name + " " + addresses[r].interface + " " +
            addresses[r].at.text();
  }
  return text;
}

bool same_network(const GroupManifest& manifest) {
  return std::all_of(manifest.members.begin(), manifest.members.end(), [&](const Member& member) {
    return member.host.network == manifest.members[0].host.network;
  });
}

Address open_listener(Mesh& mesh, const GroupManifest& manifest, const RankPlacement& placement,
                      const Lookup& lookup, const std::string& master_address, Deadline deadline) {
  const auto chosen = choose_interface(lookup, master_address, deadline);
  const auto& me = manifest.members[static_cast<std::size_t>(placement.rank)];
  if (chosen.address.is_loopback() && !same_network(manifest))
    throw Error{ErrorCode::system,
                "rank " + describe(me) + " would tell the other hosts its loopback address " +
                    chosen.address.host() + " (" + chosen.name +
                    "): set MASTER_ADDR to an address that all hosts reach, or ACC_SOCKET_IFNAME "
                    "to the interface to use",
                {me.rank}};
  auto listener = listen_at(chosen.address, SOMAXCONN);
  if (!listener)
    throw Error{ErrorCode::system, "rank " + describe(me) + ": " + listener.error().what};
  mesh.listener = Listener{*std::move(listener), mesh.token, placement.size()};
  return {chosen.name, mesh.listener.address()};
}

// A rank that waits for connections does not look at the store, so a failed rank connects to report
// its failure.
void report_to_all(const Mesh& mesh, const RankPlacement& placement, const Error& error) noexcept {
  for (int to = 0; to < placement.size(); ++to) {
    if (to == placement.rank) continue;
    try {
      const auto soon = Clock::now() + kReportTime;
      const auto connection = connect_to_rank(mesh, placement.rank, to, Purpose::failure, soon);
      const auto text = acc::runtime::to_text(error);
      if (connection) (void)send_all(connection->get(), std::as_bytes(std::span{text}), soon);
    } catch (const std::exception&) {
      continue;
    }
  }
}

Error read_failure(const Incoming& incoming) {
  std::string text;
  char chunk[4096];
  while (text.size() < 64 * 1024 && await(incoming.fd.get(), POLLIN, Clock::now() + kFailureTime)) {
    const auto n = ::recv(incoming.fd.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n <= 0) break;
    text.append(chunk, static_cast<std::size_t>(n));
  }
  const auto error = parse_error(text).value_or(Error{
      ErrorCode::peer_lost, "rank " + std::to_string(incoming.from) + " failed", {incoming.from}});
  return {error.code(), error.what(), error.ranks(), "connect"};
}

class Connecting {
 public:
  Connecting(Mesh& mesh, const GroupManifest& manifest, const RankPlacement& placement,
             const std::vector<Address>& addresses, Deadline deadline)
      : mesh_{mesh},
        manifest_{manifest},
        placement_{placement},
        addresses_{addresses},
        deadline_{deadline} {
    mesh_.rail.resize(placement.hosts.size());
    mesh_.control.resize(placement.hosts.size());
  }

  // Earlier hosts connect to this one, this one to later hosts. The kernel completes a connection
  // before it is accepted, so there is no circular wait.
  void run() {
    for (auto host = placement_.host + 1; host < placement_.hosts.size(); ++host) {
      const auto& ranks = placement_.hosts[host].ranks;
      if (placement_.is_proxy()) call(ranks[placement_.index], Purpose::rail, mesh_.rail[host]);
      if (placement_.is_leader()) call(ranks[0], Purpose::control, mesh_.control[host]);
    }
    std::size_t missing =
        placement_.host * ((placement_.is_proxy() ? 1U : 0U) + (placement_.is_leader() ? 1U : 0U));
    while (missing > 0) missing -= receive() ? 1 : 0;
  }

 private:
  void call(int to, Purpose purpose, UniqueFd& connection) {
    auto made = connect_to_rank(mesh_, placement_.rank, to, purpose, deadline_);
    if (!made)
      throw Error{made.error().code == Errc::timed_out ? ErrorCode::timed_out : ErrorCode::system,
                  "rank " + describe(me()) + " can't connect to rank " +
                      describe(manifest_.members[static_cast<std::size_t>(to)]) + ": " +
                      made.error().what + "; the addresses: " + table(manifest_, addresses_),
                  {to}};
    connection = *std::move(made);
  }

  bool receive() {
    auto incoming = await_incoming();
    if (incoming.purpose == Purpose::failure) throw read_failure(incoming);
    if (incoming.purpose == Purpose::message) return false;
    const auto host = placement_.host_of(incoming.from);
    auto& connection = (incoming.purpose == Purpose::control ? mesh_.control : mesh_.rail)[host];
    if (connection || host >= placement_.host) return false;
    if (!incoming.fd.is_ours())
      throw Error{ErrorCode::peer_lost, "rank " + describe(me()) +
                                            ": this program has closed the connection to rank " +
                                            std::to_string(incoming.from)};
    set_options(incoming.fd.get(), mesh_, incoming.purpose);
    connection = incoming.fd.take();
    return true;
  }

  Incoming await_incoming() {
    std::vector<pollfd> waits;
    for (;;) {
      auto incoming = mesh_.listener.next();
      if (!incoming)
        throw Error{ErrorCode::system, "rank " + describe(me()) + ": " + incoming.error().what};
      if (*incoming) return **std::move(incoming);
      if (Clock::now() >= deadline_)
        throw Error{ErrorCode::timed_out, "rank " + describe(me()) + " isn't connected to by " +
                                              missing() +
                                              "; the addresses: " + table(manifest_, addresses_)};
      waits.clear();
      mesh_.listener.add_waits(waits);
      ::poll(waits.data(), waits.size(), poll_time(deadline_));
    }
  }

  [[nodiscard]] std::string missing() const {
    std::string text;
    for (std::size_t h = 0; h < placement_.host; ++h) {
      if (mesh_.rail[h]) continue;
      const auto rank = placement_.hosts[h].ranks[placement_.index];
      text += (text.empty() ? "rank " : ", rank ") +
              describe(manifest_.members[static_cast<std::size_t>(rank)]);
    }
    return text.empty() ? "another leader" : text;
  }

  [[nodiscard]] const Member& me() const {
    return manifest_.members[static_cast<std::size_t>(placement_.rank)];
  }

  Mesh& mesh_;
  const GroupManifest& manifest_;
  const RankPlacement& placement_;
  const std::vector<Address>& addresses_;
  Deadline deadline_;
};

}  // namespace

Gather gather_addresses(Store& store, const std::string& key, const GroupManifest& manifest,
                        const RankPlacement& placement, Deadline deadline,
                        std::function<void()> check_parties) {
  const auto limit = std::chrono::ceil<Millis>(deadline - Clock::now());
  const auto late = [&manifest, limit](const Gather::Texts& sent) {
    return not_joined(sent, static_cast<int>(manifest.members.size()), "sent their addresses",
                      limit, [&](int rank, const std::string&) {
                        return describe(manifest.members[static_cast<std::size_t>(rank)]);
                      });
  };
  return {store,
          {key + "/addresses", placement.rank, placement.size(), deadline, late,
           std::move(check_parties)}};
}

Mesh connect_mesh(Store& store, const std::string& key, const GroupManifest& manifest,
                  const RankPlacement& placement, const Lookup& lookup,
                  const std::string& master_address, Deadline deadline,
                  std::function<void()> check_parties) {
  Mesh mesh;
  mesh.token = manifest.token;
  mesh.congestion = lookup("ACC_TCP_CONGESTION").value_or("");
  auto gather =
      gather_addresses(store, key, manifest, placement, deadline, std::move(check_parties));
  std::string mine;
  try {
    mine = to_text(open_listener(mesh, manifest, placement, lookup, master_address, deadline));
  } catch (const Error& error) {
    gather.report_failure(error);
    throw;
  }
  const auto texts = gather.all(mine);
  std::vector<Address> addresses;
  for (const auto& text : texts) {
    addresses.push_back(parse_address(text));
    mesh.addresses.push_back(addresses.back().at);
  }
  // Earlier than the deadline, which leaves time to report the failure to the others.
  const auto half = deadline == Deadline::max() ? kConnectTime : (deadline - Clock::now()) / 2;
  const auto soon = Clock::now() + std::min<Clock::duration>(half, kConnectTime);
  try {
    Connecting{mesh, manifest, placement, addresses, soon}.run();
  } catch (const Error& error) {
    if (!error.operation().empty()) throw;  // the error of another rank
    report_to_all(mesh, placement, error);
    throw;
  }
  return mesh;
}

Result<UniqueFd> connect_to_rank(const Mesh& mesh, int from, int to, Purpose purpose,
                                 Deadline deadline) {
  auto fd = connect_to(mesh.addresses[static_cast<std::size_t>(to)], deadline);
  if (!fd) return fd;
  set_options(fd->get(), mesh, purpose);
  const Hello hello{purpose, from, to, mesh.token};
  if (auto sent = send_all(fd->get(), std::as_bytes(std::span{&hello, 1}), deadline); !sent)
    return sent.error();
  return fd;
}

void set_options(int fd, const Mesh& mesh, Purpose purpose) {
  choose_congestion(fd, mesh.congestion);
  const int on = 1, idle = 5, interval = 5, probes = kSilenceSeconds / 5 - 1;
  const unsigned silence = kSilenceSeconds * 1000;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  // Of the control connection alone, which is always read: it finds a host that is gone for all.
  // Elsewhere the window may be closed for long, as the peer computes, and the kernel counts that
  // time, too, though each probe of the window is acknowledged.
  if (purpose == Purpose::control)
    ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof silence);
}

}  // namespace acc::runtime::tcp
