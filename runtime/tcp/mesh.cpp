#include "runtime/tcp/mesh.hpp"

#include "common/text.hpp"
#include "runtime/bootstrap/exchange.hpp"
#include "runtime/bootstrap/fields.hpp"
#include "runtime/tcp/interfaces.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

namespace acc::runtime::hosts {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t kMagic = 0xacc57c01;
/// A guest says who it is at once.
constexpr auto kHelloTime = 2s;
constexpr auto kWarnTime = 300ms;
/// All doors are open before anybody knows of them.
constexpr Clock::duration kConnectTime = 30s;
/// Nothing acknowledged for so long: the peer's host is gone. Shorter than the store's and agent's
/// patience; a process that is only stopped acknowledges.
constexpr int kSilenceSeconds = 20;

struct Hello {
  std::uint32_t magic = kMagic;
  Purpose purpose = Purpose::column;
  std::int32_t from = 0;
  std::int32_t to = 0;
  char token[32] = {};
};

// bbr gives each stream a pace after its own estimate, which our pieces, there and back by turns,
// spoil: 16 MiB over two hosts took 34 ms with it and 20 with cubic. Other settings of the system
// are respected, and ACC_TCP_CONGESTION has the last word ("system": as it is).
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
  // Where that one isn't to be had, the system's does.
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                     static_cast<socklen_t>(name.size()));
}

void tune(int fd, const Mesh& mesh) {
  choose_congestion(fd, mesh.congestion);
  const int on = 1, idle = 5, interval = 5, probes = kSilenceSeconds / 5 - 1;
  const unsigned silence = kSilenceSeconds * 1000;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof silence);
}

/// What a rank tells of its door.
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

/// "host a eth0 10.0.0.1:4711, host b …": what each told.
std::string table(const Roll& roll, const std::vector<Address>& addresses) {
  std::string text;
  for (std::size_t r = 0; r < addresses.size(); ++r) {
    if (r == 32) return text + " …";
    text += (r == 0 ? "" : ", ") + ("rank " + std::to_string(r)) + " host " +
            roll.members[r].host.name + " " + addresses[r].interface + " " + addresses[r].at.text();
  }
  return text;
}

bool same_network(const Roll& roll) {
  return std::all_of(roll.members.begin(), roll.members.end(), [&](const Member& member) {
    return member.host.network == roll.members[0].host.network;
  });
}

Address open_door(Mesh& mesh, const Roll& roll, const Placement& placement, const Lookup& lookup,
                  const std::string& master_address, Deadline deadline) {
  const auto chosen = choose_interface(lookup, master_address, deadline);
  const auto& me = roll.members[static_cast<std::size_t>(placement.rank)];
  if (chosen.address.is_loopback() && !same_network(roll))
    throw Error{ErrorCode::system,
                "rank " + describe(me) + " would tell the other hosts its loopback address " +
                    chosen.address.host() + " (" + chosen.name +
                    "): set MASTER_ADDR to an address that all hosts reach, or ACC_SOCKET_IFNAME "
                    "to the interface to use",
                {me.rank}};
  auto door = listen_at(chosen.address, SOMAXCONN);
  if (!door) throw Error{ErrorCode::system, "rank " + describe(me) + ": " + door.error().what};
  mesh.door = *std::move(door);
  return {chosen.name, local_address(mesh.door.get())};
}

// Who waits to be connected to doesn't look at the store: a rank that fails comes and says so.
void warn_all(const Mesh& mesh, const Placement& placement, const Error& error) noexcept {
  for (int to = 0; to < placement.size(); ++to) {
    if (to == placement.rank) continue;
    try {
      const auto soon = Clock::now() + kWarnTime;
      const auto line = connect_to_rank(mesh, placement.rank, to, Purpose::failure, soon);
      const auto text = acc::runtime::to_text(error);
      if (line) (void)send_all(line->get(), std::as_bytes(std::span{text}), soon);
    } catch (const std::exception&) {
      continue;
    }
  }
}

Error read_failure(const Guest& guest) {
  std::string text;
  char chunk[4096];
  while (text.size() < 64 * 1024 && await(guest.fd.get(), POLLIN, Clock::now() + kHelloTime)) {
    const auto n = ::recv(guest.fd.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n <= 0) break;
    text.append(chunk, static_cast<std::size_t>(n));
  }
  const auto error = parse_error(text).value_or(
      Error{ErrorCode::peer_lost, "rank " + std::to_string(guest.from) + " failed", {guest.from}});
  return {error.code(), error.what(), error.ranks(), "connect"};
}

class Connecting {
 public:
  Connecting(Mesh& mesh, const Roll& roll, const Placement& placement,
             const std::vector<Address>& addresses, Deadline deadline)
      : mesh_{mesh},
        roll_{roll},
        placement_{placement},
        addresses_{addresses},
        deadline_{deadline} {
    mesh_.column.resize(placement.hosts.size());
    mesh_.control.resize(placement.hosts.size());
  }

  // Those before us connect to us, we to those behind: the kernel takes a connection before it is
  // accepted, so nobody waits for anybody in a ring.
  void run() {
    for (auto host = placement_.host + 1; host < placement_.hosts.size(); ++host) {
      const auto& ranks = placement_.hosts[host].ranks;
      if (placement_.carries()) call(ranks[placement_.index], Purpose::column, mesh_.column[host]);
      if (placement_.leads()) call(ranks[0], Purpose::control, mesh_.control[host]);
    }
    std::size_t missing =
        placement_.host * ((placement_.carries() ? 1U : 0U) + (placement_.leads() ? 1U : 0U));
    while (missing > 0) missing -= receive() ? 1 : 0;
  }

