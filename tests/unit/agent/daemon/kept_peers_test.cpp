#include "agent/daemon/kept_peers.hpp"

#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

using namespace acc::agent::daemon;
using acc::UniqueFd;
using Kind = RequestKind;

namespace {

struct Connections {
  boost::asio::io_context io{1};
  std::vector<UniqueFd> other_ends;

  std::unique_ptr<PeerStream> connected(std::shared_ptr<void> share = {}) {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    other_ends.emplace_back(ends[1]);
    auto stream = std::make_unique<PeerStream>(io.get_executor(), UniqueFd{ends[0]}, false);
    stream->hold(std::move(share));
    return stream;
  }
};

}  // namespace

TEST_CASE("a stream of root's took over a port below 1024 that was counted as a brief request's",
          "[daemon]") {
  Connections made;
  KeptPeers kept{made.io, 8};
  const auto share = std::make_shared<int>(0);
  kept.keep("root@b", nullptr, made.connected(share));
  CHECK(kept.take("root@b", nullptr, Kind::stream) == nullptr);
  CHECK(share.use_count() == 2);  // it's still there …
  CHECK(kept.take("root@c", nullptr, Kind::brief) == nullptr);
  CHECK(kept.take("root@b", nullptr, Kind::brief) != nullptr);  // … for a brief one
  CHECK(share.use_count() == 1);
  kept.keep("root@b", nullptr, made.connected());
  CHECK(kept.take("root@b", nullptr, Kind::stream) != nullptr);
}

TEST_CASE("a kept connection whose other end has closed is not used again", "[daemon]") {
  Connections made;
  KeptPeers kept{made.io, 2};
  kept.keep("root@b", nullptr, made.connected());
  made.other_ends.clear();
  CHECK(kept.take("root@b", nullptr, Kind::brief) == nullptr);
}

TEST_CASE("one more kept connection than there may be takes the oldest one's place", "[daemon]") {
  Connections made;
  KeptPeers kept{made.io, 2};
  for (const auto* line : {"a", "b", "c"}) kept.keep(line, nullptr, made.connected());
  CHECK(kept.take("a", nullptr, Kind::brief) == nullptr);
  CHECK(kept.take("b", nullptr, Kind::brief) != nullptr);
  CHECK(kept.take("c", nullptr, Kind::brief) != nullptr);
}
