#include <catch2/catch.hpp>

#include <string>

#include "trial.hpp"

using namespace acc::ctl;
using namespace acc::ctl::top;
using namespace acc::ctl::top::trial;

namespace {

LogAnswer log_answer(const Model& model, std::uint64_t from, std::string text) {
  LogAnswer answer;
  answer.id = model.wanted;
  answer.place = model.log.place;
  answer.asked_from = model.log.offset;
  answer.from = from;
  answer.text = std::move(text);
  return answer;
}

Model of_log(Size size = {}) {
  auto model = of_job({answered(status(4))}, size);
  CHECK(press(model, Key::enter).asks_now);
  return model;
}

}  // namespace

SCENARIO("keys move through 1,024 ranks", "[top]") {
  auto model = of_job({answered(status(1024))});
  const auto height = table_height(model);
  REQUIRE(height == 18);
  CHECK(model.rank_table.selected == "rank 0.0");
  press(model, Key::page_down);
  CHECK(model.rank_table.selected == "rank 0.18");
  press(model, Key::end);
  CHECK(model.rank_table.selected == "rank 0.1023");
  CHECK(model.rank_table.first == 1024 - height);
  press(model, Key::up);
  CHECK(model.rank_table.first == 1024 - height);
  press(model, Key::home);
  CHECK(model.rank_table.first == 0);
  type(model, "/rank 777");
  CHECK(model.rank_table.selected == "rank 0.777");
  press(model, Key::enter);
  CHECK(model.panel == Panel::none);
  press(model, Key::f4);
  type(model, "rank 99");
  CHECK(rows_of(model).size() == 11);  // 99, 990 to 999
  press(model, Key::escape);
  CHECK(rows_of(model).size() == 1024);
}

SCENARIO("the selected rank stays selected while the order changes", "[top]") {
  auto model = of_job({answered(status(8))});
  press(model, Key::down);
  press(model, Key::down);
  type(model, "I");
  CHECK(model.rank_table.selected == "rank 0.2");
  type(model, "M");
  CHECK(model.rank_table.selected == "rank 0.2");
  press(model, Key::f5);
  CHECK(model.rank_table.is_tree);
  CHECK(model.rank_table.selected == "rank 0.2");
}

SCENARIO("a signal is sent after a yes alone", "[top]") {
  auto model = of_job({answered(status(8))});
  press(model, Key::f9);
  for (int i = 0; i < 4; ++i) press(model, Key::down);
  CHECK_FALSE(press(model, Key::enter).order);
  CHECK(shown(model).find("Send SIGUSR1 to all ranks of train.77? y") != std::string::npos);
  WHEN("the answer is y") { CHECK(type(model, "y").order == Order{"train.77", "signal", "USR1"}); }
  WHEN("it is Enter") {
    CHECK_FALSE(press(model, Key::enter).order);
    CHECK(shown(model).find("nothing was sent") != std::string::npos);
  }
  WHEN("it is a restart") {
    press(model, Key::escape);
    type(model, "k");
    press(model, Key::end);
    press(model, Key::enter);
    CHECK(type(model, "y").order == Order{"train.77", "restart", ""});
  }
}

SCENARIO("a signal is for the job that was chosen, also if the list changes before the yes",
         "[top]") {
  Model model;
  (void)step(model, Resized{{24, 80}}, kNow);
  auto other = known();
  other.id = "train.99";
  auto third = known();
  third.id = "train.98";
  (void)step(model, JobsAnswer{{known(), third, other}, ""}, kNow);
  press(model, Key::down);
  type(model, "k");
  press(model, Key::enter);
  (void)step(model, JobsAnswer{{known(), other}, ""}, kNow);
  CHECK(model.job_table.selected == "train.99");  // what took its place
  CHECK(shown(model).find("Send SIGTERM to all ranks of train.98? It ends the job.") !=
        std::string::npos);
  CHECK(type(model, "y").order == Order{"train.98", "signal", "TERM"});
}

SCENARIO("a job that has ended gets no signal", "[top]") {
  auto model = of_job({answered(status(2))});
  (void)step(model, JobAnswer{"train.77", known(), {PartAnswer{"", PartAnswer::How::gone}}, ""},
             kNow);
  press(model, Key::f9);
  CHECK(model.panel == Panel::none);
  CHECK(shown(model).find("the job has ended") != std::string::npos);
}

