#include "rendezvous/etcd_json.hpp"

#include "rendezvous/etcd_client.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;

TEST_CASE("base64 gives back what it got, whatever the length", "[rendezvous][etcd]") {
  CHECK(to_base64("") == "");
  CHECK(to_base64("f") == "Zg==");
  CHECK(to_base64("fo") == "Zm8=");
  CHECK(to_base64("foo") == "Zm9v");
  CHECK(to_base64("foobar") == "Zm9vYmFy");
  std::string bytes;
  for (int i = 0; i < 600; ++i) {
    REQUIRE(from_base64(to_base64(bytes)) == bytes);
    bytes += static_cast<char>(i * 37);
  }
}

TEST_CASE("base64 that isn't the one way to write bytes is refused", "[rendezvous][etcd]") {
  for (const char* text :
       {"Z", "Zg", "Zg=", "Z===", "====", "Zh==", "Zm9=", "Zm 9", "Zm9v\n", "Zg==Zg==", "Zm9-"}) {
    INFO(text);
    CHECK_FALSE(from_base64(text));
  }
}

TEST_CASE("requests are as etcd's gateway reads them", "[rendezvous][etcd]") {
  CHECK(etcd_range_request("foo") == R"({"key":"Zm9v"})");
  CHECK(etcd_put_request("foo", "bar", 0) == R"({"key":"Zm9v","value":"YmFy"})");
  CHECK(etcd_put_request("foo", "bar", 7) == R"({"key":"Zm9v","lease":"7","value":"YmFy"})");
  CHECK(etcd_login_request("a", "b\"c") == R"({"name":"a","password":"b\"c"})");
  CHECK(etcd_grant_request(10) == R"({"TTL":"10"})");
  CHECK(etcd_lease_request(2324035515563239686) == R"({"ID":"2324035515563239686"})");
  EtcdTransaction transaction;
  transaction.when = {{"foo", EtcdCompare::Of::created, 0, {}},
                      {"foo", EtcdCompare::Of::modified, 9, {}},
                      {"foo", EtcdCompare::Of::value, 0, "bar"}};
  transaction.then = {{EtcdOperation::Kind::put, "foo", "bar", 3}};
  transaction.otherwise = {{EtcdOperation::Kind::get, "foo", {}, 0},
                           {EtcdOperation::Kind::remove, "foo", {}, 0}};
  CHECK(etcd_transaction_request(transaction) ==
        R"({"compare":[{"create_revision":"0","key":"Zm9v","result":"EQUAL","target":"CREATE"},)"
        R"({"key":"Zm9v","mod_revision":"9","result":"EQUAL","target":"MOD"},)"
        R"({"key":"Zm9v","result":"EQUAL","target":"VALUE","value":"YmFy"}],)"
        R"("failure":[{"request_range":{"key":"Zm9v"}},{"request_delete_range":{"key":"Zm9v"}}],)"
        R"("success":[{"request_put":{"key":"Zm9v","lease":"3","value":"YmFy"}}]})");
}

// Recorded from etcd 3.4.23.
static const std::string kHeader =
    R"("header":{"cluster_id":"324952591200643719","member_id":"3319814642761637952","revision":"2","raft_term":"2"})";
static const std::string kFoo =
    R"({"key":"Zm9v","create_revision":"2","mod_revision":"3","version":"1","value":"YmFy","lease":"2324035515563239686"})";

