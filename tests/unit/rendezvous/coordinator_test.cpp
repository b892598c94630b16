#include "rendezvous/coordinator.hpp"

#include "tests/unit/rendezvous/net_tools.hpp"

#include <catch2/catch.hpp>

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
  void start() {
    Link::Handlers on;
    on.on_frame = [this](const Frame& frame) {
      if (const auto* reply = std::get_if<KvReply>(&frame.message)) replies.push_back(*reply);
    };
    on.on_lost = [](const LinkLoss&) {};
    link->start(std::move(on));
  }
  void says(Message message) { link->send({kNow, std::move(message)}); }
};

/// Two of three nodes have elected a coordinator on node 1; node 2 is still on its way.
struct Elected {
  Loop loop;
  Agent first, second;
  std::unique_ptr<Coordinator> coordinator;

  Elected() {
    Coordinator::Hooks hooks;
    hooks.tell = [](const std::string&, bool) {};
    hooks.stepped_down = [](const std::string&) {};
    hooks.job_over = [](const Close&) {};
    MembershipOptions options;
    options.job = "job";
    options.name = "node1";
    options.nodes_min = options.nodes_max = 3;
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
  Agent& third_comes() {
    auto [ours, theirs] = link_inside(loop.io);
    third.link = ours;
    third.start();
    coordinator->admit(PeerId{3}, theirs, vote_of(2));
    return third;
  }
  Agent third;
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
