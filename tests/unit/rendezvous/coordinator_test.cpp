#include "rendezvous/coordinator.hpp"

#include "tests/unit/rendezvous/net_tools.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>

using namespace acc;
using namespace acc::rendezvous;
using namespace acc::rendezvous::test;

namespace {

constexpr Epoch kLost{{1, 0}, Round{4}};
constexpr Epoch kNow{{2, 2}, Round{4}};

Join vote_of(std::uint32_t node_rank) {
  Join join;
  join.job = "job";
  join.node = {"node" + std::to_string(node_rank), 1};
  join.slots = 1;
  join.nodes_min = join.nodes_max = join.nodes = 3;
  join.state = NodeState::running;
  join.epoch = kLost;
  join.vote = kLost.term;
  join.node_rank = NodeRank{node_rank};
  join.first_rank = Rank{node_rank};
  join.policy = JobPolicy{};
  return join;
}

/// An agent at the other end of a link within this process.
struct Agent {
  std::shared_ptr<Link> link;
  std::vector<KvReply> replies;
  std::optional<Close> close;  ///< the end of the job
  std::uint64_t stamp = 0;  ///< the coordinator's newest
  std::uint32_t acks = 0;   ///< of its heartbeats
  std::string lost;
  void start() {
    Link::Handlers on;
    on.on_frame = [this](const Frame& frame) {
      if (const auto* reply = std::get_if<KvReply>(&frame.message)) replies.push_back(*reply);
      if (const auto* end = std::get_if<Close>(&frame.message)) {
        close = *end;
        link->close();
      }
      if (const auto* welcome = std::get_if<Welcome>(&frame.message)) stamp = welcome->stamp;
      if (const auto* ack = std::get_if<HeartbeatAck>(&frame.message)) {
        stamp = ack->stamp;
        ++acks;
      }
    };
    on.on_lost = [this](const LinkLoss& loss) { lost = loss.why; };
    link->start(std::move(on));
  }
  void says(Message message) { link->send({kNow, std::move(message)}); }
};

/// Two of three nodes have elected a coordinator on node 1; node 2 is still on its way.
struct Elected {
  Loop loop;
  Agent first, second;
  std::string told;  ///< lines to the user
  std::unique_ptr<Coordinator> coordinator;

  explicit Elected(Timings timings = {}) {
    Coordinator::Hooks hooks;
    hooks.tell = [this](const std::string& text, bool) { told += text + "\n"; };
    hooks.stepped_down = [this](const std::string& why) { told += why + "\n"; };
    hooks.job_over = [](const Close&) {};
    MembershipOptions options;
    options.job = "job";
    options.name = "node1";
    options.nodes_min = options.nodes_max = 3;
    options.timings = timings;
    ElectionResult result{kNow.term, kLost, 3, {}, {}, {}, {}, {}};
    Coordinator::Links voters;
    for (auto* agent : {&first, &second}) {
      auto [ours, theirs] = link_inside(loop.io);
      agent->link = ours;
      agent->start();
      const PeerId peer{agent == &first ? 1U : 2U};
      voters.emplace(peer.value(), theirs);
      result.votes.push_back({peer, vote_of(agent == &first ? 0 : 1), "10.0.0.1"});
    }
    coordinator = std::make_unique<Coordinator>(loop.io, options, result, voters, std::move(hooks));
  }
  Agent& third_comes(std::uint32_t workers = 1, NodeState state = NodeState::running) {
    auto [ours, theirs] = link_inside(loop.io);
    return third_comes(ours, theirs, workers, state);
  }
  Agent& third_comes_over_a_socket(std::uint32_t workers = 1) {
    auto [one, other] = socket_pair();
    Seen ours, theirs;
    ours.channel = std::make_shared<Channel>(loop.io, std::move(one), nullptr);
    theirs.channel = std::make_shared<Channel>(loop.io, std::move(other), nullptr);
    for (auto* end : {&ours, &theirs}) end->channel->start(end->handlers());
    REQUIRE(loop.until([&] { return ours.is_open && theirs.is_open; }));
    return third_comes(link_over(ours.channel), link_over(theirs.channel), workers);
  }
  void all_say_heartbeat() {
    for (auto* agent : {&first, &second, &third}) agent->says(Heartbeat{.heartbeat = 1});
  }
  /// What the store answers, to the first node.
  KvReply asked(KvRequest request) {
    const auto before = first.replies.size();
    first.says(std::move(request));
    REQUIRE(loop.until([&] { return first.replies.size() > before; }, 20s));
    return first.replies.back();
  }
  Agent third;

