// What daemons say to each other, as functions: addresses, users, requests, replies, secrets.
#include "agent/daemon/api_body.hpp"
#include "agent/daemon/cluster_secret.hpp"
#include "agent/daemon/host_lookup.hpp"
#include "agent/daemon/http_parser.hpp"
#include "agent/daemon/http_reply_parser.hpp"
#include "agent/daemon/peer_rules.hpp"
#include "agent/daemon/plan_program.hpp"
#include "tests/support/temporary_folder.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent::daemon;
using Catch::Matchers::Contains;
using ReplyStep = ReplyParser::Step;

namespace {

HttpRequest parsed(const std::string& text) {
  RequestParser parser;
  std::string held = text;
  for (;;) {
    std::size_t consumed = 0;
    const auto step = parser.feed(held, consumed);
    held.erase(0, consumed);
    if (step == RequestParser::Step::has_header) continue;
    REQUIRE(step == RequestParser::Step::done);
    return parser.request();
  }
}

struct Reply {
  ReplyStep end = ReplyStep::needs_more;
  unsigned status = 0;
  std::string body;
  bool is_whole = false;
};

Reply read_reply(std::string bytes, std::size_t piece, bool is_to_head = false) {
  ReplyParser parser{is_to_head};
  Reply reply;
  std::string held;
  while (reply.end == ReplyStep::needs_more || reply.end == ReplyStep::has_head) {
    std::size_t consumed = 0;
    reply.end = parser.feed(held, consumed, reply.body);
    held.erase(0, consumed);
    if (reply.end != ReplyStep::needs_more) continue;
    if (bytes.empty()) break;
    held += bytes.substr(0, piece);
    bytes.erase(0, piece);
  }
  reply.status = parser.status();
  reply.is_whole = parser.end();
  return reply;
}

rendezvous::Secret secret_of(std::initializer_list<const char*> ids) {
  rendezvous::Secret secret{"/etc/acc/secret", {}};
  for (const auto* id : ids)
    secret.keys.push_back({id, rendezvous::SecretBytes{std::string(40, id[0])}});
  return secret;
}

}  // namespace

TEST_CASE("a node is named by host, with or without a port", "[agent][peers]") {
  using A = NodeAddress;
  CHECK(parse_node_address("b") == A{"b", 0});
  CHECK(parse_node_address("node-1.cluster_a:29701") == A{"node-1.cluster_a", 29701});
  CHECK(parse_node_address("10.0.0.7") == A{"10.0.0.7", 0});
  CHECK(parse_node_address("fd77::2") == A{"fd77::2", 0});
  CHECK(parse_node_address("[fd77::2]:1") == A{"fd77::2", 1});
  CHECK(parse_node_address("[fd77::2]") == A{"fd77::2", 0});
  for (const auto* wrong : {"", ":1", "b:", "b:0", "b:65536", "b:-1", "-b", "b c", "b/c", "[b]:1",
                            "[::1", "[::1]x", "a:b:c", "user@b", "b\r\nX: y"}) {
    INFO(wrong);
    CHECK_FALSE(parse_node_address(wrong));
  }
  CHECK_FALSE(parse_node_address(std::string_view{"::\0 ", 4}));
  CHECK_FALSE(parse_node_address("fe80::1%a b"));
}

TEST_CASE("the option --listen takes a port, and a numeric address of this host",
          "[agent][peers]") {
  CHECK(*parse_listen_address("29701") == NodeAddress{"", 29701});
  CHECK(*parse_listen_address("10.0.0.7") == NodeAddress{"10.0.0.7", kDefaultPeerPort});
  CHECK(*parse_listen_address("[::]:5") == NodeAddress{"::", 5});
  for (const auto* wrong : {"", "0", "b", "b:1", "70000", "10.0.0.7:0"}) {
    INFO(wrong);
    REQUIRE(parse_listen_address(wrong).has_error());
    CHECK_THAT(parse_listen_address(wrong).error().what, Contains("[ADDRESS:]PORT"));
  }
}

