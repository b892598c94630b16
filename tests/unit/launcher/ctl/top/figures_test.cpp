#include "launcher/ctl/top/figures.hpp"

#include "launcher/ctl/top/table.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "trial.hpp"

using namespace acc::ctl;
using namespace acc::ctl::top;
using namespace acc::ctl::top::trial;
using Json = nlohmann::json;

namespace {

std::vector<std::string> ids(const std::vector<TableRow>& rows) {
  std::vector<std::string> all;
  for (const auto& row : rows) all.push_back(row.id);
  return all;
}

}  // namespace

TEST_CASE("the processor's share is measured between two answers by the node's own clock",
          "[top]") {
  auto live = status(1);
  const auto first = figures_of(known(), std::vector{answered(live)}, nullptr, kNow);
  CHECK_FALSE(first.ranks[0].cpu_percent);
  live["workers"][0] = worker(0, 0, 12, 8);  // 3 s of work in 2 s
  const auto second = figures_of(known(), std::vector{answered(live)}, &first, kNow);
  CHECK(*second.ranks[0].cpu_percent == Approx(150));
  live["workers"][0] = worker(0, 0, 12.1, 8.05);  // asked again at once
  const auto third = figures_of(known(), std::vector{answered(live)}, &second, kNow);
  CHECK(*third.ranks[0].cpu_percent == Approx(150));
  live["workers"][0] = worker(0, 0, 13, 8.5);
  const auto fourth = figures_of(known(), std::vector{answered(live)}, &third, kNow);
  CHECK(*fourth.ranks[0].cpu_percent == Approx(50));
  live["workers"][0]["pid"] = 9999;  // the next attempt's
  CHECK_FALSE(figures_of(known(), std::vector{answered(live)}, &fourth, kNow).ranks[0].cpu_percent);
}

TEST_CASE("any answer gives figures", "[top]") {
  for (const std::string body :
       {"", "{}", "[]", "null", "{\"workers\":7}",
        "{\"state\":\"running\",\"workers\":[1,null,{}]}", "{\"id\":\"x\",\"live\":[]}",
        "{\"id\":\"x\",\"live\":{\"workers\":[{\"rank\":\"x\"}]}}",
        "{\"state\":\"running\",\"workers\":[{\"cpu_s\":1e999,\"step\":-5,\"gpus\":[1,\"x\"]}],"
        "\"node_table\":[1,{}],\"gpus\":[1,{}]}"}) {
    for (const bool is_of_service : {false, true}) {
      PartAnswer part{"", PartAnswer::How::answered, is_of_service, body};
      const auto job = figures_of(known(), std::vector{part}, nullptr, kNow);
      CHECK(job.nodes.size() >= 1);
    }
  }
}

TEST_CASE("a node that gives no answer keeps what was known of it", "[top]") {
  const auto first = figures_of(
      known(), std::vector{answered(status(2), "a"), answered(status(2, 2), "b")}, nullptr, kNow);
  REQUIRE(first.ranks.size() == 4);
  CHECK(first.ranks[2].node == 1);
  PartAnswer silent{"b", PartAnswer::How::silent};
  silent.why = "b:29700: connection refused";
  const auto second =
      figures_of(known(), std::vector{answered(status(2), "a"), silent}, &first, kNow);
  REQUIRE(second.ranks.size() == 4);
  CHECK(second.nodes[1].why == "b:29700: connection refused");
  CHECK_FALSE(second.is_over);
}

TEST_CASE("a job that is gone keeps its last figures", "[top]") {
  const auto first = figures_of(known(), std::vector{answered(status(2))}, nullptr, kNow);
  const PartAnswer gone{"", PartAnswer::How::gone};
  const auto second = figures_of(known(), std::vector{gone}, &first, kNow);
  CHECK(second.is_over);
  CHECK(second.gone == "its acc-launch has ended");
  CHECK(second.row.state == "ended");
  CHECK(second.ranks.size() == 2);
  CHECK(second.ranks[0].end == "ended");
}

TEST_CASE("a launch that was removed was shown as failed", "[top]") {
  const auto first = figures_of(
      known(), std::vector{answered(status(2), "a"), answered(status(2, 2), "b")}, nullptr, kNow);
  PartAnswer gone{"a", PartAnswer::How::gone, true};
  auto other = gone;
  other.node = "b";
  const auto second = figures_of(known(), std::vector{gone, other}, &first, kNow);
  CHECK(second.is_over);
  CHECK(second.row.state == "ended");
  CHECK(second.gone == "it was removed (acc-ctl rm)");
  CHECK(second.ranks.size() == 4);
  auto good = known();
  good.state = "succeeded";
  good.exit_code = 0;
  const auto third = figures_of(good, std::vector{gone, other}, nullptr, kNow);
  CHECK((third.row.state == "succeeded" && third.row.exit_code == 0));
}

