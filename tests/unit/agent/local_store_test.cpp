#include "agent/local_store.hpp"

#include <catch2/catch.hpp>

#include <optional>

using namespace acc;
using namespace acc::agent;
using namespace std::chrono_literals;
using rendezvous::KvReply;
using rendezvous::KvRequest;

namespace {

KvRequest get(std::string key, Millis timeout) {
  KvRequest request;
  request.op = KvRequest::Op::get;
  request.key = std::move(key);
  request.timeout = timeout;
  return request;
}
KvRequest set(std::string key, std::string value) {
  KvRequest request;
  request.op = KvRequest::Op::set;
  request.key = std::move(key);
  request.value = std::move(value);
  return request;
}

}  // namespace

TEST_CASE("a job on one node answers its workers by itself", "[agent][kv]") {
  boost::asio::io_context io{1};
  LocalStore store{io, 4};
  std::optional<KvReply> first;
  std::optional<KvReply> second;
  SECTION("a get waits for the set of another") {
    store.ask(1, get("k", 10s), [&](KvReply r) { first = std::move(r); });
    CHECK_FALSE(first.has_value());
    store.ask(2, set("k", "v"), [&](KvReply r) { second = std::move(r); });
    CHECK(first->value == "v");
    CHECK(second->status == KvReply::Status::ok);
    CHECK(io.run_for(5s) == 1);  // no timer is left, but for the one cancelled
  }
  SECTION("time runs out without anybody's help") {
    store.ask(1, get("k", 20ms), [&](KvReply r) { first = std::move(r); });
    const auto began = std::chrono::steady_clock::now();
    io.run_for(5s);
    CHECK(first->status == KvReply::Status::timed_out);
    CHECK(std::chrono::steady_clock::now() - began >= 20ms);
  }
  SECTION("who is gone hears nothing") {
    store.ask(1, get("k", 10s), [&](KvReply r) { first = std::move(r); });
    store.gone(1);
    store.ask(2, set("k", "v"), [&](KvReply r) { second = std::move(r); });
    CHECK_FALSE(first.has_value());
    CHECK(second.has_value());
  }
  SECTION("the next round begins empty") {
    store.ask(2, set("old", "v"), [&](KvReply r) { second = std::move(r); });
    store.ask(1, get("k", 10s), [&](KvReply r) { first = std::move(r); });
    store.begin_round(Round{1});
    CHECK(first->status == KvReply::Status::wrong_round);
    store.ask(2, get("old", 0s), [&](KvReply r) { second = std::move(r); });
    CHECK(second->status == KvReply::Status::missing);
  }
}
