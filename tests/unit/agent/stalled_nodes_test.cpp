#include "agent/stalled_nodes.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <deque>
#include <map>
#include <memory>

using namespace acc;
using namespace acc::agent;
using rendezvous::KvReply;
using rendezvous::KvRequest;

namespace {

/// The store of a round: answers at once, or when a key is written.
struct RoundStore {
  std::map<std::string, std::string> values;
  std::deque<std::pair<std::string, StalledNodes::Answer>> waiting;
  int waits = 0;
  bool is_gone = false;

  void ask(const KvRequest& request, const StalledNodes::Answer& answer) {
    KvReply reply;
    if (is_gone) reply.status = KvReply::Status::wrong_round;
    const bool is_get = !is_gone && request.op == KvRequest::Op::get;
    if (is_get && !values.contains(request.key)) {
      if (request.timeout > Millis{0}) {
        ++waits;
        return waiting.emplace_back(request.key, answer), void();
      }
      reply.status = KvReply::Status::missing;
    }
    if (!is_gone && request.op == KvRequest::Op::set) values[request.key] = request.value;
    if (!is_gone && request.op == KvRequest::Op::remove) values.erase(request.key);
    answer(reply);
    if (!is_gone && request.op == KvRequest::Op::set) answer_waiting(request.key);
  }
  void answer_waiting(const std::string& key) {
    for (auto& [wanted, answer] : std::exchange(waiting, {})) {
      if (wanted == key)
        answer(KvReply{});
      else
        waiting.emplace_back(wanted, answer);
    }
  }
};

struct ThreeNodes {
  boost::asio::io_context io;
  RoundStore store;
  std::array<std::unique_ptr<StalledNodes>, 3> nodes;
  std::array<int, 3> ends{};
  ThreeNodes() {
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      nodes[i] = std::make_unique<StalledNodes>(
          io, [this](const auto& request, auto answer) { store.ask(request, std::move(answer)); });
      nodes[i]->round_started(NodeRank{i}, 3);
    }
  }
  void stalls(std::size_t node) {
    nodes[node]->stalled([this, node] { ++ends[node]; });
  }
  using Ends = std::array<int, 3>;
};

}  // namespace

TEST_CASE("a node that waits for one that works was ended for its stall", "[agent][hang]") {
  ThreeNodes job;
  job.stalls(1);
  job.stalls(2);
  CHECK(job.ends == ThreeNodes::Ends{0, 0, 0});
  CHECK(job.store.waits == 2);  // each asks one question, which the store holds
  job.stalls(0);
  CHECK(job.ends == ThreeNodes::Ends{1, 1, 1});
}

TEST_CASE("a node that goes on takes its stall back", "[agent][hang]") {
  ThreeNodes job;
  job.stalls(0);
  job.stalls(1);
  job.nodes[0]->go_on();  // which node 1 has seen stalled
  job.stalls(2);
  CHECK(job.ends == ThreeNodes::Ends{0, 0, 0});
  job.stalls(0);
  CHECK(job.ends == ThreeNodes::Ends{1, 1, 1});
  job.nodes[1]->go_on();  // also after it was told
  job.stalls(2);
  CHECK(job.ends == ThreeNodes::Ends{1, 1, 1});
}

TEST_CASE("a node that stalls again and again left a question behind each time", "[agent][hang]") {
  ThreeNodes job;
  for (int i = 0; i < 100; ++i) {
    job.stalls(1);
    job.nodes[1]->go_on();
  }
  CHECK(job.store.waiting.size() == 1);
  job.stalls(2);
  job.stalls(1);
  job.stalls(0);
  CHECK(job.ends == ThreeNodes::Ends{1, 1, 1});
}

TEST_CASE("nodes whose workers have finished do nothing", "[agent][hang]") {
  ThreeNodes job;
  job.stalls(1);
  job.nodes[0]->round_ended(true);
  job.nodes[2]->round_ended(false);
  CHECK(job.ends == ThreeNodes::Ends{0, 0, 0});
  job.nodes[2]->round_started(NodeRank{2}, 3);
  job.nodes[2]->round_ended(true);
  CHECK(job.ends == ThreeNodes::Ends{0, 1, 0});
}

TEST_CASE("a stall is told again to the next coordinator", "[agent][hang]") {
  ThreeNodes job;
  job.store.is_gone = true;
  for (const std::size_t node : {0U, 1U, 2U}) job.stalls(node);
  CHECK(job.ends == ThreeNodes::Ends{0, 0, 0});
  job.store.is_gone = false;
  while (job.ends != ThreeNodes::Ends{1, 1, 1}) REQUIRE(job.io.run_one() == 1);
}
