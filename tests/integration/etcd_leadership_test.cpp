#define CATCH_CONFIG_RUNNER
#include "rendezvous/etcd_leadership.hpp"

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

/// One agent that may coordinate.
struct Node {
  Node(asio::io_context& context, std::vector<EtcdEndpoint> endpoints, const std::string& job,
       const std::string& name, Millis ttl = Millis{2'000})
      : io{context} {
    LeadershipPlan plan;
    plan.endpoints = std::move(endpoints);
    plan.job = job;
    plan.me = {name, 1};
    plan.at = {"10.0.0.1", 29401};
    plan.ttl = ttl;
    LeadershipEvents events;
    events.leader_changed = [this](const std::optional<Leader>& leader) {
      leaders.push_back(leader);
      changed_at = clock_now();
    };
    events.lost = [this](const Error& error) {
      lost.push_back(error.what);
      lost_at = clock_now();
    };
    events.trouble = [this](const Error& error) { troubles.push_back(error.what); };
    it.emplace(io.get_executor(), std::move(plan), std::move(events));
  }

  void begin_campaign(std::uint32_t lowest_term = 0, Millis limit = Millis{5'000}) {
    outcome.reset();
    it->campaign(lowest_term, limit,
                 [this](Result<Campaign> result) { outcome = std::move(result); });
  }
  Result<Campaign> campaign(std::uint32_t lowest_term = 0, Millis limit = Millis{5'000}) {
    begin_campaign(lowest_term, limit);
    until(io, "the end of a campaign", [this] { return outcome.has_value(); });
    return *outcome;
  }
  std::uint32_t win(std::uint32_t lowest_term = 0) {
    const auto result = campaign(lowest_term);
    INFO((result ? result->leader.node.name : result.error().what));
    REQUIRE((result && result->won));
    return result->leader.term;
  }
  Result<void> finish(const std::function<void(EtcdLeadership::Done<void>)>& work) const {
    std::optional<Result<void>> done;
    work([&](Result<void> result) { done = std::move(result); });
    until(io, "the end of a request", [&] { return done.has_value(); });
    return *done;
  }
  Result<void> put(std::uint64_t round, std::string bytes) {
    return finish([&](auto done) {
      it->put_table({{1, 0}, Round{round}}, std::move(bytes), done);
    });
  }
  Result<std::optional<CommittedTable>> table() {
    std::optional<Result<std::optional<CommittedTable>>> read;
    it->read_table([&](auto result) { read = std::move(result); });
    until(io, "the table", [&] { return read.has_value(); });
    return *read;
  }
  Result<void> resign() {
    return finish([&](auto done) { it->resign(done); });
  }
  [[nodiscard]] bool leads() const { return it->leads(clock_now()); }
  [[nodiscard]] std::string knows() const {
    if (leaders.empty()) return "?";
    return leaders.back() ? leaders.back()->node.name : "nobody";
  }

  asio::io_context& io;
  std::optional<Result<Campaign>> outcome;
  std::vector<std::optional<Leader>> leaders;
  std::vector<std::string> lost;
  std::vector<std::string> troubles;
  Instant changed_at;
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
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor{io, {asio::ip::address_v4::loopback(), 0}};
  [[nodiscard]] EtcdEndpoint endpoint() const {
    return {"127.0.0.1", acceptor.local_endpoint().port()};
  }
};

}  // namespace

TEST_CASE("of several that campaign at once exactly one wins, the others learn where it is",
          "[etcd]") {
  asio::io_context io;
  for (int turn = 0; turn < 10; ++turn) {
    const auto job = new_job();
    std::vector<std::unique_ptr<Node>> nodes;
    for (int i = 0; i < 8; ++i)
      nodes.push_back(std::make_unique<Node>(io, std::vector{server().endpoint()}, job,
                                             "n" + std::to_string(i)));
    for (auto& node : nodes) node->begin_campaign();
    std::string winner;
    for (auto& node : nodes) {
      until(io, "all campaigns", [&] { return node->outcome.has_value(); });
      REQUIRE(node->outcome->has_value());
      if (!(*node->outcome)->won) continue;
      CHECK(winner.empty());
      winner = (*node->outcome)->leader.node.name;
      CHECK(node->leads());
    }
    REQUIRE_FALSE(winner.empty());
    for (auto& node : nodes) {
      const auto& campaign = **node->outcome;
      CHECK(campaign.leader.node.name == winner);
      CHECK(campaign.leader.at == HostPort{"10.0.0.1", 29401});
      CHECK(campaign.leader.term == 1);
    }
  }
}

TEST_CASE("a dead leader's key ends with its lease, then another wins with a higher term",
          "[etcd]") {
  asio::io_context io;
  const auto job = new_job();
  Node a{io, {server().endpoint()}, job, "a"};
  Node b{io, {server().endpoint()}, job, "b"};
  b.it->start();
  CHECK(a.win() == 1);
  REQUIRE(a.put(3, "ranks of round 3").has_value());
  until(io, "b to know a", [&] { return b.knows() == "a"; });
  // Renewals keep it longer than one lease.
  const Instant began = clock_now();
  until(io, "two leases to pass", [&] { return since(began) > Millis{4'500}; });
  REQUIRE(a.leads());
  CHECK(b.knows() == "a");
  const auto lost_to = b.campaign();
  REQUIRE((lost_to && !lost_to->won));
  CHECK(lost_to->leader.node.name == "a");

  const Instant died = clock_now();
  a.it->stop();
  CHECK_FALSE(a.leads());
  until(io, "b to see the key go", [&] { return b.knows() == "nobody"; });
  const auto won = b.campaign();
  const Millis took = since(died);
  std::printf("takeover after %lld ms with a lease of 2 s\n", static_cast<long long>(took.count()));
  REQUIRE((won && won->won));
  CHECK(won->leader.term == 2);
  CHECK(took > Millis{1'300});  // the last renewal was a third of the lease ago at most
  CHECK(took < slack(Millis{3'500}));
  REQUIRE(won->table);
  CHECK(won->table->bytes == "ranks of round 3");
  CHECK((won->table->epoch == Epoch{{1, 0}, Round{3}}));
}

TEST_CASE("a term is never below what the agents have seen", "[etcd]") {
  asio::io_context io;
  const auto job = new_job();
  Node a{io, {server().endpoint()}, job, "a"};
  CHECK(a.win(40) == 40);
  REQUIRE(a.resign().has_value());
  CHECK(a.win(7) == 41);
  REQUIRE(a.resign().has_value());
  Operator{io, server().endpoint()}.put("/acc/" + job + "/term", "4294967295");
  const auto none_left = a.campaign();
  REQUIRE(none_left.has_error());
  CHECK_THAT(none_left.error().what, Contains("/term") && Contains("remove that key"));
}

TEST_CASE("a leader that slept through its time neither leads nor writes", "[etcd]") {
  asio::io_context io;
  asio::io_context frozen;  // a's agent: nobody runs it meanwhile
  const auto job = new_job();
  Node a{frozen, {server().endpoint()}, job, "a", Millis{60'000}};
  Node b{io, {server().endpoint()}, job, "b"};
  CHECK(a.win() == 1);
  REQUIRE(a.put(1, "of a").has_value());
  Operator{io, server().endpoint()}.remove("/acc/" + job + "/leader");
  CHECK(b.win() == 2);
  REQUIRE(b.put(2, "of b").has_value());

  REQUIRE(a.leads());  // by its own clock
  const auto refused = a.put(3, "late, of a");
  REQUIRE(refused.has_error());
  CHECK(refused.error().code == Errc::not_permitted);
  until(frozen, "a to step down", [&] { return a.lost.size() == 1; });
  CHECK_FALSE(a.leads());
  CHECK(a.put(4, "later").error().code == Errc::not_permitted);
  CHECK((*b.table())->bytes == "of b");
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
  b.it->start();
  a.win();
  until(io, "b to see the key go", [&] { return b.leaders.size() >= 2 && b.knows() == "nobody"; });
  CHECK_FALSE(a.leads());  // no handler of a has run since
  CHECK(a.lost.empty());
  CHECK(b.win() == 2);
  CHECK(a.put(1, "late").error().code == Errc::not_permitted);
  until(frozen, "a to be told", [&] { return a.lost.size() == 1; });
}

TEST_CASE("a leader notices within its time that etcd is frozen", "[etcd]") {
  asio::io_context io;
  EtcdServer own;
  const auto job = new_job();
  Node a{io, {own.endpoint()}, job, "a", Millis{2'000}};
  a.win();
  const Instant froze = clock_now();
  own.freeze();
  until(io, "the end of a's time", [&] { return a.lost.size() == 1; });
  const auto took = std::chrono::duration_cast<Millis>(a.lost_at - froze);
  std::printf("stepped down %lld ms after etcd froze, lease 2 s\n",
              static_cast<long long>(took.count()));
  // Whoever asks leads() is told the truth in time; the event may wait for its turn on a busy
  // machine.
  CHECK(took <= slack(Millis{2'200}));
  CHECK(took > Millis{1'200});
  CHECK_FALSE(a.leads());
  CHECK_THAT(a.lost.at(0), Contains("couldn't be renewed within 2 s") && Contains("no answer"));
  own.thaw();
  CHECK(a.win() == 2);  // its own old key doesn't hold it up
  CHECK(a.lost.size() == 1);
}

TEST_CASE("a restart of etcd on its data changes nothing for the leader and its followers",
          "[etcd]") {
  asio::io_context io;
  EtcdServer own;
  const auto job = new_job();
  Node a{io, {own.endpoint()}, job, "a", Millis{10'000}};
  Node b{io, {own.endpoint()}, job, "b", Millis{10'000}};
  b.it->start();
  a.win();
  REQUIRE(a.put(1, "before").has_value());
  until(io, "b to know a", [&] { return b.knows() == "a"; });
  const auto news = b.leaders.size();
  own.kill();
  until(io, "trouble told", [&] { return !a.troubles.empty() && !b.troubles.empty(); });
  CHECK_THAT(b.troubles.at(0),
             Contains("read the leader of job '" + job + "'") && Contains("Start etcd there"));
  own.start();
  REQUIRE(a.put(2, "after").has_value());
  CHECK(a.lost.empty());
  CHECK((*b.table())->bytes == "after");
  CHECK(a.troubles.size() == 1);  // once for the whole outage
  CHECK(b.leaders.size() == news);
  REQUIRE(a.resign().has_value());
  until(io, "b's watch to stand again", [&] { return b.knows() == "nobody"; });
  CHECK(b.win() == 2);
}

TEST_CASE("an etcd that lost its data ends the leadership and begins anew, terms don't", "[etcd]") {
  asio::io_context io;
  EtcdServer own;
  const auto job = new_job();
  Node a{io, {own.endpoint()}, job, "a", Millis{3'000}};
  Node b{io, {own.endpoint()}, job, "b", Millis{3'000}};
  b.it->start();
  const auto term = a.win(5);
  until(io, "b to know a", [&] { return b.knows() == "a"; });
  own.forget();
  own.start();
  until(io, "a to step down", [&] { return a.lost.size() == 1; });
  CHECK(b.win(term + 1) == 6);
  until(io, "b to know itself", [&] { return b.knows() == "b"; });
  CHECK(a.put(1, "late").error().code == Errc::not_permitted);
}

TEST_CASE("members that are dead or silent are passed over for one that serves", "[etcd]") {
  asio::io_context io;
  const Silent silent;
  const auto dead = GENERATE(true, false);
  const EtcdEndpoint first = dead ? EtcdEndpoint{"127.0.0.1", free_port()} : silent.endpoint();
  Node a{io, {first, server().endpoint()}, new_job(), "a"};
  const Instant began = clock_now();
  a.win();
  CHECK(since(began) < slack(Millis{dead ? 500 : 3'500}));
  // From then on the one that serves is asked first.
  const Instant again = clock_now();
  REQUIRE(a.put(1, "table").has_value());
  CHECK(since(again) < slack(Millis{500}));
  until(io, "more than a lease", [&] { return since(began) > Millis{4'000}; });
  CHECK(a.leads());
}

TEST_CASE("a name with several addresses is tried through", "[etcd]") {
  asio::io_context io;
  Node a{io, {{"localhost", server().endpoint().port}}, new_job(), "a"};
  a.win();
}

TEST_CASE("without any etcd the error comes in time and names the cure", "[etcd]") {
  asio::io_context io;
  const Silent silent;
  const EtcdEndpoint refusing{"127.0.0.1", free_port()};
  GIVEN("two that refuse") {
    Node a{io, {refusing, {"::1", free_port()}}, "j7", "a"};
    const Instant began = clock_now();
    const auto failed = a.campaign();
    CHECK(since(began) < slack(Millis{500}));
    REQUIRE(failed.has_error());
    CHECK(failed.error().code == Errc::unavailable);
    CHECK_THAT(failed.error().what,
               Contains("etcd: look for the leader of job 'j7': none of 2 endpoints") &&
                   Contains(to_string(refusing)) && Contains("Connection refused") &&
                   Contains("http://[::1]:") &&
                   Contains("Start etcd there, correct --rdzv_endpoint"));
    std::printf("%s\n", failed.error().what.c_str());
  }
  GIVEN("one that is silent") {
    Node a{io, {silent.endpoint()}, "j7", "a"};
    const Instant began = clock_now();
    const auto failed = a.campaign(0, Millis{600});
    CHECK(since(began) >= Millis{590});
    CHECK(since(began) < slack(Millis{800}));
    REQUIRE(failed.has_error());
    CHECK(failed.error().code == Errc::timed_out);
    CHECK_THAT(failed.error().what, Contains("no answer within") && Contains("Start etcd there"));
  }
  GIVEN("a name that doesn't exist") {
    Node a{io, {{"no-such-host.invalid", 2379}}, "j7", "a"};
    const auto failed = a.campaign(0, Millis{2'000});
    REQUIRE(failed.has_error());
    CHECK_THAT(failed.error().what, Contains("look up 'no-such-host.invalid'"));
  }
}

TEST_CASE("followers hear of a new leader within 100 ms", "[etcd]") {
  asio::io_context io;
  const auto job = new_job();
  Node a{io, {server().endpoint()}, job, "a"};
  Node b{io, {server().endpoint()}, job, "b"};
  b.it->start();
  until(io, "b to know that nobody leads", [&] { return b.knows() == "nobody"; });
  std::chrono::microseconds slowest{0};
  // Counted from before the request that makes the change: more than the news alone takes.
  const auto measure = [&](Instant began) {
    slowest = std::max(slowest,
                       std::chrono::duration_cast<std::chrono::microseconds>(b.changed_at - began));
  };
  for (int turn = 0; turn < 10; ++turn) {
    const Instant campaigned = clock_now();
    a.win();
    until(io, "news of the leader", [&] { return b.knows() == "a"; });
    measure(campaigned);
    const Instant resigned = clock_now();
    REQUIRE(a.resign().has_value());
    until(io, "news of its end", [&] { return b.knows() == "nobody"; });
    measure(resigned);
  }
  std::printf("slowest of 20 news: %lld us, with the request\n",
              static_cast<long long>(slowest.count()));
  CHECK(slowest < slack(Millis{100}));
  CHECK(b.leaders.size() == 21);
}

TEST_CASE("a leader whose key an operator removed steps down", "[etcd]") {
  asio::io_context io;
  const auto job = new_job();
  Node a{io, {server().endpoint()}, job, "a", Millis{30'000}};
  a.win();
  Operator{io, server().endpoint()}.remove("/acc/" + job + "/leader");
  until(
      io, "a to step down", [&] { return a.lost.size() == 1; }, Millis{2'000});
  CHECK_THAT(a.lost.at(0), Contains("the key is gone"));
  CHECK(a.win() == 2);
}

TEST_CASE("tables are written in order, up to 1 MiB, whatever their bytes", "[etcd]") {
  asio::io_context io;
  const auto job = new_job();
  Node a{io, {server().endpoint()}, job, "a"};
  CHECK_FALSE(*a.table());
  CHECK(a.put(0, "not yet").error().code == Errc::not_permitted);
  a.win();
  std::vector<int> order;
  for (int i = 0; i < 10; ++i) {
    a.it->put_table({{1, 0}, Round{static_cast<std::uint64_t>(i)}}, "table " + std::to_string(i),
                    [&order, i](Result<void> result) {
                      CHECK(result.has_value());
                      order.push_back(i);
                    });
  }
  until(io, "ten tables", [&] { return order.size() == 10; });
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK((*a.table())->bytes == "table 9");
  std::string big(kMaxEtcdTable, '\0');
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(i * 7);
  REQUIRE(a.put(10, big).has_value());
  CHECK(((*a.table())->bytes == big));
  const auto too_big = a.put(11, big + "x");
  REQUIRE(too_big.has_error());
  CHECK(too_big.error().code == Errc::exhausted);
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
  const auto failed = a.campaign();
  REQUIRE(failed.has_error());
  CHECK_THAT(failed.error().what, Contains(key) && Contains("etcdctl del"));
  CHECK(hand.get(key)->value == "somebody's");
  CHECK_FALSE(a.leads());
}

TEST_CASE("the end of a job leaves nothing in etcd", "[etcd]") {
  asio::io_context io;
  const auto job = new_job();
  Node a{io, {server().endpoint()}, job, "a"};
  Node b{io, {server().endpoint()}, job, "b"};
  a.win();
  REQUIRE(a.put(1, "table").has_value());
  CHECK(b.finish([&](auto done) { b.it->end_job(done); }).error().code == Errc::not_permitted);
  REQUIRE(a.finish([&](auto done) { a.it->end_job(done); }).has_value());
  CHECK_FALSE(a.leads());
  CHECK(a.lost.empty());
  Operator hand{io, server().endpoint()};
  for (const char* name : {"leader", "term", "table"})
    CHECK_FALSE(hand.get("/acc/" + job + '/' + name));
}

TEST_CASE("stopped in the middle of anything it ends at once and says nothing", "[etcd]") {
  const Silent silent;
  const bool serves = GENERATE(true, false);
  for (int steps = 0; steps < 40; ++steps) {
    asio::io_context io;
    int told = 0;
    {
      Node a{io, {serves ? server().endpoint() : silent.endpoint()}, new_job(), "a"};
      a.it->start();
      a.it->campaign(0, Millis{5'000}, [&](const auto&) { ++told; });
      a.it->put_table({}, "x", [&](const auto&) { ++told; });
      for (int i = 0; i < steps; ++i) io.run_one_for(Millis{5});
      told = 0;
    }
    const Instant stopped = clock_now();
    io.restart();
    io.run_for(slack(Millis{2'000}));
    CHECK(io.stopped());  // nothing is left to wait for
    CHECK(since(stopped) < slack(Millis{200}));
    CHECK(told == 0);
  }
}

int main(int argc, char* argv[]) {
  if (EtcdServer::version().empty()) {
    std::printf("SKIP: etcd isn't installed (Debian: apt-get install etcd-server)\n");
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
