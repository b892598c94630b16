// The files of the status page, as replies: headers that browsers obey, and what isn't sent twice.
#include "agent/daemon/http_parser.hpp"
#include "agent/daemon/page_files.hpp"
#include "agent/daemon/status_page.hpp"

#include <catch2/catch.hpp>

#include <set>
#include <string>

using namespace acc::agent::daemon;
using Catch::Matchers::Contains;

namespace {

HttpRequest page_request(const std::string& line, const std::string& headers = "") {
  RequestParser parser;
  std::size_t consumed = 0;
  const std::string text = line + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
  REQUIRE(parser.feed(text, consumed) == RequestParser::Step::has_header);
  return parser.request();
}

std::string page_header(const HttpReply& reply, const std::string& name) {
  for (const auto& [key, value] : reply.headers) {
    if (key == name) return value;
  }
  return "";
}

}  // namespace

TEST_CASE("the status page is its files, under a policy that allows nothing else",
          "[agent][page]") {
  const auto page = page_reply(page_request("GET /"));
  REQUIRE(page);
  CHECK(page->status == 200);
  CHECK(page->content_type == "text/html; charset=utf-8");
  CHECK_THAT(page->body, Contains("<!doctype html>"));
  const auto policy = page_header(*page, "Content-Security-Policy");
  CHECK_THAT(policy, Contains("default-src 'none'") && Contains("script-src 'self'") &&
                         Contains("frame-ancestors 'none'") && !Contains("unsafe"));
  CHECK(page_header(*page, "Cache-Control") == "no-cache");
  const auto head = reply_head(*page, page->body.size(), false, true);
  CHECK_THAT(head, Contains("nosniff") && !Contains("no-store"));
  std::set<std::string_view> tags;
  for (const auto& file : page_files()) {
    INFO(file.name);
    const auto reply = page_reply(page_request("GET /" + std::string{file.name}));
    REQUIRE(reply);
    CHECK(reply->status == 200);
    CHECK(reply->body == file.bytes);
    CHECK_FALSE(reply->body.empty());
    CHECK(tags.insert(file.etag).second);
    // What the policy would refuse, and any address of another place.
    CHECK_THAT(reply->body, !Contains(" style=") && !Contains("innerHTML") && !Contains("<style") &&
                                !Contains("https://"));
    if (file.name.empty()) continue;
    const std::string name{file.name};
    CHECK_THAT(page->body + std::string{page_reply(page_request("GET /app.js"))->body},
               Contains("\"/" + name + "\"") || Contains("\"./" + name + "\""));
  }
}

TEST_CASE("a file that the browser has isn't sent again", "[agent][page]") {
  const auto tag = page_header(*page_reply(page_request("GET /app.js")), "ETag");
  REQUIRE(tag.size() > 10);
  for (const auto& known : {tag, "W/" + tag, "\"x\", " + tag, std::string{"*"}}) {
    INFO(known);
    const auto reply = page_reply(page_request("GET /app.js", "If-None-Match: " + known + "\r\n"));
    CHECK(reply->status == 304);
    CHECK(reply->body.empty());
    CHECK(page_header(*reply, "ETag") == tag);
    const auto head = reply_head(*reply, 0, false, true);
    CHECK_THAT(head, Contains("304 Not Modified") && !Contains("Content-Length"));
  }
  const auto other = page_reply(page_request("GET /app.js", "If-None-Match: \"x\"\r\n"));
  CHECK(other->status == 200);
}

TEST_CASE("the page has no other paths and methods", "[agent][page]") {
  for (const auto* target : {"/index.html", "/app.js/", "/page/app.js", "/v1/jobs", "/healthz",
                             "/..%2fapp.js", "//", "/favicon.ico", "/APP.JS"}) {
    INFO(target);
    CHECK_FALSE(page_reply(page_request(std::string{"GET "} + target)));
  }
  CHECK(page_reply(page_request("HEAD /"))->status == 200);
  const auto refusal = page_reply(page_request("POST /", "Content-Length: 0\r\n"));
  CHECK(refusal->status == 405);
  CHECK(page_header(*refusal, "Allow") == "GET, HEAD");
}