SCENARIO("answers of a real etcd are understood", "[rendezvous][etcd]") {
  const EtcdEntry foo{"foo", "bar", 2, 3, 2324035515563239686};
  THEN("a range with and without the key") {
    const auto there = parse_etcd_range("{" + kHeader + R"(,"kvs":[)" + kFoo + R"(],"count":"1"})");
    REQUIRE(there.has_value());
    CHECK(there->revision == 2);
    CHECK(there->entry == foo);
    const auto missing = parse_etcd_range("{" + kHeader + "}");
    REQUIRE(missing.has_value());
    CHECK_FALSE(missing->entry);
  }
  THEN("both branches of a transaction, reads in their places") {
    const EtcdTransaction asked{
        {{"foo", EtcdCompare::Of::created, 0, {}}},
        {{EtcdOperation::Kind::put, "foo", "bar", 0}, {EtcdOperation::Kind::get, "foo", {}, 0}},
        {{EtcdOperation::Kind::get, "foo", {}, 0}}};
    const auto done = parse_etcd_transaction(
        "{" + kHeader +
            R"(,"succeeded":true,"responses":[{"response_put":{"header":{"revision":"2"}}},)" +
            R"({"response_range":{"header":{"revision":"2"},"kvs":[)" + kFoo +
            R"(],"count":"1"}}]})",
        asked);
    REQUIRE(done.has_value());
    CHECK(done->succeeded);
    CHECK(done->revision == 2);
    REQUIRE(done->reads.size() == 2);
    CHECK_FALSE(done->reads[0]);
    CHECK(done->reads[1] == foo);
    const auto not_done = parse_etcd_transaction(
        "{" + kHeader + R"(,"responses":[{"response_range":{"header":{"revision":"2"}}}]})", asked);
    REQUIRE(not_done.has_value());
    CHECK_FALSE(not_done->succeeded);
    CHECK(not_done->reads == std::vector<std::optional<EtcdEntry>>{std::nullopt});
  }
  THEN("the token of a login") {
    CHECK(*parse_etcd_token("{" + kHeader + R"(,"token":"sssvIpwfnLAcWAQH.9"})") ==
          "sssvIpwfnLAcWAQH.9");
    for (const char* text : {"{}", R"({"token":""})", R"({"token":"a\r\nHost: b"})", "7"})
      CHECK(parse_etcd_token(text).has_error());
  }
  THEN("a lease granted, kept, and gone") {
    CHECK(parse_etcd_lease("{" + kHeader + R"(,"ID":"2324035515563239686","TTL":"2"})")->ttl_s ==
          2);
    CHECK(parse_etcd_lease(R"({"result":{)" + kHeader + R"(,"ID":"77","TTL":"2"}})")->id == 77);
    CHECK(parse_etcd_lease(R"({"result":{)" + kHeader + R"(,"ID":"12345"}})")->ttl_s == 0);
  }
}