 private:
  void call(int to, Purpose purpose, UniqueFd& line) {
    auto made = connect_to_rank(mesh_, placement_.rank, to, purpose, deadline_);
    if (!made)
      throw Error{made.error().code == Errc::timed_out ? ErrorCode::timed_out : ErrorCode::system,
                  "rank " + describe(me()) + " can't connect to rank " +
                      describe(roll_.members[static_cast<std::size_t>(to)]) + ": " +
                      made.error().what + "; the addresses: " + table(roll_, addresses_),
                  {to}};
    line = *std::move(made);
  }

  bool receive() {
    if (const auto ready = await(mesh_.door.get(), POLLIN, deadline_); !ready)
      throw Error{ErrorCode::timed_out, "rank " + describe(me()) + " isn't connected to by " +
                                            missing() + ": " + ready.error().what +
                                            "; the addresses: " + table(roll_, addresses_)};
    auto guest = receive_guest(mesh_, placement_.size());
    if (!guest && guest.error().code != Errc::not_found)
      throw Error{ErrorCode::system, "rank " + describe(me()) + ": " + guest.error().what};
    if (guest && guest->purpose == Purpose::failure) throw read_failure(*guest);
    if (!guest || guest->purpose == Purpose::message) return false;
    const auto host = placement_.host_of(guest->from);
    auto& line = (guest->purpose == Purpose::control ? mesh_.control : mesh_.column)[host];
    if (line || host >= placement_.host) return false;
    line = std::move(guest->fd);
    return true;
  }

  [[nodiscard]] std::string missing() const {
    std::string text;
    for (std::size_t h = 0; h < placement_.host; ++h) {
      if (mesh_.column[h]) continue;
      const auto rank = placement_.hosts[h].ranks[placement_.index];
      text += (text.empty() ? "rank " : ", rank ") +
              describe(roll_.members[static_cast<std::size_t>(rank)]);
    }
    return text.empty() ? "another leader" : text;
  }

  [[nodiscard]] const Member& me() const {
    return roll_.members[static_cast<std::size_t>(placement_.rank)];
  }

  Mesh& mesh_;
  const Roll& roll_;
  const Placement& placement_;
  const std::vector<Address>& addresses_;
  Deadline deadline_;
};

}  // namespace

Mesh connect_mesh(Store& store, const std::string& key, const Roll& roll,
                  const Placement& placement, const Lookup& lookup,
                  const std::string& master_address, Deadline deadline) {
  Mesh mesh;
  mesh.token = roll.token;
  mesh.congestion = lookup("ACC_TCP_CONGESTION").value_or("");
  const auto net = key + "/net";
  std::string mine;
  try {
    mine = to_text(open_door(mesh, roll, placement, lookup, master_address, deadline));
  } catch (const Error& error) {
    exchange_failure(store, net, error);
    throw;
  }
  const auto texts = exchange(store, net, static_cast<std::size_t>(placement.rank),
                              roll.members.size(), mine, "the addresses of the ranks", deadline);
  std::vector<Address> addresses;
  for (const auto& text : texts) {
    addresses.push_back(parse_address(text));
    mesh.addresses.push_back(addresses.back().at);
  }
  // Sooner than all else: there must be time to tell the others why.
  const auto half = deadline == Deadline::max() ? kConnectTime : (deadline - Clock::now()) / 2;
  const auto soon = Clock::now() + std::min<Clock::duration>(half, kConnectTime);
  try {
    Connecting{mesh, roll, placement, addresses, soon}.run();
  } catch (const Error& error) {
    if (!error.operation().empty()) throw;  // it was another's
    warn_all(mesh, placement, error);
    throw;
  }
  return mesh;
}

Result<UniqueFd> connect_to_rank(const Mesh& mesh, int from, int to, Purpose purpose,
                                 Deadline deadline) {
  auto fd = connect_to(mesh.addresses[static_cast<std::size_t>(to)], deadline);
  if (!fd) return fd;
  tune(fd->get(), mesh);
  Hello hello;
  hello.purpose = purpose;
  hello.from = from;
  hello.to = to;
  mesh.token.copy(hello.token, sizeof hello.token);
  if (auto sent = send_all(fd->get(), std::as_bytes(std::span{&hello, 1}), deadline); !sent)
    return sent.error();
  return fd;
}

Result<Guest> receive_guest(const Mesh& mesh, int size) {
  auto fd = accept_from(mesh.door.get());
  if (!fd) return fd.error();
  tune(fd->get(), mesh);
  Hello hello;
  const auto got = receive_all(fd->get(), std::as_writable_bytes(std::span{&hello, 1}),
                               Clock::now() + kHelloTime);
  char token[sizeof hello.token] = {};
  mesh.token.copy(token, sizeof token);
  if (!got || hello.magic != kMagic || std::memcmp(token, hello.token, sizeof token) != 0 ||
      hello.from < 0 || hello.from >= size)
    return acc::Error{Errc::not_found, "a stranger"};
  return Guest{*std::move(fd), hello.from, hello.purpose};
}

}  // namespace acc::runtime::hosts