TEST_CASE("another node names exactly one user, and no number", "[agent][peers]") {
  const auto vouched = [](const std::string& headers) {
    return vouched_user(parsed("GET /v1/jobs HTTP/1.1\r\n" + headers + "\r\n"));
  };
  CHECK(vouched("X-Acc-User: alice\r\n").name == "alice");
  CHECK(vouched("X-Acc-User: alice\r\n").refusal.status == 0);
  CHECK(vouched("x-acc-user: user@example.org\r\n").refusal.status == 0);
  CHECK(vouched("").refusal.status == 400);
  CHECK(vouched("X-Acc-User: alice\r\nX-ACC-USER: root\r\n").refusal.status == 400);
  CHECK(vouched("X-Acc-User: 0\r\n").refusal.status == 403);
  CHECK(vouched("X-Acc-User: 1001\r\n").refusal.status == 403);
  CHECK(vouched("X-Acc-User:\r\n").refusal.status == 403);
  CHECK(vouched("X-Acc-User: a:b\r\n").refusal.status == 403);
  CHECK(vouched("X-Acc-User: ../x\r\n").refusal.status == 403);
  CHECK_FALSE(user_name_complaint(std::string(257, 'a')).empty());
  CHECK_FALSE(user_name_complaint("a\nb").empty());
  CHECK_FALSE(user_name_complaint(" a").empty());
}

TEST_CASE("a request is passed on with the caller's name, and nothing that the caller claims",
          "[agent][peers]") {
  const auto request = parsed(
      "POST /v1/nodes/b:1/v1/jobs%2Fx?a=1&b=%20 HTTP/1.1\r\nX-Acc-User: root\r\n"
      "X-Acc-Version: 9\r\nCookie: c\r\nContent-Type: application/json\r\nLast-Event-ID: 5,6\r\n"
      "Authorization: x\r\nContent-Length: 2\r\n\r\n{}");
  const auto target = split_node_target(request);
  REQUIRE(target);
  CHECK(target->node == "b:1");
  CHECK(target->rest == "/v1/jobs%2Fx?a=1&b=%20");
  const auto text = peer_request(request, *target, "alice");
  const auto read = parsed(text);
  CHECK(read.method == "POST");
  CHECK(read.target == target->rest);
  CHECK(read.body == "{}");
  CHECK(read.header("x-acc-user") == "alice");
  CHECK(read.header("content-type") == "application/json");
  CHECK(read.header("last-event-id") == "5,6");
  CHECK_FALSE(read.header("cookie"));
  CHECK_FALSE(read.header("authorization"));
  CHECK(vouched_user(read).refusal.status == 0);
  CHECK(read.header("x-acc-version") != "9");
  CHECK_FALSE(read.keeps_alive);
}

TEST_CASE("what is asked of a node stands behind its name, in any form of target",
          "[agent][peers]") {
  const auto rest = [](const std::string& target) {
    const auto split = split_node_target(parsed("GET " + target + " HTTP/1.1\r\n\r\n"));
    return split ? split->node + " " + split->rest : "none";
  };
  CHECK(rest("/v1/nodes/b/v1/node") == "b /v1/node");
  CHECK(rest("http://acc/v1/nodes/b/v1/node?x") == "b /v1/node?x");
  CHECK(rest("/v1/nodes/%62/v1/jobs/a%2Fb") == "b /v1/jobs/a%2Fb");
  CHECK(rest("/v1/nodes/b/v1#x") == "b /v1");
  CHECK(rest("/v1/nodes/b") == "none");
  CHECK(rest("/v1/nodes") == "none");
  CHECK(rest("/v1/nodes/b?x=/v1/node") == "none");
}

