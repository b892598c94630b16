#include "common/endpoint.hpp"

#include <catch2/catch.hpp>

TEST_CASE("an IPv6 address gets brackets where a port follows", "[common]") {
  CHECK(acc::join_host_port("node1", 29400) == "node1:29400");
  CHECK(acc::join_host_port("10.0.0.1", 0) == "10.0.0.1:0");
  CHECK(acc::join_host_port("::1", 29600) == "[::1]:29600");
}