SCENARIO("pages open and close by Enter and Esc", "[top]") {
  Model model;
  (void)step(model, Resized{{24, 80}}, kNow);
  CHECK(wish_of(model).jobs);
  auto other = known();
  other.id = "eval.78";
  (void)step(model, JobsAnswer{{other, known()}, ""}, kNow);
  press(model, Key::down);
  CHECK(press(model, Key::enter).asks_now);
  CHECK(wish_of(model).job == "train.77");
  CHECK_FALSE(wish_of(model).jobs);
  // An answer for a page that was left is nobody's.
  (void)step(model, JobAnswer{"eval.78", other, {answered(status(1))}, ""}, kNow);
  CHECK_FALSE(model.job);
  (void)step(model, JobAnswer{"train.77", known(), {answered(status(3))}, ""}, kNow);
  press(model, Key::down);
  CHECK(press(model, Key::enter).asks_now);
  CHECK(wish_of(model).log == LogPlace{0, 1, false});
  press(model, Key::tab);
  CHECK(wish_of(model).log == LogPlace{0, 1, true});
  press(model, Key::escape);
  CHECK(model.page == Page::ranks);
  press(model, Key::escape);
  CHECK(model.page == Page::jobs);
  type(model, "q");
  CHECK(model.is_over);
}

SCENARIO("q went back from a log, where the help says that it quits", "[top]") {
  auto model = of_log();
  CHECK(model.page == Page::log);
  type(model, "q");
  CHECK(model.is_over);
  auto other = of_log();
  type(other, "/q");
  CHECK_FALSE(other.is_over);  // a letter of what is searched
  CHECK(other.input == "q");
}

SCENARIO("the filter found digits in figures such as 99 MiB", "[top]") {
  auto live = status(4);
  for (auto& one : live["workers"]) one["rss_bytes"] = 99 << 20;
  live["workers"][0]["step"] = 99;
  live["workers"][2]["last_line"] = "epoch 99";
  auto model = of_job({answered(live)});
  press(model, Key::f4);
  type(model, "99");
  REQUIRE(rows_of(model).size() == 1);
  CHECK(rows_of(model)[0].id == "rank 0.2");
  press(model, Key::escape);
  press(model, Key::f4);
  type(model, "mib");
  CHECK(rows_of(model).empty());
}

SCENARIO("a log follows its end until it is scrolled", "[top]") {
  auto model = of_log({10, 40});
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line " + std::to_string(i) + "\n";
  (void)step(model, log_answer(model, 0, text), kNow);
  CHECK(shown(model).find("line 99\n") != std::string::npos);
  CHECK(*wish_of(model).log_from == text.size());
  press(model, Key::page_up);
  CHECK(shown(model).find("line 84\n") != std::string::npos);
  (void)step(model, log_answer(model, text.size(), "line 100\n"), kNow);
  CHECK(shown(model).find("line 84\n") != std::string::npos);
  CHECK(shown(model).find("line 100\n") == std::string::npos);
  press(model, Key::end);
  CHECK(shown(model).find("line 100\n") != std::string::npos);
  type(model, "/line 50");
  CHECK(shown(model).find("line 50\n") != std::string::npos);
  press(model, Key::enter);
  type(model, "f");
  CHECK(shown(model).find("line 100\n") != std::string::npos);
}

SCENARIO("a log goes on with the next attempt", "[top]") {
  auto model = of_log();
  auto first = log_answer(model, 0, "old\n");
  first.round = 0;
  (void)step(model, first, kNow);
  auto next = log_answer(model, 4, "");
  next.round = 1;
  CHECK(step(model, next, kNow).asks_now);
  CHECK(*wish_of(model).log_from == 0);
  auto again = log_answer(model, 0, "new\n");
  again.round = 1;
  (void)step(model, again, kNow);
  CHECK(shown(model).find("old\n-- attempt 1 --\nnew\n") != std::string::npos);
  (void)step(model, again, kNow);  // of a question that was asked before
  CHECK(model.log.text.end() == 3);
}

SCENARIO("what a log has lost is told", "[top]") {
  auto model = of_log();
  (void)step(model, log_answer(model, 1000, "half a line\nwhole\n"), kNow);
  CHECK(shown(model).find("half") == std::string::npos);
  CHECK(shown(model).find("-- what is before is not kept --\nwhole\n") != std::string::npos);
  (void)step(model, log_answer(model, 2000, "late\n"), kNow);
  CHECK(shown(model).find("whole\n-- 982 bytes left out --\nlate\n") != std::string::npos);
}

SCENARIO("a service that is gone is told of, and forgotten when it is back", "[top]") {
  auto model = of_job({answered(status(2))});
  PartAnswer silent;
  silent.why = "connect to '/run/acc/agent.sock': nothing listens there";
  (void)step(model, JobAnswer{"train.77", known(), {silent}, ""}, kNow + 5000);
  CHECK(shown(model).find("no answer for 5 s: connect to") != std::string::npos);
  CHECK(shown(model).find("line of rank 1") != std::string::npos);
  (void)step(model, JobAnswer{"train.77", known(), {answered(status(2))}, ""}, kNow + 6000);
  CHECK(shown(model).find("no answer") == std::string::npos);
}