 private:
  Agent& third_comes(std::shared_ptr<Link> ours, std::shared_ptr<Link> theirs,
                     std::uint32_t workers = 1, NodeState state = NodeState::running) {
    third.link = std::move(ours);
    third.start();
    Join join = vote_of(2);
    join.slots = workers;
    join.state = state;
    coordinator->admit(PeerId{++last_peer}, std::move(theirs), join);
    return third;
  }
  std::uint64_t last_peer = 2;
};

KvRequest get(const std::string& key) {
  KvRequest request;
  request.id = 7;
  request.op = KvRequest::Op::get;
  request.key = key;
  return request;
}

}  // namespace

SCENARIO("a worker asks the store right after an election", "[rendezvous][coordinator]") {
  Elected job;
  job.first.says(Heartbeat{.heartbeat = 1});
  job.second.says(Heartbeat{.heartbeat = 1});
  job.first.says(get("key"));
  job.loop.until([] { return false; }, 50ms);
  THEN("it isn't told that a key is missing, while the node that set it is still to come") {
    CHECK(job.first.replies.empty());
    auto& third = job.third_comes();
    third.says(KvRestore{"key", "value", 0});
    job.loop.until([] { return false; }, 50ms);
    CHECK(job.first.replies.empty());  // more may follow
    third.says(Heartbeat{.heartbeat = 1});
    REQUIRE(job.loop.until([&] { return !job.first.replies.empty(); }));
    CHECK(job.first.replies[0].status == KvReply::Status::ok);
    CHECK(job.first.replies[0].value == "value");
    CHECK(job.first.replies[0].id == 7);
  }
  THEN("once all have told what they know, a key that nobody set is missing at once") {
    auto& third = job.third_comes();
    third.says(Heartbeat{.heartbeat = 1});
    REQUIRE(job.loop.until([&] { return !job.first.replies.empty(); }));
    CHECK(job.first.replies[0].status == KvReply::Status::missing);
  }
}

SCENARIO("the coordinator of a job that has ended stays until its members know",
         "[rendezvous][coordinator]") {
  Elected job;
  job.third_comes();
  job.all_say_heartbeat();
  const auto ends = [&](bool is_third_cut_off) {
    job.third.says(Completed{});
    if (is_third_cut_off) {
      job.loop.until([] { return false; }, 20ms);
      job.third.link->close();
      job.loop.until([] { return false; }, 20ms);
    }
    job.first.says(Completed{});
    job.second.says(Completed{});
    REQUIRE(job.loop.until([&] { return job.first.close && job.second.close; }));
  };
  bool is_done = false;
  const auto waits = [&](Millis limit) {
    job.coordinator->when_all_left(limit, [&] { is_done = true; });
  };
  WHEN("all have a connection") {
    ends(false);
    const auto since = std::chrono::steady_clock::now();
    waits(2s);
    THEN("nothing is waited for") {
      REQUIRE(job.loop.until([&] { return is_done; }));
      CHECK(std::chrono::steady_clock::now() - since < 500ms);
    }
  }
  WHEN("the connection of one was lost as the job ended") {
    ends(true);
    THEN("it is waited for, and hears the end as it returns") {
      waits(10s);
      CHECK_FALSE(job.loop.until([&] { return is_done; }, 100ms));
      job.third_comes(1, NodeState::completed);
      REQUIRE(job.loop.until([&] { return is_done && job.third.close; }));
      CHECK(job.third.close->outcome == Outcome::succeeded);
    }
    THEN("it isn't waited for longer than the limit") {
      waits(100ms);
      CHECK(job.loop.until([&] { return is_done; }, 5s));
    }
  }
}

TEST_CASE("a barrier of more workers than a store has waiters by default was full",
          "[rendezvous][coordinator]") {
  constexpr std::uint32_t kOfThird = 4096;
  Elected job;
  auto& third = job.third_comes(kOfThird);
  job.all_say_heartbeat();
  KvRequest arrival;
  arrival.op = KvRequest::Op::barrier;
  arrival.key = "barrier";
  arrival.count = kOfThird + 2;
  arrival.timeout = 60s;
  const auto arrives = [&](Agent& agent, std::uint64_t id) {
    arrival.id = id;
    agent.says(arrival);
  };
  for (std::uint64_t id = 1; id <= kOfThird; ++id) arrives(third, id);
  arrives(job.first, 1);
  arrives(job.second, 1);
  REQUIRE(job.loop.until([&] { return third.replies.size() == kOfThird; }, 20s));
  for (auto* agent : {&third, &job.first, &job.second}) {
    const auto is_ok = [](const KvReply& reply) { return reply.status == KvReply::Status::ok; };
    CHECK(std::ranges::all_of(agent->replies, is_ok));
  }
}

