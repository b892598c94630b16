#include "agent/daemon/peer_dial.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <catch2/catch.hpp>

#include <list>
#include <optional>
#include <string>
#include <vector>

using namespace acc::agent::daemon;
using acc::Millis;
using acc::rendezvous::Secret;
using acc::rendezvous::SecretBytes;
using acc::rendezvous::TlsContext;
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

/// A daemon that takes connections, and is too busy to answer.
struct SilentDoor {
  asio::io_context& io;
  tcp::acceptor acceptor{io, {asio::ip::address_v4::loopback(), 0}};
  std::list<tcp::socket> taken{};

  void take_next() {
    acceptor.async_accept([this](boost::system::error_code failed, tcp::socket one) {
      if (failed) return;
      taken.push_back(std::move(one));
      take_next();
    });
  }
};

}  // namespace

TEST_CASE(
    "without a port below 1024 root had a quarter of its time for a busy node, and then the rest",
    "[daemon]") {
  asio::io_context io{1};
  PeerDials dials{io};
  std::vector<ReservedPorts::Share> all;  // those that root may have; none for another user
  while (auto share = dials.ports.take(RequestKind::brief)) all.push_back(std::move(share));
  SilentDoor door{io};
  door.take_next();
  const Secret secret{"test", {{"00000000", SecretBytes{std::string(32, 'a')}}}};
  PeerWay way{"b",
              {"127.0.0.1", door.acceptor.local_endpoint().port()},
              "root",
              0,
              TlsContext::for_dialling(secret, "job")};
  std::optional<PeerDialled> dialled;
  asio::co_spawn(io, dial_peer(dials, std::move(way), Millis{800}),
                 [&](const std::exception_ptr& failed, PeerDialled done) {
                   if (failed) std::rethrow_exception(failed);
                   dialled.emplace(std::move(done));
                   door.acceptor.close();
                 });
  io.run();
  REQUIRE(dialled);
  REQUIRE(dialled->has_error());
  CHECK(dialled->error().code == "no_contact");
  CHECK(door.taken.size() == 1);  // the one try that had all of the time
}