TEST_CASE("of a job that has ended its report tells of the ranks", "[top]") {
  const Json worker{{"rank", 0}, {"local_rank", 0}, {"pid", 7}, {"peak_rss_bytes", 4096}};
  auto killed = worker;
  killed.update({{"rank", 1}, {"local_rank", 1}, {"exit", {{"signal", "SIGSEGV"}, {"signo", 11}}}});
  auto good = worker;
  good["exit"] = {{"code", 0}};
  auto never = worker;
  never.update({{"rank", 2}, {"local_rank", 2}, {"exit", nullptr}});
  auto lost = worker;
  lost.update({{"rank", 9}, {"local_rank", nullptr}});
  PartAnswer part{"", PartAnswer::How::answered, true};
  part.body = Json{{"id", "train-x"},
                   {"state", "failed"},
                   {"exit_code", 139},
                   {"report",
                    {{"host", "vm"},
                     {"world_size", 3},
                     {"restarts", 2},
                     {"max_restarts", 2},
                     {"workers", {good, killed, never, lost}},
                     {"first_failure", {{"rank", 1}, {"last_lines", {"one", "the \x1b[1mend"}}}}}}}
                  .dump();
  const auto job = figures_of(known(), std::vector{part}, nullptr, kNow);
  CHECK(job.is_over);
  CHECK(job.nodes[0].name == "vm");
  CHECK(job.restarts_used == 2);
  REQUIRE(job.ranks.size() == 3);
  CHECK(job.ranks[0].end == "exit 0");
  CHECK(job.ranks[1].end == "SIGSEGV");
  CHECK(job.ranks[1].last_line == "the end");
  CHECK(job.ranks[2].end == "not started");
}

TEST_CASE("ranks of other machines are told of by the coordinator's table alone", "[top]") {
  auto live = status(2);
  live["node_table"] = {{{"node", "vm"}, {"host", "vm"}, {"first_rank", 0}, {"slots", 2}},
                        {{"node", "vm2"}, {"host", "vm2"}, {"first_rank", 2}, {"slots", 2}}};
  const auto job = figures_of(known(), std::vector{answered(live)}, nullptr, kNow);
  REQUIRE(job.nodes.size() == 2);
  CHECK_FALSE(job.nodes[1].is_watched);
  CHECK(job.nodes[1].first_rank == 2);
}

TEST_CASE("how a rank ended is told in a word", "[top]") {
  auto live = status(3);
  live["workers"][0].update({{"state", "exited"}, {"exit_code", 0}});
  live["workers"][1].update({{"state", "exited"}, {"exit_code", 137}, {"signal", "SIGKILL"}});
  live["workers"][2].update({{"state", "exited"}, {"exit_code", 3}});
  const auto job = figures_of(known(), std::vector{answered(live)}, nullptr, kNow);
  CHECK(job.ranks[0].end == "exit 0");
  CHECK(job.ranks[0].life == RankFigures::Life::succeeded);
  CHECK(job.ranks[1].end == "SIGKILL");
  CHECK(job.ranks[2].end == "exit 3");
  CHECK(totals_of(job).running == 0);
}

TEST_CASE("a rank's share of GPUs is that of those it uses", "[top]") {
  auto live = status(2);
  live["gpus"] = {{{"index", 0}, {"percent", 90}, {"memory_used", 5}, {"memory_total", 10}},
                  {{"index", 1}, {"percent", 30}, {"memory_used", 5}, {"memory_total", 10}}};
  live["workers"][0]["gpus"] = {0, 1};
  const auto job = figures_of(known(), std::vector{answered(live)}, nullptr, kNow);
  CHECK(*job.ranks[0].gpu_percent == Approx(60));
  CHECK_FALSE(job.ranks[1].gpu_percent);
}

TEST_CASE("rows are sorted, filtered and put below their nodes", "[top]") {
  auto a = status(2);
  a["workers"][0]["rss_bytes"] = 10;
  a["workers"][1]["rss_bytes"] = 30;
  auto b = status(2, 2);
  b["workers"][0]["rss_bytes"] = 20;
  b["workers"][1]["rss_bytes"] = nullptr;
  const auto job =
      figures_of(known(), std::vector{answered(a, "a"), answered(b, "b")}, nullptr, kNow);
  TableState state;
  CHECK(ids(top::rows_of(job, state)) ==
        std::vector<std::string>{"rank 0.0", "rank 0.1", "rank 1.0", "rank 1.1"});
  state.column = 6;  // MEMORY
  state.is_descending = true;
  CHECK(ids(top::rows_of(job, state)) ==
        std::vector<std::string>{"rank 0.1", "rank 1.0", "rank 0.0", "rank 1.1"});
  state.is_tree = true;
  CHECK(ids(top::rows_of(job, state)) == std::vector<std::string>{"node 0", "rank 0.1", "rank 0.0",
                                                                  "node 1", "rank 1.0",
                                                                  "rank 1.1"});
  state.filter = "RANK 3|rank 0";  // of their last lines
  CHECK(ids(top::rows_of(job, state)) ==
        std::vector<std::string>{"node 0", "rank 0.0", "node 1", "rank 1.1"});
}