TEST_CASE("a counter was too high after the link of a node broke while it replayed its writes",
          "[rendezvous][coordinator]") {
  Elected job;
  job.third_comes().says(KvRestore{"n", {}, 5});
  job.loop.until([] { return false; }, 50ms);
  auto& again = job.third_comes();
  again.says(KvRestore{"n", {}, 5});
  again.says(KvRestore{"m", {}, 2});
  job.all_say_heartbeat();
  CHECK(job.asked(get("n")).value == "5");
  CHECK(job.asked(get("m")).value == "2");
  SECTION("nor does it count what was added since then a second time") {
    KvRequest add = get("n");
    add.op = KvRequest::Op::add;
    add.delta = 1;
    job.third.says(add);
    REQUIRE(job.loop.until([&] { return !job.third.replies.empty(); }));
    auto& third = job.third_comes();
    third.says(KvRestore{"n", {}, 6});
    third.says(Heartbeat{.heartbeat = 1});
    job.loop.until([] { return false; }, 50ms);
    CHECK(job.asked(get("n")).value == "6");
  }
}

TEST_CASE("a node that replays a large store was lost for want of heartbeats",
          "[rendezvous][coordinator]") {
  Elected job{{.heartbeat_timeout = 600ms, .lease = 1200ms}};
  auto& third = job.third_comes();
  const auto end = std::chrono::steady_clock::now() + 2s;
  for (std::int64_t i = 1; std::chrono::steady_clock::now() < end; ++i) {
    for (auto* agent : {&job.first, &job.second})
      agent->says(Heartbeat{.heartbeat = 1, .echo = agent->stamp});
    third.says(KvRestore{"key" + std::to_string(i), "value", 0});
    job.loop.until([] { return false; }, 20ms);
    INFO(third.lost << job.told);
    REQUIRE(third.lost.empty());
  }
}

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kManyKeys = 6'000;  // instrumented code takes longer
#else
constexpr std::int64_t kManyKeys = 60'000;  // at the rate of other frames: half a minute
#endif

void replay_many(Agent& agent) {
  for (std::int64_t i = 1; i <= kManyKeys; ++i)
    agent.says(KvRestore{"key" + std::to_string(i), {}, i});
  agent.says(Heartbeat{.heartbeat = 1});
}

}  // namespace

TEST_CASE("thousands of keys are restored as fast as they arrive", "[rendezvous][coordinator]") {
  Elected job;
  auto& third = job.third_comes_over_a_socket();
  replay_many(third);
  for (auto* agent : {&job.first, &job.second}) agent->says(Heartbeat{.heartbeat = 1});
  CHECK(job.asked(get("key" + std::to_string(kManyKeys))).value == std::to_string(kManyKeys));
  CHECK(third.lost.empty());
}

// Its link had broken before it was told that the coordinator had all of it.
TEST_CASE("a large replay that was repeated took too long", "[rendezvous][coordinator]") {
  Elected job;
  replay_many(job.third_comes_over_a_socket());
  REQUIRE(job.loop.until([&] { return job.third.acks > 0; }, 20s));
  auto& again = job.third_comes_over_a_socket();
  again.acks = 0;
  replay_many(again);
  CHECK(job.loop.until([&] { return again.acks > 0; }, 20s));
  CHECK(again.lost.empty());
}

namespace {

KvRequest asking(std::uint64_t id, KvRequest::Op op, const std::string& key) {
  KvRequest request = get(key);
  request.id = id;
  request.op = op;
  request.timeout = 60s;
  return request;
}

/// All three nodes are there; the link of the third may break.
struct Whole : Elected {
  Whole() {
    third_comes();
    all_say_heartbeat();
  }
  /// Requests of the third node, answered in any order.
  std::vector<KvReply> third_asked(const std::vector<KvRequest>& requests) {
    third.replies.clear();
    for (const auto& request : requests) third.says(request);
    REQUIRE(loop.until([&] { return third.replies.size() >= requests.size(); }));
    return third.replies;
  }
  void third_comes_again() {
    third_comes();
    third.says(Heartbeat{.heartbeat = 2});
  }
};

}  // namespace

