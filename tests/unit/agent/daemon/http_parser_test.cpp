#include "agent/daemon/http_parser.hpp"

#include "agent/daemon/http_quota.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

using namespace acc::agent::daemon;
using Step = RequestParser::Step;

namespace {

struct Outcome {
  Step step = Step::needs_more;
  HttpRequest request;
  HttpRefusal refusal;
  std::size_t left = 0;  ///< bytes behind the request
};

Outcome parse(std::string bytes, std::size_t piece) {
  RequestParser parser;
  std::string held;
  Outcome out;
  for (;;) {
    std::size_t consumed = 0;
    out.step = parser.feed(held, consumed);
    held.erase(0, consumed);
    if (out.step == Step::has_header) continue;
    if (out.step != Step::needs_more || bytes.empty()) break;
    const auto n = std::min(piece, bytes.size());
    held += bytes.substr(0, n);
    bytes.erase(0, n);
  }
  out.left = held.size() + bytes.size();
  if (out.step == Step::done) out.request = parser.request();
  out.refusal = parser.refusal();
  return out;
}

}  // namespace

SCENARIO("a request is the same whatever pieces it arrives in", "[agent][http]") {
  const auto piece = GENERATE(as<std::size_t>{}, 1, 2, 3, 7, 100, 10'000);
  const auto got = parse(
      "POST /v1/jobs/a%2db/stop?x=1&y=%20z HTTP/1.1\r\nHost: acc\r\nX-One:  two \r\n"
      "Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n\r\n",
      piece);
  REQUIRE(got.step == Step::done);
  CHECK(got.request.method == "POST");
  CHECK(got.request.segments == std::vector<std::string>{"v1", "jobs", "a-b", "stop"});
  CHECK(got.request.query ==
        std::vector<std::pair<std::string, std::string>>{{"x", "1"}, {"y", " z"}});
  CHECK(got.request.header("x-one") == "two");
  CHECK(got.request.body == "hello");
  CHECK(got.request.keeps_alive);
  CHECK(got.left == 18);  // the next request is left alone
}

SCENARIO("a chunked body is put together", "[agent][http]") {
  const auto piece = GENERATE(as<std::size_t>{}, 1, 5, 1000);
  const auto got = parse(
      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n",
      piece);
  REQUIRE(got.step == Step::done);
  CHECK(got.request.body == "abcde");
  CHECK_FALSE(got.request.header("trailer"));
}

TEST_CASE("what is too long is refused with the status that says so", "[agent][http]") {
  const std::string long_header = "GET / HTTP/1.1\r\nX: " + std::string(9000, 'a');
  const std::string long_path = "GET /" + std::string(9000, 'a');
  const std::string many = [] {
    std::string text = "GET / HTTP/1.1\r\n";
    for (int i = 0; i < 1000; ++i) text += "H" + std::to_string(i) + ": v\r\n";
    return text + "\r\n";
  }();
  const auto piece = GENERATE(as<std::size_t>{}, 1, 4096, 20'000);
  CHECK(parse(long_header, piece).refusal.status == 431);
  CHECK(parse(long_path, piece).refusal.status == 431);
  CHECK(parse(many, piece).refusal.status == 431);
  CHECK(parse("POST / HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n", piece).refusal.status == 413);
  CHECK(parse("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\n", piece)
            .refusal.status == 413);
  CHECK(parse("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;" + std::string(9000, 'x'),
              piece)
            .refusal.status == 431);
}

TEST_CASE("what is no request is refused, and the sentence names the reason", "[agent][http]") {
  const auto status = [](const std::string& bytes) { return parse(bytes, 4096).refusal.status; };
  CHECK(status("nonsense\r\n\r\n") == 400);
  CHECK(status("GET / HTTP/2.0\r\n\r\n") == 505);
  CHECK(status("GET nowhere HTTP/1.1\r\n\r\n") == 400);
  CHECK(status("GET /%zz HTTP/1.1\r\n\r\n") == 400);
  CHECK(status("GET /%00 HTTP/1.1\r\n\r\n") == 400);
  CHECK(status("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n") == 400);
  CHECK(status("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n") == 400);
  CHECK(status("POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n") ==
        400);
  CHECK(status("POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n") == 400);
  CHECK(status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n") == 400);
  CHECK(status("GET / HTTP/1.1\r\nExpect: miracles\r\n\r\n") == 417);
  CHECK_FALSE(parse("nonsense\r\n\r\n", 4096).refusal.what.empty());
}

TEST_CASE("HTTP/1.0 ends its connection unless it asks to keep it", "[agent][http]") {
  CHECK_FALSE(parse("GET / HTTP/1.0\r\n\r\n", 100).request.keeps_alive);
  CHECK(parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 100).request.keeps_alive);
  CHECK_FALSE(parse("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 100).request.keeps_alive);
  CHECK(parse("GET http://host/healthz HTTP/1.1\r\n\r\n", 100).request.segments ==
        std::vector<std::string>{"healthz"});
}

SCENARIO("one user can't take what others need", "[agent][http]") {
  GIVEN("10 connections, 6 a user, 2 for operators, 100 bytes of bodies, 60 a user") {
    ClientQuota quota{HttpLimits{10, 6, 2, 100, 60}, 500};
    for (int i = 0; i < 6; ++i) REQUIRE(quota.take_connection(1001));
    THEN("its seventh is refused, and another user's first isn't") {
      CHECK_FALSE(quota.take_connection(1001));
      CHECK(quota.take_connection(1002));
      CHECK(quota.take_connection(1002));
      CHECK_FALSE(quota.take_connection(1002));  // the rest is root's and the daemon's user's
      CHECK(quota.take_connection(0));
      CHECK(quota.take_connection(500));
      CHECK_FALSE(quota.take_connection(0));
    }
    THEN("two users that took all places had locked out all others") {
      for (int i = 0; i < 2; ++i) REQUIRE(quota.take_connection(1002));
      REQUIRE_FALSE(quota.take_connection(1003));
      CHECK(quota.loser_to(1003) == 1001);
      CHECK(quota.loser_to(1002) == 1001);
      CHECK(quota.loser_to(0) == 1001);
      CHECK_FALSE(quota.loser_to(1001));  // who holds most wins nothing
      for (int i = 0; i < 3; ++i) {
        quota.give_connection(1001);
        REQUIRE(quota.take_connection(1003));
      }
      CHECK_FALSE(quota.loser_to(1003));  // 3, 2 and 3: nobody has too many
      CHECK_FALSE(quota.loser_to(1002));
      CHECK(quota.loser_to(1004) == 1001);
    }
    THEN("what is given back can be taken again") {
      quota.give_connection(1001);
      CHECK(quota.take_connection(1001));
    }
    THEN("memory for bodies is shared likewise") {
      CHECK(quota.take_body(1001, 60));
      CHECK_FALSE(quota.take_body(1001, 1));
      CHECK_FALSE(quota.take_body(1002, 50));
      CHECK(quota.take_body(1002, 40));
      quota.give_body(1001, 60);
      quota.give_body(1002, 40);
      CHECK(quota.body_bytes() == 0);
    }
  }
  GIVEN("10 connections, of which root has most") {
    ClientQuota quota{HttpLimits{10, 8, 2, 100, 60}, 500};
    for (int i = 0; i < 6; ++i) REQUIRE(quota.take_connection(0));
    for (int i = 0; i < 2; ++i) REQUIRE(quota.take_connection(1001));
    THEN("root's aren't ended for a user's") {
      CHECK_FALSE(quota.take_connection(1002));
      CHECK(quota.loser_to(1002) == 1001);
    }
    THEN("where root takes more, several are ended, but none in vain") {
      REQUIRE(quota.take_connection(0));
      CHECK_FALSE(quota.loser_to(1002));  // of two one may be ended, and two places are needed
    }
  }
  GIVEN("a door whose connections have no users") {
    HttpLimits limits{2, 2, 0, 100, 60};
    limits.replaces = false;
    ClientQuota quota{limits, 500};
    for (int i = 0; i < 2; ++i) REQUIRE(quota.take_connection(1));
    THEN("none is ended for another") { CHECK_FALSE(quota.loser_to(2)); }
  }
  GIVEN("100 bytes of replies that nobody read yet, 60 a user") {
    HttpLimits limits;
    limits.reply_bytes = 100;
    limits.reply_bytes_of_a_user = 60;
    ClientQuota quota{limits, 500};
    THEN("a client that reads none of its replies gets no more of them") {
      CHECK(quota.take_reply(1001, 40));
      CHECK_FALSE(quota.take_reply(1001, 30));
      quota.give_reply(1001, 40);
      CHECK(quota.take_reply(1001, 30));
    }
    THEN("one long list reaches each user, whatever others hold") {
      CHECK(quota.take_reply(1001, 500));
      CHECK_FALSE(quota.take_reply(1001, 1));
      CHECK(quota.take_reply(1002, 500));
    }
  }
}

TEST_CASE("an idle connection is ended for another user's first, else the newest",
          "[agent][http]") {
  const acc::Instant now{};
  CHECK_FALSE(connection_to_end({}));
  CHECK(connection_to_end({{1, {}}, {3, {}}, {2, {}}}) == 3U);
  CHECK(connection_to_end({{1, {}}, {2, now}, {3, {}}}) == 2U);
  CHECK(connection_to_end({{1, now}, {2, now - acc::Millis{5}}, {3, {}}, {4, now}}) == 2U);
  // A submission isn't broken off: its client would take it for refused, and submit again.
  CHECK(connection_to_end({{1, {}}, {3, {}, true}}) == 1U);
  CHECK_FALSE(connection_to_end({{1, {}, true}}));
}
