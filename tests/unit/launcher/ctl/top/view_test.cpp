#include <catch2/catch.hpp>

#include <string>

#include "trial.hpp"

using namespace acc::ctl;
using namespace acc::ctl::top;
using namespace acc::ctl::top::trial;

namespace {

void check_fits(const Model& model) {
  const auto frame = frame_of(model);
  REQUIRE(frame.lines.size() == std::max<std::size_t>(1, model.size.rows));
  for (const auto& line : frame.lines) {
    REQUIRE(width_of(line) <= model.size.columns);
    for (const char c : text_of(line))
      REQUIRE((static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) != 0x7f));
  }
  if (frame.cursor) {
    REQUIRE(frame.cursor->row < model.size.rows);
    REQUIRE(frame.cursor->column < model.size.columns);
  }
}

nlohmann::json hostile() {
  auto live = status(20);
  live["node"] = "\x1b]0;x\a東京\x1b[2J";
  live["restart_reason"] = "\x1b[31m\r\n\xe2\x80\xaerank 3";
  live["command"] = {"python3", "\x1b[31mtrain.py\n", std::string(500, 'w')};
  for (auto& one : live["workers"]) {
    one["last_line"] = "\x1b[31m東京 " + std::string(300, 'x') + "\t\x07";
    one["section"] = "eval\x1b[0m";
    one["step"] = 1234567890123;
    one["steps_per_second"] = 12345.678;
  }
  live["gpus"] = {{{"index", 0}, {"percent", 100}}};
  return live;
}

}  // namespace

TEST_CASE("every page and panel fits every window, whatever the texts", "[top]") {
  for (const std::size_t rows : {1U, 2U, 3U, 5U, 11U, 12U, 24U, 60U}) {
    for (const std::size_t columns : {1U, 2U, 10U, 40U, 79U, 80U, 200U}) {
      auto model = of_job({answered(hostile())}, {rows, columns});
      for (const bool is_tree : {false, true}) {
        model.rank_table.is_tree = is_tree;
        for (const auto panel : {Panel::none, Panel::help, Panel::columns, Panel::signals,
                                 Panel::confirm, Panel::search, Panel::filter}) {
          model.panel = panel;
          model.input = "東京\x1b[0m";
          check_fits(model);
        }
        model.panel = Panel::none;
      }
      press(model, Key::enter);
      model.page = Page::log;
      check_fits(model);
      LogAnswer log{"train.77", model.log.place,
                    {},         -1,
                    0,          "\x1b[2J東京" + std::string(500, 'y') + "\n",
                    false,      ""};
      (void)step(model, log, kNow);
      check_fits(model);
      for (int i = 0; i < 5; ++i) press(model, Key::right);
      check_fits(model);
      model.page = Page::jobs;
      model.jobs = {known(), known()};
      model.jobs[0].id = "\x1b[31mx\n";
      model.jobs[1].words = {"\x1b]0;\a", std::string(300, 'z')};
      model.are_jobs_known = true;
      check_fits(model);
    }
  }
}

TEST_CASE("a job is shown in 80 columns", "[top]") {
  auto live = status(4);
  for (int i = 0; i < 4; ++i) {
    live["workers"][i].update(
        {{"step", 1200 + i}, {"steps_per_second", 3.125}, {"seconds_since_heartbeat", 0.3}});
  }
  live["workers"][2]["seconds_since_heartbeat"] = 42;
  live["workers"][3].update({{"state", "exited"}, {"exit_code", 139}, {"signal", "SIGSEGV"}});
  const auto text = shown(of_job({answered(live)}));
  INFO(text);
  CHECK(text.find("train.77  running for 12 s, 4 ranks, attempt 0, restarts 0 of 3") == 0);
  CHECK(text.find("3 of 4 ranks running, step 1200 to 1202, 3.12 steps/s, memory 3.0 MiB") !=
        std::string::npos);
  CHECK(text.find("RANK^  PID STATE      STEP STEPS/S  MEMORY CPU% LAST LINE") !=
        std::string::npos);
  CHECK(text.find("    2 1002 quiet 42 s 1202    3.12 1.0 MiB    - line of rank 2") !=
        std::string::npos);
  CHECK(text.find("    3 1003 SIGSEGV    1203       -") != std::string::npos);
  CHECK(text.find("F1Help F3Search F4Filter F5Tree F6SortBy F9Signal F10Quit EnterLog EscJobs") !=
        std::string::npos);
}

TEST_CASE("two nodes have a column, or a row each in the tree", "[top]") {
  auto model = of_job({answered(status(2), "node1"), answered(status(2, 2), "node2")});
  auto text = shown(model);
  INFO(text);
  CHECK(text.find("4 ranks on 2 nodes") != std::string::npos);
  CHECK(text.find("    2 node2 1002 running") != std::string::npos);
  press(model, Key::f5);
  text = shown(model);
  INFO(text);
  CHECK(text.find("node1      running 2.0 MiB") != std::string::npos);
  CHECK(text.find("  2   1002 running 1.0 MiB") != std::string::npos);
}

TEST_CASE("nodes that are seen elsewhere have a row with their ranks", "[top]") {
  auto live = status(2);
  live["world_size"] = 5;
  live["node_table"] = {{{"node", "vm"}, {"host", "vm"}, {"first_rank", 0}, {"slots", 2}},
                        {{"node", "vm2"}, {"host", "vm2"}, {"first_rank", 2}, {"slots", 3}}};
  auto model = of_job({answered(live)});
  auto text = shown(model);
  INFO(text);
  CHECK(text.find("5 ranks on 2 nodes") != std::string::npos);
  CHECK(text.find("2 ranks running here") != std::string::npos);
  CHECK(text.find("  2-4 vm2       elsewhere") != std::string::npos);
  press(model, Key::end);
  press(model, Key::enter);
  CHECK(shown(model).find("a log is of one rank") != std::string::npos);
}

TEST_CASE("the part of a job on several nodes said 2 ranks and 0 of 1 in one heading", "[top]") {
  auto live = status(1);
  live["world_size"] = 2;
  live["workers"][0].update({{"state", "exited"}, {"exit_code", 0}});
  const auto text = shown(of_job({answered(live)}));
  INFO(text);
  CHECK(text.find(", 2 ranks, ") != std::string::npos);
  CHECK(text.find("0 of 1 rank running here") != std::string::npos);
}

TEST_CASE("1,024 ranks cost no more lines than the window has", "[top]") {
  auto model = of_job({answered(status(1024))}, {60, 200});
  press(model, Key::end);
  check_fits(model);
  CHECK(shown(model).find("line of rank 1023") != std::string::npos);
}