TEST_CASE("any other bytes are an error in words, never more", "[rendezvous][etcd]") {
  const std::vector<EtcdOperation> read{{EtcdOperation::Kind::get, "foo", {}, 0}};
  const EtcdTransaction asked{{}, read, read};
  const std::vector<std::string> texts{
      "",
      "null",
      "7",
      "[]",
      "{",
      "\xff\xfe",
      R"("text")",
      "{}",
      R"({"header":7})",
      R"({"header":{"revision":"x"}})",
      R"({"header":{"revision":"99999999999999999999"}})",
      R"({"header":{"revision":1e3},"kvs":7})",
      R"({"header":{"revision":"1"},"kvs":[7]})",
      R"({"header":{"revision":"1"},"kvs":[{"key":"%"}]})",
      R"({"header":{"revision":"1"},"succeeded":1})",
      R"({"header":{"revision":"1"},"succeeded":true,"responses":{"a":1}})",
      R"({"header":{"revision":"1"},"succeeded":true,"responses":[7]})",
      R"({"result":7})",
      R"({"ID":"-","TTL":"2"})",
      R"({"ID":"5","TTL":"-2"})",
      R"({"error":{"message":"etcdserver: no leader"}})",
      std::string(200'000, '[')};
  for (const auto& text : texts) {
    INFO(text.substr(0, 80));
    const auto range = parse_etcd_range(text);
    // These two are something else than a range, yet a range could look like that.
    const bool may_be_range = text.find("succeeded") != std::string::npos;
    CHECK((range.has_error() ? !range.error().what.empty() : may_be_range));
    CHECK((parse_etcd_transaction(text, asked).has_error()));
    CHECK((parse_etcd_lease(text).has_error()));
    CHECK_FALSE(parse_etcd_refusal(500, text).what.empty());
  }
}

TEST_CASE("an answer that conditions which weren't set don't hold ended the agent",
          "[rendezvous][etcd]") {
  const std::vector<EtcdOperation> read{{EtcdOperation::Kind::get, "foo", {}, 0}};
  for (const char* text : {R"({"header":{"revision":"5"}})",
                           R"({"header":{"revision":"5"},"succeeded":false,"responses":[]})"}) {
    const auto reply = parse_etcd_transaction(text, {{}, read, {}});
    REQUIRE(reply.has_error());
    CHECK_THAT(reply.error().what, Contains("no answer to a transaction"));
  }
}

TEST_CASE("a refusal of a stream, as of a renewal, is one like any other", "[rendezvous][etcd]") {
  const auto no_leader = parse_etcd_refusal(
      503,
      R"({"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader","http_status":"Service Unavailable"}})");
  CHECK(no_leader.elsewhere);
  CHECK_THAT(no_leader.what, Contains("no leader") && Contains("etcdctl endpoint status"));
  const auto stale = parse_etcd_refusal(
      401, R"({"error":{"grpc_code":16,"message":"etcdserver: invalid auth token"}})");
  CHECK(stale.needs_login);
  for (const char* text : {R"({"error":{}})", R"({"error":{"grpc_code":"14","message":"x"}})",
                           R"({"error":{"grpc_code":14,"message":7}})", R"({"error":[7]})"})
    CHECK_THAT(parse_etcd_refusal(503, text).what, Contains("--enable-grpc-gateway"));
}

TEST_CASE("a refusal tells the cure and whether another member may do better",
          "[rendezvous][etcd]") {
  const auto refusal = [](unsigned status, std::string_view body) {
    return parse_etcd_refusal(status, body);
  };
  const auto no_leader = refusal(
      503, R"({"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14})");
  CHECK(no_leader.elsewhere);
  CHECK_THAT(no_leader.what, Contains("no leader") && Contains("etcdctl endpoint status"));
  const auto full = refusal(
      500, R"({"error":"x","message":"etcdserver: mvcc: database space exceeded","code":8})");
  CHECK_FALSE(full.elsewhere);
  CHECK(full.code == Errc::exhausted);
  CHECK_THAT(full.what, Contains("etcdctl defrag"));
  const auto big =
      refusal(400, R"({"error":"x","message":"etcdserver: request is too large","code":3})");
  CHECK_THAT(big.what, Contains("--max-request-bytes"));
  const auto users =
      refusal(400, R"({"error":"x","message":"etcdserver: user name is empty","code":3})");
  CHECK(users.code == Errc::not_permitted);
  CHECK(users.needs_login);
  CHECK_THAT(users.what, Contains("--etcd_user_file"));
  const auto stale =
      refusal(401, R"({"error":"x","message":"etcdserver: invalid auth token","code":16})");
  CHECK(stale.needs_login);
  const auto wrong = refusal(
      400,
      R"({"error":"x","message":"etcdserver: authentication failed, invalid user ID or password","code":3})");
  CHECK(wrong.code == Errc::not_permitted);
  CHECK_FALSE(wrong.needs_login);
  const auto role =
      refusal(403, R"({"error":"x","message":"etcdserver: permission denied","code":7})");
  CHECK_FALSE(role.needs_login);
  CHECK_THAT(role.what, Contains("grant-permission") && Contains("--etcd_prefix"));
  CHECK(refusal(412, R"({"message":"etcdserver: authentication is not enabled","code":9})")
            .has_no_users);
  const auto lease =
      refusal(404, R"({"error":"x","message":"etcdserver: requested lease not found","code":5})");
  CHECK_FALSE(lease.elsewhere);
  CHECK_THAT(refusal(400, "Client sent an HTTP request to an HTTPS server.\n").what,
             Contains("https://"));
  const auto stranger = refusal(404, "<html>\nNot Found\n</html>");
  CHECK(stranger.elsewhere);
  CHECK_THAT(stranger.what, Contains("404") && Contains("--enable-grpc-gateway"));
}

TEST_CASE("endpoints are read as people write them", "[rendezvous][etcd]") {
  using Endpoints = std::vector<EtcdEndpoint>;
  CHECK(*parse_etcd_endpoints("http://a:2400, b ,[::1]:2401,http://[fe80::1]/,b:2379") ==
        Endpoints{{"a", 2400}, {"b", 2379}, {"::1", 2401}, {"fe80::1", 2379}});
  CHECK(*parse_etcd_endpoints("https://a,https://[::1]:2401/") ==
        Endpoints{{"a", 2379, true}, {"::1", 2401, true}});
  CHECK(to_string(EtcdEndpoint{"a", 2400, true}) == "https://a:2400");
  CHECK(to_string(EtcdEndpoint{"::1", 2401}) == "http://[::1]:2401");
  const std::vector<std::pair<std::string, std::string>> wrong{{"", "no address"},
                                                               {" , ", "no address"},
                                                               {"https://", "no host"},
                                                               {"a:0", "port"},
                                                               {"a:70000", "port"},
                                                               {"a:", "port"},
                                                               {"::1", "[ ]"},
                                                               {"[::1", "]"},
                                                               {"[::1]2379", ":PORT"},
                                                               {":2379", "no host"},
                                                               {"http://u@a", "HOST:PORT"},
                                                               {"a/b", "HOST:PORT"},
                                                               {"a b", "HOST:PORT"}};
  for (const auto& [text, why] : wrong) {
    INFO(text);
    const auto endpoints = parse_etcd_endpoints(text);
    REQUIRE(endpoints.has_error());
    CHECK(endpoints.error().code == Errc::bad_config);
    CHECK_THAT(endpoints.error().what, Contains(why));
  }
}