TEST_CASE("a reply is read in any pieces, and one that breaks off isn't whole", "[agent][peers]") {
  const std::string chunked =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n "
      "world\r\n0\r\n\r\n";
  const std::string sized = "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nabc";
  for (const std::size_t piece : {1UL, 3UL, 1000UL}) {
    INFO(piece);
    const auto all = read_reply(chunked, piece);
    CHECK(all.end == ReplyStep::done);
    CHECK(all.body == "hello world");
    CHECK(all.is_whole);
    CHECK(read_reply(sized, piece).body == "abc");
    CHECK(read_reply(sized, piece).status == 404);
    for (std::size_t cut = 1; cut < chunked.size(); ++cut) {
      const auto part = read_reply(chunked.substr(0, cut), piece);
      CHECK(std::string{"hello world"}.starts_with(part.body));
      CHECK_FALSE(part.is_whole);
    }
    CHECK_FALSE(read_reply(sized.substr(0, sized.size() - 1), piece).is_whole);
  }
  CHECK(read_reply("HTTP/1.1 204 No Content\r\n\r\n", 7).end == ReplyStep::done);
  CHECK(read_reply("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 7, true).end == ReplyStep::done);
}

TEST_CASE("what is no reply of a daemon ends in an error, in bounded memory", "[agent][peers]") {
  CHECK(read_reply("SSH-2.0-OpenSSH_9.2\r\n\r\n", 4).end == ReplyStep::broken);
  CHECK(read_reply("HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x'), 4096).end ==
        ReplyStep::broken);
  CHECK(read_reply("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 4).end ==
        ReplyStep::broken);
  CHECK(read_reply(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(100'000, 'x'),
            4096)
            .end == ReplyStep::broken);
}

TEST_CASE("with the secret's file gone the daemon named another place than it had served from",
          "[agent][peers]") {
  const acc::testing::TestFolder folder;
  const auto path = (folder / "acc-secret").string();
  std::ofstream{path} << std::string(64, 'a') << '\n';
  ::chmod(path.c_str(), 0600);
  ::setenv("CREDENTIALS_DIRECTORY", folder.path().c_str(), 1);
  ClusterSecret secret{"", false};
  CHECK(secret.secret().has_value());
  std::filesystem::remove(path);
  const auto gone = secret.secret();
  ::unsetenv("CREDENTIALS_DIRECTORY");
  REQUIRE(gone.has_error());
  CHECK_THAT(gone.error().what, Contains("'" + path + "'"));
}

TEST_CASE("a launch's secret is the same for all nodes, and another for each launch and key",
          "[agent][peers]") {
  const auto secret = secret_of({"aaaaaaaa", "bbbbbbbb"});
  const auto rotated = secret_of({"bbbbbbbb", "aaaaaaaa"});
  const auto text = [](const Result<rendezvous::SecretBytes>& bytes) {
    REQUIRE(bytes.has_value());
    return std::string{bytes->view()};
  };
  const auto one = text(launch_secret(secret, "aaaaaaaa", "alice", "t-1"));
  CHECK(one.size() == 64);
  CHECK(one.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(one == text(launch_secret(rotated, "aaaaaaaa", "alice", "t-1")));
  CHECK(one == text(launch_secret(secret, "", "alice", "t-1")));
  CHECK(one != text(launch_secret(rotated, "", "alice", "t-1")));
  CHECK(one != text(launch_secret(secret, "aaaaaaaa", "alice", "t-2")));
  // A user that takes the id of another's launch doesn't get its secret.
  CHECK(one != text(launch_secret(secret, "aaaaaaaa", "bob", "t-1")));
  // Not the key of the rendezvous of a job with that name.
  const auto job = rendezvous::job_key(secret.keys[0], "t-1");
  CHECK(one.substr(0, 2) !=
        std::string{"0123456789abcdef"[job[0] >> 4U], "0123456789abcdef"[job[0] & 15U]});
  REQUIRE(launch_secret(secret, "cccccccc", "alice", "t-1").has_error());
  CHECK_THAT(launch_secret(secret, "cccccccc", "alice", "t-1").error().what, Contains("cccccccc"));
}

TEST_CASE("a submission's launch is read, and wrong ones are named", "[agent][peers]") {
  const auto launch = [](const std::string& text) {
    return decode_submission(R"({"words": ["x"], "working_directory": "/", "launch": )" + text +
                             "}");
  };
  const auto right = launch(R"({"id": "train-k3jd82", "nodes": 3, "node_rank": 2})");
  REQUIRE(right.is_right());
  CHECK(right.value.launch->id == "train-k3jd82");
  CHECK(right.value.launch->nodes == 3);
  CHECK(right.value.launch->node_rank == 2);
  CHECK(right.value.launch->key_id.empty());
  CHECK_FALSE(right.value.only_checks);
  for (const auto* wrong :
       {"1", "{}", R"({"id": "A", "nodes": 1, "node_rank": 0})", R"({"id": "a", "nodes": 0})",
        R"({"id": "a", "nodes": 2, "node_rank": 2})", R"({"id": "a", "key_id": "aaaaaaaa"})"}) {
    INFO(wrong);
    const auto read = launch(wrong);
    REQUIRE_FALSE(read.is_right());
    CHECK_THAT(read.complaints[0], Contains("launch"));
  }
}

static std::optional<PlanProgram> program_of(const std::string& output) {
  return read_plan(output).value().value().program;
}

TEST_CASE("the program of a printed plan is its script, or what runs without python",
          "[agent][peers]") {
  const auto of = [](const std::string& command) {
    const auto found = program_of(
        "defaults:\n  x={}\n{\n  \"kind\": \"elastic\",\n  \"command\": " + command + "\n}\n");
    return found ? (found->is_script ? "script " : "program ") + found->path : "none";
  };
  CHECK(of(R"(["/usr/bin/python3", "-u", "train.py", "a"])") == "script train.py");
  CHECK(of(R"(["/usr/bin/python3", "-u", "-m", "package"])") == "program /usr/bin/python3");
  CHECK(of(R"(["/usr/bin/python3.11", "/data/train.py"])") == "script /data/train.py");
  CHECK(of(R"(["/usr/bin/python3", "-m", "package"])") == "program /usr/bin/python3");
  CHECK(of(R"(["sh", "-c", "true"])") == "program sh");
  CHECK(of("[]") == "none");
  CHECK(of("7") == "none");
  CHECK(program_of("{\n \"command\": [\"a\"], \"program_problem\": null\n}")->problem == "");
  CHECK(program_of("{\n \"command\": [\"a\"], \"program_problem\": \"cannot start\"\n}")->problem ==
        "cannot start");
}

TEST_CASE("a printed plan says how many slots and GPUs it takes, and one that is cut off nothing",
          "[agent][peers]") {
  const auto share = [](const std::string& output) {
    return read_plan(output).value().value().share;
  };
  CHECK(share("{\n \"launch\": {\"nproc_per_node\": 6}\n}").slots == 6);
  CHECK(share("{\n \"launch\": {\"nproc_per_node\": -6}\n}").slots == 1);
  const auto both = share(
      "{\n \"launch\": {\"nproc_per_node\": 6},\n \"share\": {\"slots\": null, \"gpus\": 2}\n}");
  CHECK(both.slots == 6);
  CHECK(both.gpus == 2);
  CHECK(share("{\n \"share\": {\"slots\": 3}\n}").slots == 3);
  CHECK(share("{\n \"share\": {\"slots\": 4294967296}\n}").slots == UINT32_MAX);
  CHECK(share("{\n \"share\": {\"gpus\": -1}\n}").gpus == 0);
  for (const auto* none : {"", "no plan", "{", "0.1.0\n"}) CHECK_FALSE(read_plan(none).value());
  for (const auto* cut : {"{\n", "note\n{\n \"kind\": \"elastic\",\n", "{\n \"command\": [\n}"})
    CHECK(read_plan(cut).error().code == Errc::malformed);
}

TEST_CASE("a thousand names at once are looked up, some after the others", "[daemon]") {
  boost::asio::io_context io{1};
  HostLookups lookups{io};
  constexpr std::size_t kNames = 1000;
  std::size_t found = 0;
  std::string failed;
  const Instant due = clock_now() + Millis{60'000};
  const auto ask = [&]() -> boost::asio::awaitable<void> {
    NodeAddress localhost;
    localhost.host = "localhost";
    localhost.port = 1;
    const auto answer = co_await lookups.find(1000, localhost, due);
    found += answer.found.empty() ? 0 : 1;
    if (answer.found.empty()) failed = answer.failed;
  };
  for (std::size_t i = 0; i < kNames; ++i)
    boost::asio::co_spawn(io, ask(), [](const std::exception_ptr&) {});
  io.run();
  CHECK(failed.empty());
  CHECK(found == kNames);
}

namespace {

/// Names beginning with "slow" are answered when the test says so, all others at once.
class FakeNames {
 public:
  HostLookups::Resolver resolver() {
    return [facts = facts_](const NodeAddress& of) {
      std::unique_lock lock{facts->mutex};
      facts->asked.push_back(of.host);
      facts->changed.notify_all();
      if (of.host.starts_with("slow"))
        facts->changed.wait(lock, [&] { return facts->is_released; });
      HostAddresses answer;
      answer.found.emplace_back(boost::asio::ip::address_v4::loopback(), of.port);
      return answer;
    };
  }
  void release() {
    const std::lock_guard lock{facts_->mutex};
    facts_->is_released = true;
    facts_->changed.notify_all();
  }
  std::vector<std::string> asked() const {
    const std::lock_guard lock{facts_->mutex};
    return facts_->asked;
  }

 private:
  struct Facts {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::string> asked;
    bool is_released = false;
  };
  std::shared_ptr<Facts> facts_ = std::make_shared<Facts>();  // its threads may outlive us
};

struct Lookups {
  explicit Lookups(LookupLimits limits = {}) : of{io, limits, names.resolver()} {}
  ~Lookups() { names.release(); }
  Lookups(const Lookups&) = delete;
  Lookups& operator=(const Lookups&) = delete;

  void ask(uid_t uid, std::string name, std::function<void(HostAddresses)> told,
           Millis limit = Millis{60'000}) {
    NodeAddress address;
    address.host = std::move(name);
    address.port = 1;
    boost::asio::co_spawn(io, of.find(uid, address, clock_now() + limit),
                          [told](const std::exception_ptr& failed, HostAddresses found) {
                            if (!failed && told) told(std::move(found));
                          });
  }

  boost::asio::io_context io{1};
  FakeNames names;
  HostLookups of;
};

constexpr uid_t kAnn = 61001;
constexpr uid_t kBob = 61002;

}  // namespace

SCENARIO("a user's slow host names hold up the look-ups of no other user", "[agent][peers]") {
  GIVEN("a user who asks for 250 names that no server answers for") {
    Lookups lookups;
    std::size_t of_ann = 0;
    for (int i = 0; i < 250; ++i)
      lookups.ask(kAnn, "slow" + std::to_string(i), [&](const auto&) { ++of_ann; });
    WHEN("another user asks for a name") {
      bool is_found = false;
      lookups.ask(kBob, "node7", [&](const HostAddresses& answer) {
        is_found = !answer.found.empty();
        lookups.io.stop();
      });
      lookups.io.run();
      THEN("it is found while four of the slow names are still asked for") {
        CHECK(is_found);
        CHECK(of_ann == 0);
        const auto asked = lookups.names.asked();
        CHECK(std::ranges::count_if(
                  asked, [](const std::string& name) { return name.starts_with("slow"); }) <= 4);
      }
    }
    WHEN("the servers answer at last") {
      lookups.io.poll();
      lookups.names.release();
      lookups.io.run();
      THEN("each of the names has its answer") { CHECK(of_ann == 250); }
    }
  }
  GIVEN("as many users with slow names as there are threads") {
    Lookups lookups;
    for (uid_t uid = kAnn; uid < kAnn + 32; ++uid)
      for (int i = 0; i < 4; ++i) lookups.ask(uid, "slow", {});
    WHEN("the nodes of the settings are looked up") {
      int found = 0;
      for (int i = 0; i < 20; ++i)
        lookups.ask(0, "node" + std::to_string(i), [&](const HostAddresses& answer) {
          found += answer.found.empty() ? 0 : 1;
          if (found == 20) lookups.io.stop();
        });
      lookups.io.run();
      THEN("there are threads for them") { CHECK(found == 20); }
    }
  }
}

TEST_CASE("users' look-ups take turns, however many names one of them asks for", "[agent][peers]") {
  LookupLimits limits;
  limits.threads = limits.of_users = limits.of_a_user = 1;
  Lookups lookups{limits};
  int answered = 0;
  const auto count = [&](const HostAddresses&) { ++answered; };
  for (const auto* name : {"a1", "a2", "a3"}) lookups.ask(kAnn, name, count);
  for (const auto* name : {"b1", "b2"}) lookups.ask(kBob, name, count);
  lookups.io.run();
  CHECK(answered == 5);
  CHECK(lookups.names.asked() == std::vector<std::string>{"a1", "b1", "a2", "b2", "a3"});
}

TEST_CASE("a look-up whose asker gave up makes room for the next when its server answers",
          "[agent][peers]") {
  LookupLimits limits;
  limits.of_a_user = 1;
  Lookups lookups{limits};
  std::string why;
  bool is_found = false;
  lookups.ask(
      kAnn, "slow",
      [&](const HostAddresses& answer) {
        why = answer.failed;
        lookups.names.release();
      },
      Millis{1});
  lookups.ask(kAnn, "node7",
              [&](const HostAddresses& answer) { is_found = !answer.found.empty(); });
  lookups.io.run();
  CHECK_THAT(why, Contains("don't answer in time"));
  CHECK(is_found);
}
