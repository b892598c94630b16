#include "launcher/ctl/nonblocking_exchange.hpp"

#include "tests/unit/launcher/ctl/played_service.hpp"

#include <catch2/catch.hpp>

#include <poll.h>

namespace acc::ctl {

SCENARIO("an exchange reads its answer as it arrives, and waits for nothing", "[ctl][bridge]") {
  PlayedService service;
  auto begun = NonblockingExchange::begin(service.path(), {.target = "/x"});
  REQUIRE(begun.has_value());
  auto& exchange = **begun;
  std::string piece;
  CHECK(exchange.wants() == (POLLIN | POLLOUT));
  CHECK(exchange.receive(piece) == Received::nothing);
  CHECK(exchange.wants() == POLLIN);
  service.accept();
  CHECK(service.request().starts_with("GET /x HTTP/1.1\r\n"));
  service.says("HTTP/1.1 200 OK\r\nContent-Le");
  CHECK(exchange.receive(piece) == Received::nothing);
  CHECK(exchange.status() == 0);
  service.says("ngth: 4\r\n\r\nab");
  CHECK(exchange.receive(piece) == Received::data);
  CHECK(exchange.status() == 200);
  CHECK(piece == "ab");
  WHEN("the rest arrives") {
    service.says("cd");
    CHECK(exchange.receive(piece) == Received::end);
    CHECK(piece == "cd");
  }
  WHEN("the service dies") {
    service.closes();
    CHECK(exchange.receive(piece) == Received::lost);
  }
}

SCENARIO("an exchange lost the answer of a service that had closed before it was asked",
         "[ctl][bridge]") {
  PlayedService service;
  auto begun = NonblockingExchange::begin(service.path(), {.target = "/x"});
  REQUIRE(begun.has_value());
  service.accept();
  service.says("HTTP/1.1 503 Unavailable\r\nContent-Length: 4\r\n\r\nfull");
  service.closes();
  std::string piece;
  CHECK((*begun)->receive(piece) == Received::end);
  CHECK((*begun)->status() == 503);
  CHECK(piece == "full");
}

}  // namespace acc::ctl
