#include "agent/lost_ranks.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace acc;
using namespace acc::agent;
using rendezvous::Failure;
using rendezvous::Stop;
using worker_socket::LostRank;

namespace {

WorkerRecord ended(const ExitStatus& status) {
  return {.local_rank = LocalRank{1}, .rank = Rank{5}, .pid = 4711, .status = status};
}

Failure failed(Failure::Kind kind, int code) {
  Failure failure;
  failure.kind = kind;
  failure.code = code;
  failure.rank = Rank{5};
  failure.node = "b";
  failure.pid = 4711;
  return failure;
}

}  // namespace

TEST_CASE("how a worker here was lost is told in a few words", "[agent][lost_ranks]") {
  CHECK((lost_here(ended(Exited{3}), {}) == LostRank{Rank{5}, 4711, "exit code 3"}));
  CHECK(lost_here(ended(Signaled{SIGSEGV, true}), {}).how == "killed by SIGSEGV");
  CHECK(lost_here(ended(Signaled{SIGKILL, false}), {}).how == "killed by SIGKILL");
  OomFacts facts;
  facts.known = true;
  CHECK(lost_here(ended(Signaled{SIGKILL, false}), facts).how == "killed by SIGKILL");
  facts.kills = 1;
  CHECK(lost_here(ended(Signaled{SIGKILL, false}), facts).how ==
        "killed by SIGKILL (out of memory)");
  CHECK(lost_here(ended(Signaled{SIGTERM, false}), facts).how == "killed by SIGTERM");
}

TEST_CASE("an order to stop names the worker that failed elsewhere", "[agent][lost_ranks]") {
  Stop stop;
  CHECK(lost_by(stop).empty());
  stop.failure = failed(Failure::Kind::signaled, SIGKILL);
  CHECK((lost_by(stop) == std::vector{LostRank{Rank{5}, 4711, "killed by SIGKILL on b"}}));
  stop.failure->out_of_memory = true;
  CHECK(lost_by(stop).at(0).how == "killed by SIGKILL (out of memory) on b");
  stop.failure = failed(Failure::Kind::exited, 3);
  CHECK(lost_by(stop).at(0).how == "exit code 3 on b");
  stop.failure = failed(Failure::Kind::cannot_start, ENOENT);
  CHECK(lost_by(stop).at(0).how == "could not be started on b");
}

TEST_CASE("survivors read of a rank that hung that it was lost by exit code 124",
          "[agent][lost_ranks]") {
  Stop stop;
  stop.failure = failed(Failure::Kind::exited, 124);
  stop.failure->cause = "hung: no heartbeat for 10 s after step 41";
  CHECK(lost_by(stop).at(0).how == "hung on b");
  stop.failure->cause = "exited with code 124";  // as `timeout` does
  CHECK(lost_by(stop).at(0).how == "exit code 124 on b");
}

TEST_CASE("an order to stop names all ranks of a lost node, each once", "[agent][lost_ranks]") {
  Stop stop;
  stop.lost = {{"b", Rank{4}, 2}, {"", Rank{8}, 1}};
  CHECK((lost_by(stop) == std::vector<LostRank>{{Rank{4}, 0, "its node b was lost"},
                                                {Rank{5}, 0, "its node b was lost"},
                                                {Rank{8}, 0, "its node was lost"}}));
  stop.failure = failed(Failure::Kind::exited, 3);
  CHECK((lost_by(stop) == std::vector<LostRank>{{Rank{5}, 4711, "exit code 3 on b"},
                                                {Rank{4}, 0, "its node b was lost"},
                                                {Rank{8}, 0, "its node was lost"}}));
  stop.lost = {{"b", Rank{0}, UINT32_MAX}};
  CHECK(lost_by(stop).size() < 10'000);
}
