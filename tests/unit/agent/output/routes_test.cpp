#include "agent/output/routes.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::agent;

namespace {

constexpr LocalRank kZero{0};
const Route kInherit{.inherit = true, .file = false, .show = Show::as_is};
const Route kPass{.inherit = false, .file = false, .show = Show::as_is};
const Route kFileOnly{.inherit = false, .file = true, .show = Show::nothing};
const Route kTee{.inherit = false, .file = true, .show = Show::prefixed};
const Route kPassAndFile{.inherit = false, .file = true, .show = Show::as_is};
const Route kUnseen{.inherit = false, .file = false, .show = Show::nothing};
const ConsoleFacts kTerminal{.out_is_tty = true, .err_is_tty = true, .same_target = true};
const ConsoleFacts kPipes{};
const ConsoleFacts kOnePipe{.same_target = true};

void expect(const WorkerRoutes& routes, const Route& out, const Route& err, bool one_pipe) {
  CHECK(routes.out == out);
  CHECK(routes.err == err);
  CHECK(routes.one_pipe == one_pipe);
}

}  // namespace

SCENARIO("nothing is asked for", "[agent][output]") {
  const OutputPlan plan;
  THEN("a single worker keeps the terminal") {
    expect(routes_of(plan, kZero, 1, kTerminal), kInherit, kInherit, false);
  }
  THEN("several workers on a terminal come through one pipe each") {
    expect(routes_of(plan, kZero, 2, kTerminal), kPass, kPass, true);
  }
  THEN("a single worker elsewhere comes through us") {
    expect(routes_of(plan, kZero, 1, kPipes), kPass, kPass, false);
  }
  THEN("the order of the two streams is kept where they meet") {
    expect(routes_of(plan, kZero, 1, kOnePipe), kPass, kPass, true);
  }
}

SCENARIO("capture is set", "[agent][output]") {
  OutputPlan plan;
  plan.capture = Choice::no;
  expect(routes_of(plan, kZero, 8, kPipes), kInherit, kInherit, false);
  plan.tee.all = Streams::err;
  expect(routes_of(plan, kZero, 8, kPipes), kInherit, kTee, false);
  plan.tee.all = Streams::none;
  plan.capture = Choice::yes;
  expect(routes_of(plan, kZero, 1, kTerminal), kPass, kPass, true);
}

SCENARIO("tee, redirects and log_dir", "[agent][output]") {
  OutputPlan plan;
  plan.tee.some = {{LocalRank{0}, Streams::both}, {LocalRank{1}, Streams::out}};
  plan.redirects.some = {{LocalRank{1}, Streams::err}};
  expect(routes_of(plan, LocalRank{0}, 3, kOnePipe), kTee, kTee, false);
  expect(routes_of(plan, LocalRank{1}, 3, kOnePipe), kTee, kFileOnly, false);
  expect(routes_of(plan, LocalRank{2}, 3, kOnePipe), kPass, kPass, true);
  CHECK(wants_files(plan, 3, kOnePipe));

  OutputPlan folder;
  folder.log_dir = "logs";
  expect(routes_of(folder, kZero, 1, kTerminal), kPassAndFile, kPassAndFile, false);
}

SCENARIO("programs get a pseudo-terminal as stdout", "[agent][output]") {
  OutputPlan plan;
  plan.pty = true;
  Route terminal = kPass;
  terminal.pty = true;
  expect(routes_of(plan, kZero, 2, kPipes), terminal, kPass, false);
  THEN("stderr shares it where the two share a target, which keeps their order") {
    expect(routes_of(plan, kZero, 2, kTerminal), terminal, terminal, true);
  }
  THEN("who has a terminal needs none") {
    expect(routes_of(plan, kZero, 1, kTerminal), kInherit, kInherit, false);
  }
  THEN("files are written through one, too") {
    plan.tee.all = Streams::both;
    Route tee = kTee;
    tee.pty = true;
    expect(routes_of(plan, kZero, 2, kTerminal), tee, kTee, false);
  }
}

SCENARIO("a stream that is teed and redirected is teed, as with torchrun", "[agent][output]") {
  OutputPlan plan;
  plan.tee.all = Streams::both;
  plan.redirects.all = Streams::both;
  expect(routes_of(plan, kZero, 2, kPipes), kTee, kTee, false);
}

SCENARIO("--local_ranks_filter takes ranks off the console, not out of their files",
         "[agent][output]") {
  OutputPlan plan;
  plan.console = {LocalRank{0}};
  expect(routes_of(plan, LocalRank{0}, 2, kPipes), kPass, kPass, false);
  expect(routes_of(plan, LocalRank{1}, 2, kPipes), kUnseen, kUnseen, false);
  plan.tee.all = Streams::both;
  expect(routes_of(plan, LocalRank{1}, 2, kPipes), kFileOnly, kFileOnly, false);
}

TEST_CASE("the prefix is a template", "[agent][output]") {
  const PrefixFacts facts{.role = "trainer", .rank = Rank{13}, .local = LocalRank{5}};
  CHECK(render_prefix("[${role_name}${local_rank}]:", facts) == "[trainer5]:");
  CHECK(render_prefix("$rank/${rank} ", facts) == "13/13 ");
  CHECK(render_prefix("$local_rank", facts) == "5");
  CHECK(render_prefix("${nothing} $ $$ ${rank", facts) == "${nothing} $ $$ ${rank");
  CHECK(render_prefix("", facts).empty());
}

TEST_CASE("the width of a prefix is what it takes on a terminal", "[agent][output]") {
  const PrefixFacts facts{
      .role = "\u00e9t\u00e9", .rank = Rank{13}, .local = LocalRank{5}, .color = true};
  CHECK(prefix_width("[${role_name}${rank}]:", facts) == 8);
  CHECK(prefix_width("", facts) == 0);
}

TEST_CASE("a coloured prefix resets at its end", "[agent][output]") {
  const std::string text = render_prefix(
      "[${rank}]:", {.role = "r", .rank = Rank{0}, .local = LocalRank{0}, .color = true});
  CHECK(text == "\x1b[36m[0]:\x1b[0m");
}
