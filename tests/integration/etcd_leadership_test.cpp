#define CATCH_CONFIG_RUNNER
#include "rendezvous/etcd_leadership.hpp"

#include "common/clocks.hpp"
#include "rendezvous/etcd_client.hpp"
#include "tests/integration/etcd_server.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::rendezvous;
using Catch::Matchers::Contains;
namespace asio = boost::asio;

namespace {

Millis since(Instant t) { return std::chrono::duration_cast<Millis>(clock_now() - t); }

/// Sanitizers and slow machines stretch time.
Millis slack(Millis limit) {
  const char* factor = std::getenv("ACC_TEST_SLACK");
  return factor != nullptr ? limit * std::max(std::atoi(factor), 1) : limit;
}

/// Runs the loop until something holds; fails after the limit.
void until(asio::io_context& io, const std::string& what, const std::function<bool()>& holds,
           Millis limit = Millis{10'000}) {
  const Instant deadline = clock_now() + slack(limit);
  while (!holds()) {
    if (clock_now() >= deadline) FAIL("waited " << describe(slack(limit)) << " for " << what);
    io.restart();
    io.run_one_for(Millis{20});
  }
}

std::string new_job() {
  static int count = 0;
  return "job" + std::to_string(++count);
}

RoundRecord record_of(std::uint64_t round) {
  return {{{1, 0}, Round{round}}, {.restarts = 1}, {{{"node1", 7}, Rank{0}, 2}}};
}

/// One agent that may coordinate.
struct Node {
  Node(asio::io_context& context, std::vector<EtcdEndpoint> endpoints, const std::string& job,
       const std::string& name, Millis ttl = Millis{10'000}, std::uint32_t lowest_term = 1)
      : io{context} {
    LeadershipOptions options;
    options.job = job;
    options.me = {name, 1};
    options.at = {"10.0.0.1", 29401};
    options.ttl = ttl;
    options.lowest_term = lowest_term;
    LeadershipEvents events;
    events.follow = [this](const Leader& leader) { follows.push_back(leader); };
    events.lead = [this](const BecomeLeader& w) { won = w; };
    events.stop_leading = [this](const std::string& why) {
      lost.push_back(why);
      lost_at = clock_now();
    };
    events.committed = [this](const Epoch& epoch) { committed.push_back(epoch.round.value()); };
    events.trouble = [this](const std::string& text) { troubles.push_back(text); };
    it.emplace(io.get_executor(), EtcdServers{std::move(endpoints)}, std::move(options),
               std::move(events));
  }

  void begin() { it->begin(); }
  /// @return its term.
  std::uint32_t wins(Millis limit = Millis{10'000}) {
    until(
        io, "the lead", [this] { return won.has_value(); }, limit);
    REQUIRE(leads());
    return won->term;
  }
  std::uint32_t result() {
    begin();
    return wins();
  }
  void commit(std::uint64_t round) {
    it->commit(record_of(round));
    until(io, "a commit", [&] { return !committed.empty() && committed.back() == round; });
  }
  std::optional<Error> end(bool is_over) {
    std::optional<std::optional<Error>> done;
    it->end(is_over, [&](const std::optional<Error>& problem) { done = problem; });
    until(io, "the end", [&] { return done.has_value(); });
    return *done;
  }
  std::string trouble() {
    until(io, "trouble", [this] { return !troubles.empty(); });
    return troubles.front();
  }
  [[nodiscard]] bool leads() const {
    const auto leadership_term = it->leadership_term();
    return leadership_term && boot_now() < leadership_term->until;
  }
  [[nodiscard]] std::string knows() const {
    return follows.empty() ? "" : follows.back().node.name;
  }

  asio::io_context& io;
  std::optional<BecomeLeader> won;
  std::vector<Leader> follows;
  std::vector<std::string> lost;
  std::vector<std::uint64_t> committed;
  std::vector<std::string> troubles;
  Instant lost_at;
  std::optional<EtcdLeadership> it;
};

/// A client of its own, as an operator with etcdctl.
struct Operator {
  Operator(asio::io_context& context, const EtcdEndpoint& endpoint)
      : io{context}, client{io.get_executor(), {endpoint}} {}
  template <class T>
  Result<T> ask(asio::awaitable<Result<T>> work) {
    std::optional<Result<T>> answer;
    asio::co_spawn(io, std::move(work), [&](std::exception_ptr bug, Result<T> result) {
      if (bug) std::rethrow_exception(bug);
      answer = std::move(result);
    });
    until(io, "an answer of etcd", [&] { return answer.has_value(); });
    return *answer;
  }
  std::optional<EtcdEntry> get(const std::string& key) {
    return ask(client.range(key, {"get " + key}))->entry;
  }
  /// The newest round that was committed.
  std::uint64_t round_of(const std::string& job) {
    const auto entry = get("/acc/" + job + "/table");
    REQUIRE(entry);
    return parse_round_record(entry->value)->epoch.round.value();
  }
  void put(const std::string& key, const std::string& value) {
    REQUIRE(ask(client.put(key, value, 0, {"put " + key})).has_value());
  }
  void remove(const std::string& key) {
    EtcdTransaction removal;
    removal.then = {{EtcdOperation::Kind::remove, key, {}, 0}};
    REQUIRE(ask(client.transact(removal, {"remove " + key})).has_value());
  }
  asio::io_context& io;
  EtcdClient client;
};

/// One etcd for all tests that do it no harm.
EtcdServer& server() {
  static EtcdServer one;
  return one;
}

/// Takes connections (by the kernel's backlog) and never says a word.
struct Silent {
  Silent() { acceptor.non_blocking(true); }
  /// How many connections there were so far.
  std::size_t asked() {
    boost::system::error_code none_waits;
    for (;;) {
      auto one = acceptor.accept(none_waits);
      if (none_waits) return taken.size();
      taken.push_back(std::move(one));
    }
  }
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor{io, {asio::ip::address_v4::loopback(), 0}};
  std::vector<asio::ip::tcp::socket> taken;
  [[nodiscard]] EtcdEndpoint endpoint() const {
    return {"127.0.0.1", acceptor.local_endpoint().port()};
  }
};

}  // namespace

TEST_CASE("of several that want to lead exactly one does, the others learn where it is", "[etcd]") {
  asio::io_context io;
  for (int turn = 0; turn < 10; ++turn) {
    const auto job = new_job();
    std::vector<std::unique_ptr<Node>> nodes;
    for (int i = 0; i < 8; ++i)
      nodes.push_back(std::make_unique<Node>(io, std::vector{server().endpoint()}, job,
                                             "n" + std::to_string(i)));
    for (auto& node : nodes) node->begin();
    std::string winner;
    for (auto& node : nodes) {
      until(io, "all to know", [&] { return node->won || !node->follows.empty(); });
      if (!node->won) continue;
      CHECK(winner.empty());
      winner = "n" + std::to_string(&node - nodes.data());
      CHECK(node->leads());
      CHECK(node->won->term == 1);
    }
    REQUIRE_FALSE(winner.empty());
    for (auto& node : nodes) {
      if (node->won) continue;
      CHECK(node->follows.size() == 1);
      CHECK(node->knows() == winner);
      CHECK(node->follows[0].at == HostPort{"10.0.0.1", 29401});
      CHECK(node->follows[0].term == 1);
    }
  }
}

TEST_CASE("a dead leader's key ends with its lease, then another wins with a higher term",
          "[etcd][timing]") {
  asio::io_context io;
  const auto job = new_job();
  Node a{io, {server().endpoint()}, job, "a", Millis{2'000}};
  Node b{io, {server().endpoint()}, job, "b"};
  CHECK(a.result() == 1);
  a.commit(3);
  b.begin();
  until(io, "b to know a", [&] { return b.knows() == "a"; });
  // Renewals keep it longer than one lease.
  const Instant began = clock_now();
  until(io, "two leases to pass", [&] { return since(began) > Millis{4'500}; });
  REQUIRE(a.leads());
  CHECK_FALSE(b.won);

  const Instant died = clock_now();
  a.it.reset();
  CHECK(b.wins() == 2);
  const Millis took = since(died);
  std::printf("takeover after %lld ms with a lease of 2 s\n", static_cast<long long>(took.count()));
  CHECK(took > Millis{1'300});  // the last renewal was a third of the lease ago at most
  CHECK(took < slack(Millis{3'500}));
  REQUIRE(b.won->last);
  CHECK(*b.won->last == record_of(3));
}

TEST_CASE("a term is never below what the agents have seen", "[etcd]") {
  asio::io_context io;
  const auto job = new_job();
  Node a{io, {server().endpoint()}, job, "a", Millis{10'000}, 40};
  CHECK(a.result() == 40);
  CHECK_FALSE(a.end(false));
  Node b{io, {server().endpoint()}, job, "b", Millis{10'000}, 7};
  CHECK(b.result() == 41);
  CHECK_FALSE(b.end(false));
  Operator{io, server().endpoint()}.put("/acc/" + job + "/term", "4294967295");
  Node c{io, {server().endpoint()}, job, "c"};
  c.begin();
  CHECK_THAT(c.trouble(), Contains("/term") && Contains("remove that key"));
}

TEST_CASE("a leader that slept through its time neither leads nor writes", "[etcd]") {
  asio::io_context io;
  asio::io_context frozen;  // a's agent: nobody runs it meanwhile
  const auto job = new_job();
  Node a{frozen, {server().endpoint()}, job, "a", Millis{60'000}};
  Node b{io, {server().endpoint()}, job, "b"};
  CHECK(a.result() == 1);
  a.commit(1);
  Operator{io, server().endpoint()}.remove("/acc/" + job + "/leader");
  CHECK(b.result() == 2);
  b.commit(2);

  REQUIRE(a.leads());  // by its own clock
  a.it->commit(record_of(3));
  until(frozen, "a to step down", [&] { return a.lost.size() == 1; });
  CHECK_FALSE(a.leads());
  CHECK_THAT(a.lost[0], Contains("another node holds the key"));
  CHECK(a.committed.back() == 1);
  CHECK(Operator{io, server().endpoint()}.round_of(job) == 2);
  CHECK(b.leads());
  CHECK(b.lost.empty());
}

TEST_CASE("after a pause longer than its lease a leader knows at once that it leads no more",
          "[etcd]") {
  asio::io_context io;
  asio::io_context frozen;
  const auto job = new_job();
  Node a{frozen, {server().endpoint()}, job, "a", Millis{1'000}};
  Node b{io, {server().endpoint()}, job, "b"};
  a.result();
  CHECK(b.result() == 2);
  CHECK_FALSE(a.leads());  // no handler of a has run since
  CHECK(a.lost.empty());
  until(frozen, "a to be told", [&] { return a.lost.size() == 1; });
  CHECK(b.leads());
}

TEST_CASE("a leader notices within its time that etcd is frozen", "[etcd][timing]") {
  asio::io_context io;
  EtcdServer own;
  const auto job = new_job();
  Node a{io, {own.endpoint()}, job, "a", Millis{2'000}};
  a.result();
  const Instant froze = clock_now();
  own.freeze();
  until(io, "the end of a's time", [&] { return a.lost.size() == 1; });
  const auto took = std::chrono::duration_cast<Millis>(a.lost_at - froze);
  std::printf("stepped down %lld ms after etcd froze, lease 2 s\n",
              static_cast<long long>(took.count()));
  // leadership_term() tells the truth in time; the event may wait for its turn on a busy machine.
  CHECK(took <= slack(Millis{2'200}));
  CHECK(took > Millis{1'200});
  CHECK_FALSE(a.leads());
  CHECK_THAT(a.lost.at(0), Contains("couldn't be renewed within 2 s") && Contains("no answer"));
  a.won.reset();
  own.thaw();
  CHECK(a.wins() == 2);  // its own old key doesn't hold it up
  CHECK(a.lost.size() == 1);
}

TEST_CASE("a restart of etcd on its data changes nothing for the leader and its followers",
          "[etcd]") {
  asio::io_context io;
  EtcdServer own;
  const auto job = new_job();
  Node a{io, {own.endpoint()}, job, "a", Millis{10'000}};
  Node b{io, {own.endpoint()}, job, "b", Millis{10'000}};
  a.result();
  a.commit(1);
  b.begin();
  until(io, "b to know a", [&] { return b.knows() == "a"; });
  own.kill();
  until(io, "trouble told", [&] { return !a.troubles.empty() && !b.troubles.empty(); });
  CHECK_THAT(b.troubles.at(0),
             Contains("look for the leader of job '" + job + "'") && Contains("Start etcd there"));
  own.start();
  a.commit(2);
  CHECK(a.lost.empty());
  CHECK(a.troubles.size() == 1);  // once for the whole outage
  CHECK(b.follows.size() == 1);
  CHECK_FALSE(b.won);
  CHECK_FALSE(a.end(false));
  CHECK(b.wins() == 2);
  CHECK(b.won->last->epoch.round == Round{2});
}

TEST_CASE("an etcd that lost its data ends the leadership and begins anew, terms don't", "[etcd]") {
  asio::io_context io;
  EtcdServer own;
  const auto job = new_job();
  Node a{io, {own.endpoint()}, job, "a", Millis{3'000}, 5};
  CHECK(a.result() == 5);
  own.forget();
  own.start();
  until(io, "a to step down", [&] { return a.lost.size() == 1; });
  a.it.reset();
  Node b{io, {own.endpoint()}, job, "b", Millis{3'000}, 6};
  CHECK(b.result() == 6);
  CHECK_FALSE(b.won->last);
}

TEST_CASE("members that are dead or silent are passed over for one that serves", "[etcd][timing]") {
  asio::io_context io;
  Silent silent;
  const auto dead = GENERATE(true, false);
  const EtcdEndpoint first = dead ? EtcdEndpoint{"127.0.0.1", free_port()} : silent.endpoint();
  Node a{io, {first, server().endpoint()}, new_job(), "a", Millis{2'000}};
  const Instant began = clock_now();
  a.result();
  CHECK(since(began) < slack(Millis{dead ? 500 : 3'500}));
  const auto asked = silent.asked();
  CHECK((asked == 0) == dead);
  const Instant again = clock_now();
  a.commit(1);
  CHECK(since(again) < slack(Millis{500}));
  until(io, "more than a lease", [&] { return since(began) > Millis{4'000}; });
  CHECK(a.leads());
  CHECK(silent.asked() == asked);  // the one that serves is asked first
}

TEST_CASE("a name with several addresses is tried through", "[etcd]") {
  asio::io_context io;
  Node a{io, {{"localhost", server().endpoint().port}}, new_job(), "a"};
  a.result();
}

TEST_CASE("without any etcd the error names the endpoints and the cure", "[etcd][timing]") {
  asio::io_context io;
  const Silent silent;
  const EtcdEndpoint refusing{"127.0.0.1", free_port()};
  GIVEN("two that refuse") {
    Node a{io, {refusing, {"::1", free_port()}}, "j7", "a"};
    const Instant began = clock_now();
    a.begin();
    const auto text = a.trouble();
    CHECK(since(began) < slack(Millis{500}));
    CHECK_THAT(text, Contains("etcd: look for the leader of job 'j7': none of 2 endpoints") &&
                         Contains(to_string(refusing)) && Contains("Connection refused") &&
                         Contains("http://[::1]:") &&
                         Contains("Start etcd there, correct --rdzv_endpoint"));
    std::printf("%s\n", text.c_str());
  }
  GIVEN("one that is silent") {
    Node a{io, {silent.endpoint()}, "j7", "a"};
    a.begin();
    CHECK_THAT(a.trouble(), Contains("no answer within") && Contains("Start etcd there"));
  }
  GIVEN("a name that doesn't exist") {
    Node a{io, {{"no-such-host.invalid", 2379}}, "j7", "a"};
    a.begin();
    CHECK_THAT(a.trouble(), Contains("look up 'no-such-host.invalid'"));
  }
}

TEST_CASE("a leader that resigns is succeeded at the next look", "[etcd][timing]") {
  asio::io_context io;
  const auto job = new_job();
  Node a{io, {server().endpoint()}, job, "a"};
  Node b{io, {server().endpoint()}, job, "b", Millis{60'000}};
  a.result();
  b.begin();
  until(io, "b to know a", [&] { return b.knows() == "a"; });
  const Instant resigned = clock_now();
  CHECK_FALSE(a.end(false));
  CHECK(b.wins() == 2);
  std::printf("succeeded %lld ms after the resignation\n",
              static_cast<long long>(since(resigned).count()));
  CHECK(since(resigned) < slack(Millis{900}));
}

TEST_CASE("a leader whose key an operator removed steps down when it renews", "[etcd][timing]") {
  asio::io_context io;
  const auto job = new_job();
  Node a{io, {server().endpoint()}, job, "a", Millis{3'000}};
  a.result();
  Operator{io, server().endpoint()}.remove("/acc/" + job + "/leader");
  until(
      io, "a to step down", [&] { return a.lost.size() == 1; }, Millis{2'000});
  CHECK_THAT(a.lost.at(0), Contains("the key is gone"));
  a.won.reset();
  CHECK(a.wins() == 2);
}

TEST_CASE("the newest round is committed, and none is too large without a word", "[etcd]") {
  // First of all: nothing renews the lease meanwhile, and a sanitizer makes this last for seconds.
  auto big = record_of(10);
  while (to_bytes(big).size() <= kMaxRoundRecord)
    big.rows.insert(big.rows.end(), 1'000, {{std::string(60, 'n'), 1}, Rank{0}, 8});
  asio::io_context io;
  const auto job = new_job();
  Operator hand{io, server().endpoint()};
  Node a{io, {server().endpoint()}, job, "a", Millis{60'000}};
  a.result();
  CHECK_FALSE(hand.get("/acc/" + job + "/table"));
  for (std::uint64_t i = 0; i < 10; ++i) a.it->commit(record_of(i));
  until(io, "the last one", [&] { return !a.committed.empty() && a.committed.back() == 9; });
  CHECK(hand.round_of(job) == 9);
  CHECK(a.troubles.empty());
  a.it->commit(big);
  CHECK_THAT(a.trouble(), Contains("bytes are more than 1048576"));
  big.rows.resize(big.rows.size() - 1'000);
  a.it->commit(big);
  until(io, "the big one", [&] { return a.committed.back() == 10; });
  CHECK(hand.round_of(job) == 10);
  CHECK(a.leads());
}

TEST_CASE("what others left under our keys is named, and not overwritten", "[etcd]") {
  asio::io_context io;
  Operator hand{io, server().endpoint()};
  const std::string name = GENERATE("leader", "term", "table");
  const auto job = new_job();
  const std::string key = "/acc/" + job + '/' + name;
  hand.put(key, "somebody's");
  Node a{io, {server().endpoint()}, job, "a"};
  a.begin();
  CHECK_THAT(a.trouble(), Contains(key) && Contains("etcdctl del"));
  CHECK(hand.get(key)->value == "somebody's");
  CHECK_FALSE(a.leads());
}

TEST_CASE("the end of a job leaves nothing in etcd", "[etcd]") {
  asio::io_context io;
  const auto job = new_job();
  Node a{io, {server().endpoint()}, job, "a"};
  Node b{io, {server().endpoint()}, job, "b"};
  a.result();
  a.commit(1);
  Operator hand{io, server().endpoint()};
  CHECK_FALSE(b.end(true));  // of one that doesn't lead nothing is removed
  CHECK(hand.get("/acc/" + job + "/leader"));
  CHECK_FALSE(a.end(true));
  CHECK_FALSE(a.leads());
  CHECK(a.lost.empty());
  for (const char* name : {"leader", "term", "table"})
    CHECK_FALSE(hand.get("/acc/" + job + '/' + name));
}

TEST_CASE("stopped in the middle of anything it ends at once and says nothing", "[etcd][timing]") {
  const Silent silent;
  const bool serves = GENERATE(true, false);
  for (int steps = 0; steps < 40; ++steps) {
    asio::io_context io;
    {
      Node a{io, {serves ? server().endpoint() : silent.endpoint()}, new_job(), "a"};
      a.begin();
      for (int i = 0; i < steps; ++i) io.run_one_for(Millis{5});
      a.it->commit(record_of(0));
    }
    const Instant stopped = clock_now();
    io.restart();
    io.run_for(slack(Millis{2'000}));
    CHECK(io.stopped());  // nothing is left to wait for
    CHECK(since(stopped) < slack(Millis{200}));
  }
}

int main(int argc, char* argv[]) {
  if (EtcdServer::version().empty()) {
    std::printf("SKIP: etcd isn't installed (Debian: apt-get install etcd-server)\n");
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
