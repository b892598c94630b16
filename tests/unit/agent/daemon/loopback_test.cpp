// The door at a loopback port, as functions: what its tokens prove, and which requests are a
// page's.
#include "agent/daemon/access_token.hpp"
#include "agent/daemon/http_parser.hpp"
#include "agent/daemon/loopback_rules.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

using namespace acc;
using namespace acc::agent::daemon;
using Catch::Matchers::Contains;

namespace {

constexpr std::int64_t kNow = 1'800'000'000;

HttpRequest request_of(const std::string& line, const std::string& headers) {
  RequestParser parser;
  const std::string text = line + " HTTP/1.1\r\n" + headers + "\r\n";
  std::size_t consumed = 0;
  REQUIRE(parser.feed(text, consumed) == RequestParser::Step::has_header);
  return parser.request();
}

TokenClaims claims_of(TokenKind kind) {
  TokenClaims claims;
  claims.kind = kind;
  claims.uid = 1001;
  claims.gid = 100;
  claims.expires_s = kNow + 60;
  claims.nonce = 7;
  return claims;
}

}  // namespace

TEST_CASE("a token says what was signed, and any other bytes are none", "[agent][loopback]") {
  const AccessTokens tokens{std::string(64, 'k')};
  auto claims = claims_of(TokenKind::bearer);
  claims.only_reads = true;
  claims.bound_to = 5;
  const auto token = tokens.sign(claims);
  CHECK(tokens.check(token, TokenKind::bearer, kNow).claims == claims);
  CHECK(token.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.") == std::string::npos);
  for (std::size_t i = 0; i < token.size(); ++i) {
    INFO(i);
    CHECK(tokens.check(token.substr(0, i), TokenKind::bearer, kNow).is_forged);
    auto changed = token;
    changed[i] = changed[i] == '1' ? '2' : '1';
    CHECK(tokens.check(changed, TokenKind::bearer, kNow).is_forged);
  }
  CHECK(tokens.check(token + "0", TokenKind::bearer, kNow).is_forged);
  CHECK(tokens.check(std::string(100'000, '.'), TokenKind::bearer, kNow).is_forged);
  CHECK(tokens.check("acc1." + std::string(200, '.'), TokenKind::bearer, kNow).is_forged);
  const AccessTokens others{std::string(64, 'l')};
  CHECK(others.check(token, TokenKind::bearer, kNow).is_forged);
}

TEST_CASE("an expired token, and one of another kind, are refused and no forgery",
          "[agent][loopback]") {
  const AccessTokens tokens{std::string(64, 'k')};
  const auto late =
      tokens.check(tokens.sign(claims_of(TokenKind::bearer)), TokenKind::bearer, kNow + 60);
  CHECK_FALSE(late.claims);
  CHECK_FALSE(late.is_forged);
  CHECK_THAT(late.why, Contains("expired"));
  constexpr TokenKind kKinds[] = {TokenKind::bearer, TokenKind::ticket, TokenKind::cookie};
  for (const auto made : kKinds) {
    for (const auto wanted : kKinds) {
      const auto verdict = tokens.check(tokens.sign(claims_of(made)), wanted, kNow);
      CHECK(verdict.claims.has_value() == (made == wanted));
      CHECK_FALSE(verdict.is_forged);
    }
  }
}

TEST_CASE("a ticket is worth one session, and the memory of used ones is bounded",
          "[agent][loopback]") {
  UsedTickets used;
  auto ticket = claims_of(TokenKind::ticket);
  CHECK(used.use(ticket, kNow));
  CHECK_FALSE(used.use(ticket, kNow));
  std::size_t taken = 0;
  for (ticket.nonce = 100; ticket.nonce < 5'000; ++ticket.nonce) taken += used.use(ticket, kNow);
  CHECK(taken < 100);
  ticket.uid = 1002;  // another user isn't kept out
  CHECK(used.use(ticket, kNow));
  ticket.uid = 1001;
  CHECK(used.use(ticket, kNow + 61));
}

TEST_CASE("the key of the tokens is made once, private, and refused where others can read it",
          "[agent][loopback]") {
  std::string folder = (std::filesystem::temp_directory_path() / "acc-token-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const auto path = folder + "/token.key";
  const auto first = AccessTokens::open(path);
  REQUIRE(first.has_value());
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  const auto token = first->sign(claims_of(TokenKind::bearer));
  CHECK(AccessTokens::open(path)->check(token, TokenKind::bearer, kNow).claims);
  ::chmod(path.c_str(), 0644);
  CHECK_FALSE(AccessTokens::open(path).has_value());
  ::chmod(path.c_str(), 0600);
  std::ofstream{path} << "short\n";
  CHECK_THAT(AccessTokens::open(path).error().what, Contains("too short"));
  ::unlink(path.c_str());
  CHECK(AccessTokens::open(path)->check(token, TokenKind::bearer, kNow).is_forged);
  std::filesystem::remove_all(folder);
}

TEST_CASE("the option --http takes loopback addresses alone, and says why", "[agent][loopback]") {
  CHECK(*parse_loopback_address("9180") == NodeAddress{"127.0.0.1", 9180});
  CHECK(*parse_loopback_address("127.8.0.1:1") == NodeAddress{"127.8.0.1", 1});
  CHECK(*parse_loopback_address("localhost:9180") == NodeAddress{"127.0.0.1", 9180});
  CHECK(*parse_loopback_address("[::1]:9180") == NodeAddress{"::1", 9180});
  for (const auto* wrong : {"0.0.0.0:9180", "[::]:9180", "10.0.0.7:9180", "node1:9180",
                            "[::ffff:127.0.0.1]:9180", "[fe80::1]:1", "128.0.0.1:1"}) {
    INFO(wrong);
    REQUIRE(parse_loopback_address(wrong).has_error());
    CHECK_THAT(parse_loopback_address(wrong).error().what,
               Contains("is no loopback address") && Contains("ssh -L"));
  }
  for (const auto* wrong : {"", "0", "127.0.0.1", "127.0.0.1:0", "70000", "127.0.0.1:x"}) {
    INFO(wrong);
    CHECK(parse_loopback_address(wrong).has_error());
  }
}

TEST_CASE("a request for another host's name is a rebound page's", "[agent][loopback]") {
  const auto status = [](const std::string& host) {
    return foreign_page(request_of("GET /v1/jobs", host)).status;
  };
  for (const auto* own : {"localhost", "LocalHost:9180", "127.0.0.1:9180", "127.0.0.1",
                          "[::1]:9180", "[::1]", "127.1.2.3:1"}) {
    INFO(own);
    CHECK(status("Host: " + std::string{own} + "\r\n") == 0);
  }
  for (const auto* other :
       {"evil.example", "evil.example:9180", "localhost.evil.example", "evil.localhost", "",
        "127.0.0.1.evil.example", "10.0.0.1:9180", "localhost:9180:1", "[::1", "[::1]x", "[::2]:1",
        "localhost@evil.example", "localhost.", "0.0.0.0:9180", "127.1", "2130706433"}) {
    INFO(other);
    CHECK(status("Host: " + std::string{other} + "\r\n") == 403);
  }
  CHECK(status("") == 403);
  CHECK(status("Host: localhost\r\nHost: evil.example\r\n") == 403);
  CHECK(foreign_page(request_of("GET http://localhost/v1/jobs", "Host: localhost\r\n")).status ==
        400);
}

TEST_CASE("a page of another origin changes nothing", "[agent][loopback]") {
  const auto status = [](const std::string& line, const std::string& headers) {
    return foreign_page(request_of(line, "Host: localhost:9180\r\n" + headers)).status;
  };
  const std::string post = "POST /v1/jobs/a/stop";
  CHECK(status(post, "") == 0);
  CHECK(status(post, "Origin: http://localhost:9180\r\n") == 0);
  for (const auto* other : {"http://localhost:3000", "http://localhost", "https://localhost:9180",
                            "http://evil.example", "null", "http://127.0.0.1:9180", ""}) {
    INFO(other);
    CHECK(status(post, "Origin: " + std::string{other} + "\r\n") == 403);
    CHECK(status("DELETE /v1/jobs/a", "Origin: " + std::string{other} + "\r\n") == 403);
  }
  CHECK(status(post, "Origin: http://localhost:9180\r\nOrigin: http://evil.example\r\n") == 403);
  CHECK(status("GET /v1/jobs", "Origin: http://localhost:3000\r\n") == 0);  // can't read the reply
  CHECK(status("GET /v1/jobs", "Sec-Fetch-Site: none\r\n") == 0);
  CHECK(status("GET /v1/jobs", "Sec-Fetch-Site: same-origin\r\n") == 0);
  CHECK(status("GET /v1/jobs", "Sec-Fetch-Site: same-site\r\n") == 403);
  CHECK(status("GET /?token=x", "Sec-Fetch-Site: cross-site\r\n") == 403);
}

TEST_CASE("a token is taken from one Authorization header, else from the port's own cookie",
          "[agent][loopback]") {
  const auto found = [](const std::string& headers) {
    static HttpRequest request;
    request = request_of("GET /v1/jobs", headers);
    return credentials_of(request, "acc-9180");
  };
  CHECK(found("Authorization: Bearer abc\r\n").bearer == "abc");
  CHECK(found("authorization: bearer  abc \r\n").bearer == "abc");
  CHECK(found("Cookie: a=b; acc-9180=xyz; c\r\n").cookie == "xyz");
  CHECK(found("Cookie: acc-9181=xyz; xacc-9180=1\r\n").cookie.empty());
  CHECK(found("Authorization: Basic abc\r\nCookie: acc-9180=xyz\r\n").is_malformed);
  CHECK(found("Authorization: Basic abc\r\nCookie: acc-9180=xyz\r\n").cookie.empty());
  CHECK(found("Authorization: Bearer\r\n").is_malformed);
  CHECK(found("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n").is_malformed);
  CHECK_FALSE(found("").is_malformed);
  const auto ticket = [](const std::string& line) {
    static HttpRequest request;
    request = request_of(line, "");
    return ticket_of(request);
  };
  CHECK(ticket("GET /?token=abc") == "abc");
  CHECK_FALSE(ticket("POST /?token=abc"));
  CHECK_FALSE(ticket("HEAD /?token=abc"));
  CHECK_FALSE(ticket("GET /v1/jobs?token=abc"));
  CHECK_FALSE(ticket("GET /?token=abc&x=1"));
  CHECK_FALSE(ticket("GET /"));
}

TEST_CASE("any user could fill the daemon's log by asking for tokens", "[agent][loopback]") {
  IssuedTokensLog issued;
  const Instant start{};
  int logged = 0;
  int last = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto line = issued.issued(1001, start);
    logged += line.is_logged;
    last += line.is_last;
    CHECK(line.left_out == 0);
  }
  CHECK(logged == 10);
  CHECK(last == 1);
  CHECK(issued.issued(1002, start).is_logged);
  const auto next = issued.issued(1001, start + Millis{60'000});
  CHECK(next.is_logged);
  CHECK(next.left_out == 990);
  CHECK(issued.issued(1001, start + Millis{60'000}).left_out == 0);
}

TEST_CASE("wrong tokens of one user are limited, logged once, and don't stop another's",
          "[agent][loopback]") {
  WrongTokens wrong;
  const Instant start{};
  int logged = 0;
  for (int i = 0; i < 10; ++i) {
    CHECK_FALSE(wrong.is_blocked(1001, start));
    logged += wrong.failed(1001, start);
  }
  CHECK(logged == 1);
  CHECK(wrong.is_blocked(1001, start));
  CHECK(wrong.blocked_for(1001, start) == Millis{60'000});
  CHECK_FALSE(wrong.is_blocked(1002, start));
  const Instant later = start + Millis{60'000};
  CHECK_FALSE(wrong.is_blocked(1001, later));
  CHECK(wrong.failed(1001, later));
}
