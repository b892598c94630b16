#include "rendezvous/own_address.hpp"

#include <catch2/catch.hpp>

using namespace acc::rendezvous;

TEST_CASE("a name of loopback itself was taken for the host's own, and listened to everywhere",
          "[rendezvous][own_address]") {
  for (const auto* name : {"localhost", "LOCALHOST", "localhost.", "job.localhost", "localhost4",
                           "localhost.localdomain", "localhost6.localdomain6", "ip6-localhost"})
    CHECK_FALSE(is_name_on_loopback(name, "127.0.0.1"));
  CHECK(is_name_on_loopback("node1", "127.0.1.1"));
  CHECK(is_name_on_loopback("localhost.example.org", "127.0.1.1"));
  CHECK_FALSE(is_name_on_loopback("node1", "10.0.0.1"));
  CHECK_FALSE(is_name_on_loopback("127.0.0.1", "127.0.0.1"));
}