TEST_CASE("a counter was too high after a link broke between an add and its reply",
          "[rendezvous][coordinator]") {
  using Op = KvRequest::Op;
  Whole job;
  auto add = asking(1, Op::add, "n");
  add.delta = 5;
  auto lock = asking(2, Op::compare_set, "lock");
  lock.value = "third";
  auto set = asking(3, Op::set, "k");
  set.value = "old";
  auto remove = asking(5, Op::remove, "temporary");
  auto put = asking(4, Op::set, "temporary");
  job.third_asked({add, lock, set, put, remove});
  set.id = 100;
  set.value = "new";
  CHECK(job.asked(set).status == KvReply::Status::ok);
  // As if none of the replies had arrived.
  job.third_comes_again();
  set.id = 3;
  set.value = "old";
  const auto replies = job.third_asked({add, lock, set, remove});
  for (const auto& reply : replies) CHECK(reply.status == KvReply::Status::ok);
  CHECK(replies[0].number == 5);
  CHECK(job.asked(get("n")).value == "5");
  CHECK(job.asked(get("k")).value == "new");
  SECTION("a later one counts") {
    add.id = 6;
    CHECK(job.third_asked({add})[0].number == 10);
  }
}

TEST_CASE("a barrier that had ended began anew when its link broke before the reply",
          "[rendezvous][coordinator]") {
  Whole job;
  auto barrier = asking(1, KvRequest::Op::barrier, "b");
  barrier.count = 2;
  job.third.says(barrier);
  job.loop.until([] { return false; }, 50ms);
  SECTION("one that waits is asked again, and counts once") {
    job.third_comes_again();
    job.third.says(barrier);
    job.loop.until([] { return false; }, 50ms);
    CHECK(job.third.replies.empty());
  }
  barrier.id = 7;
  CHECK(job.asked(barrier).number == 1);
  REQUIRE(job.loop.until([&] { return !job.third.replies.empty(); }));
  job.third_comes_again();
  barrier.id = 1;
  const auto again = job.third_asked({barrier});
  CHECK(again[0].status == KvReply::Status::ok);
  CHECK(again[0].number == 0);
  SECTION("the next generation begins with none") {
    barrier.timeout = 0ms;
    barrier.id = 8;
    const auto next = job.asked(barrier);
    CHECK(next.status == KvReply::Status::timed_out);
    CHECK(next.number == 0);
  }
}

TEST_CASE("a request that was held when its link broke is carried out once",
          "[rendezvous][coordinator]") {
  Elected job;
  auto add = asking(1, KvRequest::Op::add, "n");
  add.delta = 5;
  auto& third = job.third_comes();
  third.says(Heartbeat{.heartbeat = 1});
  third.says(add);  // the others haven't replayed yet
  job.loop.until([] { return false; }, 50ms);
  CHECK(third.replies.empty());
  job.third_comes();
  third.says(Heartbeat{.heartbeat = 1});
  third.says(add);
  job.all_say_heartbeat();
  REQUIRE(job.loop.until([&] { return !third.replies.empty(); }));
  CHECK(third.replies[0].number == 5);
  CHECK(job.asked(get("n")).value == "5");
}

TEST_CASE("a node whose workers all wait for a large value read too slowly when it came",
          "[rendezvous][coordinator]") {
  Elected job;
  constexpr std::uint64_t kWorkers = 64;  // 16 MiB
  auto& third = job.third_comes_over_a_socket(kWorkers);
  job.all_say_heartbeat();
  for (std::uint64_t id = 1; id <= kWorkers; ++id)
    third.says(asking(id, KvRequest::Op::get, "large"));
  third.says(asking(kWorkers + 1, KvRequest::Op::set, "all wait"));
  REQUIRE(job.loop.until([&] { return third.replies.size() == 1; }));
  auto set = asking(1, KvRequest::Op::set, "large");
  set.value = std::string(kMaxValue, 'x');
  CHECK(job.asked(set).status == KvReply::Status::ok);
  job.loop.until([&] { return third.replies.size() == kWorkers + 1 || !third.lost.empty(); });
  CHECK(third.lost.empty());
  REQUIRE(third.replies.size() == kWorkers + 1);
  CHECK(third.replies.back().value.size() == kMaxValue);
}
