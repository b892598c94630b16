#include "agent/report.hpp"

#include "agent/last_lines.hpp"
#include "agent/report_file.hpp"
#include "agent/report_keys.hpp"
#include "agent/user_messages.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <set>
#include <string>

using namespace acc;
using namespace acc::agent;
using Catch::Contains;
using namespace std::chrono_literals;

namespace {

WorkerRecord worker(std::uint32_t rank, ExitStatus status, Millis ended, bool by_us = false) {
  WorkerRecord record;
  record.local_rank = LocalRank{rank};
  record.rank = Rank{rank};
  record.pid = static_cast<pid_t>(1000 + rank);
  record.status = status;
  record.ended = Instant{} + ended;
  record.asked_to_end = by_us;
  return record;
}

JobReport failed_job() {
  JobReport report;
  report.job_id = "none-abcdefgh";
  report.host = "node-a";
  report.command = {"python3", "-u", "train.py"};
  report.world_size = 3;
  report.outcome = Outcome::failed;
  report.exit_code = 137;
  report.restarts = 2;
  report.restarts_used = 2;
  report.max_restarts = 2;
  report.workers = {worker(0, Exited{1}, Millis{12'100}),
                    worker(1, Signaled{SIGKILL}, Millis{12'000}),
                    worker(2, Signaled{SIGTERM}, Millis{12'300}, true)};
  FailureReport failure;
  failure.worker = report.workers[1];
  failure.cause = "was killed by SIGKILL (9), not by OOM";
  failure.round = 2;
  failure.into_round = Millis{12'000};
  failure.tail = "first\nstep 41\nstep 42\n";
  failure.log_path = "/logs/run/attempt_2/1";
  report.failures = {failure};
  report.failed_rounds = report.failed_attempts = 1;
  return report;
}

}  // namespace

TEST_CASE(
    "the block names the first failing rank, where, why, its last lines, what was done and the "
    "logs",
    "[agent][report]") {
  const std::string text = to_text(failed_job(), false);
  CHECK_THAT(text, Contains("job failed: rank 1 was killed by SIGKILL (9), not by OOM"));
  CHECK_THAT(text, Contains("rank 1 (local rank 1) on node-a, pid 1001"));
  CHECK_THAT(text, Contains("12 s into attempt 2"));
  CHECK_THAT(text, Contains("    | step 42\n"));
  CHECK_THAT(text, Contains("restarted 2 of 2 times"));
  CHECK_THAT(text, Contains("rank 0 exited with code 1, 100 ms later"));
  auto on_two_nodes = failed_job();
  on_two_nodes.workers[0].ended = on_two_nodes.failures.front().worker.ended - Millis{1};
  CHECK_THAT(to_text(on_two_nodes, false), Contains("rank 0 exited with code 1, at the same time"));
  CHECK_THAT(text, Contains("we stopped rank 2"));  // not blamed: we ended it
  CHECK_THAT(text, Contains("/logs/run/attempt_2/1"));
  CHECK_THAT(text, Contains("exit code 137"));
}

TEST_CASE("the worker's own traceback is shown instead of its output", "[agent][report]") {
  auto report = failed_job();
  report.failures[0].error = WorkerError{
      "ValueError: bad", "Traceback (most recent call last):\n  File\nValueError: bad\n"};
  const std::string text = to_text(report, false);
  CHECK_THAT(text, Contains("    | ValueError: bad\n"));
  CHECK_THAT(text, !Contains("step 42"));
}

TEST_CASE("of a traceback that ends with a large tensor the frames are shown, too",
          "[agent][report]") {
  auto report = failed_job();
  std::string traceback = "Traceback (most recent call last):\n  File \"train.py\", line 3\n";
  for (int i = 0; i < 100'000; ++i) traceback += "row " + std::to_string(i) + "\n";
  const auto json = nlohmann::json{
      {"message", {{"message", "ValueError"}, {"extraInfo", {{"py_callstack", traceback}}}}}};
  report.failures[0].error = parse_error_file(json.dump()).value();
  const std::string text = to_text(report, false);
  CHECK_THAT(text, Contains("    |   File \"train.py\", line 3\n    | row 0\n"));
  CHECK_THAT(text, Contains("    | row 17\n    | …\n"));
  CHECK_THAT(text, Contains("    | row 99980\n"));
  CHECK_THAT(text, Contains("    | row 99999\n"));
}

TEST_CASE("the cure for CR LF was missing where env looked for the interpreter",
          "[agent][report]") {
  FailureReport failure;
  failure.worker.status = Exited{127};
  const auto hint = [&](const std::string& tail) {
    failure.tail = tail;
    return UserMessages::start_hint(failure, {"./train.py", false});
  };
  for (const std::string end : {"\\r'", "\\r\u2019", "\r'"})
    CHECK_THAT(hint("/usr/bin/env: 'python3" + end +
                    ": No such file or directory\n/usr/bin/env: "
                    "use -[v]S to pass options in shebang lines\n"),
               Contains("end as on Windows (CR LF)"));
  CHECK(hint("/usr/bin/env: 'python9': No such file or directory\n").empty());
  failure.worker.status = Exited{1};
  CHECK(hint("/usr/bin/env: 'python3\\r': No such file or directory\n").empty());
}

TEST_CASE("with an error file that can't be read the output was lost, too", "[agent][report]") {
  auto report = failed_job();
  report.failures[0].unread_error = "error file: larger than 64 MiB";
  const std::string text = to_text(report, false);
  CHECK_THAT(text, Contains("  error     can't be read (error file: larger than 64 MiB)\n"));
  CHECK_THAT(text, Contains("step 42"));
  const auto json = nlohmann::json::parse(to_json(report));
  CHECK(json["failures"][0]["error"]["message"] == "(not known: error file: larger than 64 MiB)");
  CHECK_FALSE(json["failures"][0]["last_lines"].empty());
}

TEST_CASE("a job that succeeded and lost nothing says nothing", "[agent][report]") {
  JobReport report;
  CHECK(to_text(report, true).empty());
  report.losses = {{"log files", "No space left on device", 100, 3, {}}};
  CHECK_THAT(to_text(report, false),
             Contains("3 lines (100 bytes) for log files: No space left on device"));
}

TEST_CASE("what needs no explanation is one line", "[agent][report]") {
  JobReport report;
  report.outcome = Outcome::stopped;
  report.stop_signal = SIGTERM;
  report.exit_code = 143;
  CHECK(to_text(report, false) == "acc-launch: job stopped by SIGTERM (exit code 143)\n");
}

TEST_CASE("left-over processes are counted in English", "[agent][report]") {
  auto report = failed_job();
  report.left_over = {"sleep (pid 7)"};
  report.left_over_count = 1;
  CHECK_THAT(to_text(report, false), Contains("1 left-over process: sleep (pid 7)"));
  report.left_over.emplace_back("sh (pid 8)");
  report.left_over_count = 2;
  CHECK_THAT(to_text(report, false), Contains("2 left-over processes: sleep (pid 7), sh (pid 8)"));
}

TEST_CASE("a rank that answered our SIGTERM with 0 was stopped by us, it had not finished",
          "[agent][report]") {
  auto report = failed_job();
  report.workers[2].status = Exited{0};
  CHECK_THAT(to_text(report, false), Contains("we stopped rank 2"));
  CHECK_THAT(to_text(report, false), !Contains("had finished"));
}

TEST_CASE("SIGKILL is told apart from running out of memory", "[agent][report]") {
  const ExitStatus killed = Signaled{SIGKILL};
  CHECK(describe_cause(killed, {}) == "was killed by SIGKILL (9)");
  CHECK(describe_cause(killed, {true, 0, {}, {}}) == "was killed by SIGKILL (9), not by OOM");
  CHECK(describe_cause(killed, {true, 1, 64U << 20U, 64U << 20U}) ==
        "was killed by SIGKILL (9): out of memory (limit 64 MiB, peak 64 MiB)");
  CHECK(describe_cause(Exited{7}, {}) == "exited with code 7");
}

TEST_CASE("a kill was told as out of memory because a helper had been, long before",
          "[agent][report]") {
  const ExitStatus killed = Signaled{SIGKILL};
  const auto cause = [&](Millis last_kill) {
    return describe_cause(killed, {true, 1, 64U << 20U, {}, last_kill});
  };
  CHECK(cause(Millis{0}) == "was killed by SIGKILL (9): out of memory (limit 64 MiB)");
  CHECK(cause(Millis{20'000}) == cause(Millis{0}));  // a lot of memory takes a while to be freed
  CHECK(cause(Millis{60'000}) ==
        "was killed by SIGKILL (9), perhaps by OOM: the last such kill was 1 min before");
  CHECK_FALSE(is_out_of_memory({true, 1, {}, {}, Millis{60'000}}));
  CHECK_THAT(describe_cause(killed, {true, 1, {}, {}, Millis{60'000}}, 60s),
             Contains("its processor time"));
}

TEST_CASE("a coloured traceback had no error, no hint and escapes in the report",
          "[agent][report]") {
  auto report = failed_job();
  auto& failure = report.failures.front();
  failure.worker.status = Exited{1};
  std::string tail =
      "Traceback (most recent call last):\n"
      "  File \x1b[35m\"t.py\"\x1b[0m, line \x1b[35m3\x1b[0m, in \x1b[35m<module>\x1b[0m\n"
      "    import torch\n"
      "\x1b[1;35mModuleNotFoundError\x1b[0m: \x1b[35mNo module named 'torch'\x1b[0m\n";
  take_output(failure, tail);
  CHECK_THAT(UserMessages::start_hint(failure, {"/usr/bin/python3", false}),
             Contains("/usr/bin/python3 has no module 'torch'"));
  CHECK_THAT(to_text(report, false),
             Contains("    | ModuleNotFoundError: No module named 'torch'\n"));
  CHECK_THAT(to_text(report, false), !Contains("x1b"));
  for (int i = 0; i < 30; ++i) tail += "\x1b[34m\x1b[1mwandb\x1b[0m: summary\n";
  take_output(failure, tail);
  REQUIRE_FALSE(failure.error_lines.empty());
  CHECK(failure.error_lines.back() == "ModuleNotFoundError: No module named 'torch'");
  CHECK_THAT(to_text(report, false), Contains("output    its last error, and its last lines:\n"));
  CHECK_THAT(to_json(report), !Contains("u001b"));
  take_output(failure, "a\x07\x1b(B\n");  // other characters are shown as they were
  CHECK_THAT(to_text(report, false), Contains("    | a\\x07\\x1b(B\n"));
}

TEST_CASE("an exception that was caught 300 steps before was told as the last error",
          "[agent][report]") {
  auto report = failed_job();
  auto& failure = report.failures.front();
  const std::string raised = "Traceback (most recent call last):\n  File \"t.py\", line 3, in f\n";
  struct Row {
    ExitStatus end;
    std::string error;
    std::string behind;
    int count;
    std::string words;
  };
  const std::string last = "output    its last error, and its last lines:\n";
  const std::vector<Row> rows{
      {Exited{3}, raised + "ImportError: x\n", "step", 300,
       "output    an earlier error, 300 lines before its end, and its last lines:\n"},
      {Signaled{SIGKILL}, raised + "ImportError: x\n", "step", 30,
       "output    an earlier error, 30 lines before its end, and its last lines:\n"},
      {Signaled{SIGABRT}, "terminate called after throwing an instance of 'E'\n  what():  x\n",
       "frame #1", 60, last},
      {Signaled{SIGSEGV}, raised + "ImportError: x\nFatal Python error: Segmentation fault\n",
       "  File \"t.py\", line 4", 60, last},
      {Exited{1}, raised + "KeyError: 'x'\n", "INFO saved artifact", 30, last},
      {Exited{1}, raised + "KeyError: 'x'\n", "wandb: summary", 60, last},
      {Exited{1}, raised + "RuntimeError: Error(s) in loading state_dict:\n", "\tsize mismatch",
       150, last},
  };
  for (const auto& row : rows) {
    failure.worker.status = row.end;
    auto tail = row.error;
    for (int i = 0; i < row.count; ++i) tail += row.behind + "\n";
    INFO(tail);
    take_output(failure, tail);
    CHECK_THAT(to_text(report, false), Contains(row.words));
    const auto json = nlohmann::json::parse(to_json(report))["first_failure"];
    CHECK(json["error_age"] == (row.words == last ? 0 : row.count));
    CHECK_FALSE(json["error_lines"].empty());
  }
  take_output(failure, "step 1\n");
  CHECK(failure.error_age == 0);
}

TEST_CASE("a worker killed at its hard limit of processor time isn't just killed by SIGKILL",
          "[agent][report]") {
  const ExitStatus killed = Signaled{SIGKILL};
  CHECK(describe_cause(killed, {true, 0, {}, {}}, 60s) ==
        "was killed by SIGKILL (9): its processor time reached the limit of 60 s (ulimit -t)");
  CHECK(describe_cause(Signaled{SIGXCPU}, {}, 1s) ==
        "was killed by SIGXCPU (24): its processor time reached the limit of 1 s (ulimit -t)");
  CHECK_THAT(describe_cause(killed, {true, 1, {}, {}}, 60s), Contains("out of memory"));
}

TEST_CASE("a start failure says what to do", "[agent][report]") {
  CHECK_THAT(describe_start_failure({LocalRank{0}, ENOENT, "exec"}, "nope", ""),
             Contains("cannot start 'nope': No such file or directory on PATH"));
  CHECK_THAT(describe_start_failure({LocalRank{0}, EACCES, "exec"}, "./x", ""),
             Contains("chmod +x"));
  CHECK_THAT(describe_start_failure({LocalRank{3}, EAGAIN, "clone"}, "./x", ""),
             Contains("ulimit -u"));
}

TEST_CASE("last lines show a progress bar's last state, and control characters as text",
          "[agent][report]") {
  CHECK(last_lines("a\nb\nc\n", 2) == std::vector<std::string>{"b", "c"});
  CHECK(last_lines("10%\r20%\r30%", 5) == std::vector<std::string>{"30%"});
  CHECK(last_lines("\x1b[31mred\x1b[0m\n", 5) == std::vector<std::string>{R"(\x1b[31mred\x1b[0m)"});
  // CSI and the mark that turns the text around, as UTF-8; letters and dots stay.
  CHECK(last_lines("A\xe2\x80\xae B \xc2\x9b"
                   "31m C\xe2\x80\xa9\n",
                   5) == std::vector<std::string>{R"(A\u202e B \u009b31m C\u2029)"});
  CHECK(last_lines("caf\xc3\xa9 \xe2\x80\xa6", 5) ==
        std::vector<std::string>{"caf\xc3\xa9 \xe2\x80\xa6"});
  CHECK(last_lines("no newline", 5) == std::vector<std::string>{"no newline"});
  CHECK(last_lines("dos\r\nline\r\n", 5) == std::vector<std::string>{"dos", "line"});
  CHECK(last_lines("", 5).empty());
  CHECK(last_lines("\n\n\n", 5).empty());
  CHECK(last_lines(std::string(1000, 'x'), 1, 10).front() == "xxxxx…xxxxx");
  const std::string message = "of a long line the end wasn't quoted";
  const auto line = last_lines(std::string(60'000, '0') + message + "\n", 1).front();
  CHECK(line.starts_with("0000"));
  CHECK(line.ends_with("0" + message));
  CHECK(last_lines(line, 1).front() == line);  // also on another node
}

TEST_CASE("a worker that puts ESC between the halves of CSI doesn't clear the reader's terminal",
          "[agent][report]") {
  const auto lines = last_lines(
      "\xc2\x1b\x9b"
      "31m \x9b"
      "2J\n",
      1);
  CHECK(lines.front() ==
        "\xEF\xBF\xBD\\x1b\xEF\xBF\xBD"
        "31m \xEF\xBF\xBD"
        "2J");
  CHECK(last_lines("ab\xc3\xa9", 1, 2).front() == "a…");
  CHECK(last_lines("ab\xc3\xa9", 1, 3).front() == "a…\xc3\xa9");
}

TEST_CASE("the JSON report is whole and valid for any bytes", "[agent][report]") {
  auto report = failed_job();
  report.failures[0].tail = "\xff\xfe bad utf-8\n";
  const auto json = nlohmann::json::parse(to_json(report));
  CHECK(json["first_failure"]["rank"] == 1);
  CHECK(json["first_failure"]["exit"]["signal"] == "SIGKILL");
  CHECK(json["first_failure"]["host"] == "node-a");
  CHECK(json["exit_code"] == 137);
  CHECK(json["workers"][2]["stopped_by_us"] == true);
  CHECK(json["stop_signal"].is_null());
}

TEST_CASE("what other nodes lost can be added to a report that was written", "[agent][report]") {
  auto report = failed_job();
  report.losses = {{"stdout", "No space left on device", 120, 9}};
  const auto text = to_json(report);
  const auto here = losses_in(text);
  REQUIRE(here.size() == 1);
  CHECK(here[0].where == "stdout");
  CHECK(here[0].lines == 9);
  const auto more = with_losses(text, {{"b: stderr", "Input/output error", 20, 2}});
  REQUIRE(more);
  const auto json = nlohmann::json::parse(*more);
  REQUIRE(json["losses"].size() == 2);
  CHECK(json["losses"][1]["where"] == "b: stderr");
  CHECK(json["losses"][1]["bytes"] == 20);
  report.losses.push_back({"b: stderr", "Input/output error", 20, 2});
  CHECK(*more == to_json(report));
  for (const std::string foreign : {"", "{", "[]", R"({"verdict": "running"})", R"({"losses": 1})",
                                    R"({"losses": [7, {"where": 1}]})"}) {
    CHECK(losses_in(foreign).empty());
    CHECK_FALSE(with_losses(foreign.substr(0, 25), {}));
  }
}

namespace {

/// Rank 5 failed on another host.
JobReport failed_elsewhere() {
  JobReport report = failed_job();
  report.failures.clear();
  report.failed_rounds = 0;
  report.workers = {worker(0, Signaled{SIGTERM}, Millis{12'300}, true),
                    worker(1, Signaled{SIGTERM}, Millis{12'300}, true)};
  FailureElsewhere there;
  there.node = "node-b@4026531840";
  there.host = "node-b";
  auto& failure = there.failure;
  failure.worker.rank = Rank{5};
  failure.worker.local_rank = LocalRank{1};  // as one of ours
  failure.worker.pid = 4711;
  failure.worker.status = Signaled{SIGSEGV};
  failure.worker.ended = Instant{} + Millis{12'000};
  failure.cause = "was killed by SIGSEGV (11)";
  failure.round = 2;
  failure.into_round = Millis{12'000};
  failure.when = std::chrono::system_clock::time_point{std::chrono::hours{24}};
  failure.tail = "step 41\nstep 42";
  failure.log_path = "/logs/run/attempt_2/1";
  failure.stacks_path = "/logs/run/stacks-1.txt";
  report.elsewhere = there;
  return report;
}

}  // namespace

TEST_CASE("a failure on another node is told as one here", "[agent][report]") {
  auto report = failed_elsewhere();
  const std::string text = to_text(report, false);
  CHECK_THAT(text, Contains("job failed: rank 5 on node-b was killed by SIGSEGV (11)\n"));
  CHECK_THAT(text, Contains("who       rank 5 (local rank 1) on node-b, pid 4711\n"));
  CHECK_THAT(text, Contains("when      1970-01-02 00:00:00 UTC, 12 s into attempt 2\n"));
  CHECK_THAT(text, Contains("output    its last 2 lines:\n    | step 41\n    | step 42\n"));
  CHECK_THAT(text, Contains("stacks    /logs/run/stacks-1.txt (there)\n"));
  CHECK_THAT(text, Contains("its log   /logs/run/attempt_2/1 (there)\n"));
  CHECK_THAT(text, Contains("others    we stopped rank 0, 1 (here)\n"));
  report.elsewhere->failure.error = WorkerError{"ValueError: x", "Traceback:\n  line 7"};
  CHECK_THAT(to_text(report, false), Contains("error     as the worker wrote it:\n    | Trace"));
  report.elsewhere->node = "node-a-1";
  report.elsewhere->host = "node-a";  // two nodes on one host
  CHECK_THAT(to_text(report, false), Contains("rank 5 on node-a-1 was killed"));
}

TEST_CASE("a node with a name of its own was named by its host in some lines", "[agent][report]") {
  auto report = failed_elsewhere();
  report.elsewhere->node = "h2";
  CHECK_THAT(to_text(report, false), Contains("job failed: rank 5 on h2 was killed by SIGSEGV"));
  CHECK_THAT(to_text(report, false), Contains("who       rank 5 (local rank 1) on h2, pid 4711\n"));
  auto own = failed_job();
  own.node_name = "h1";
  CHECK_THAT(to_text(own, false), Contains(" on h1, pid "));
}

TEST_CASE("a failure on another node after which nothing restarts was one line",
          "[agent][report]") {
  auto report = failed_elsewhere();
  report.outcome = GENERATE(Outcome::never_retry, Outcome::no_progress, Outcome::nodes_missing);
  report.reason = "nodes are missing";
  report.elsewhere->failure.no_restart = "loss is NaN at step 42";
  const std::string text = to_text(report, false);
  CHECK_THAT(text, Contains("rank 5 on node-b was killed by SIGSEGV (11)\n"));
  CHECK_THAT(text, Contains("it said   a restart won't help: loss is NaN at step 42\n"));
  CHECK_THAT(text, Contains("output    its last 2 lines:\n    | step 41\n    | step 42\n"));
  CHECK_THAT(text, Contains("its log   /logs/run/attempt_2/1 (there)\n"));
  CHECK_THAT(text, Contains("done      restarted "));
  const auto json = nlohmann::json::parse(to_json(report));
  CHECK(json["first_failure"]["no_restart"] == "loss is NaN at step 42");
}

TEST_CASE("ranks of another node that had finished too early were named in its report alone",
          "[agent][report]") {
  const std::string words = "others    had finished: rank 4 on b; ranks 6-8 on c\n";
  for (auto report : {failed_job(), failed_elsewhere()}) {
    CHECK(nlohmann::json::parse(to_json(report))["finished_elsewhere"].empty());
    report.finished_elsewhere = {"rank 4 on b", "ranks 6-8 on c"};
    CHECK_THAT(to_text(report, false), Contains(words));
    CHECK(nlohmann::json::parse(to_json(report))["finished_elsewhere"][1] == "ranks 6-8 on c");
    report.finished_elsewhere.resize(64, "rank 9 on d");
    CHECK_THAT(to_text(report, false), Contains("; and on 56 other nodes\n"));
  }
}

TEST_CASE("a hang on another node has its last output and no exit status", "[agent][report]") {
  auto report = failed_elsewhere();
  report.elsewhere->failure.worker.status.reset();
  report.elsewhere->failure.cause = "hung: no heartbeat for 10 s after step 41";
  CHECK_THAT(to_text(report, false), Contains("output    its last 2 lines:\n    | step 41\n"));
  CHECK(nlohmann::json::parse(to_json(report))["first_failure"]["exit"].is_null());
}

TEST_CASE("restarts that were asked for read as a budget that healthy times refilled",
          "[agent][report]") {
  auto report = failed_job();
  report.restarts = 5;
  CHECK_THAT(to_text(report, false), Contains("restarted 2 of 2 times, 5 in all (those that were "
                                              "asked for, or that healthy times gave back"));
  const auto json = nlohmann::json::parse(to_json(report));
  CHECK(json["restarts"] == 5);
  CHECK(json["restarts_used"] == 2);
  CHECK(json["max_restarts"] == 2);
}

TEST_CASE("the report of a worker that read its standard input in vain had no hint",
          "[agent][report]") {
  auto report = failed_job();
  report.failures.front().hint = UserMessages::input_hint(report.failures.front());
  CHECK_THAT(to_text(report, false), !Contains("hint"));
  report.failures.front().tail = "name? Traceback\nEOFError: EOF when reading a line\n";
  report.failures.front().hint = UserMessages::input_hint(report.failures.front());
  CHECK_THAT(to_text(report, false),
             Contains("hint      rank 1 wanted to read its standard input, which is /dev/null with "
                      "several workers: --stdin 1 gives it ours\n"));
}

TEST_CASE(
    "a data loader's process that the kernel had killed for its memory was told by torch alone",
    "[agent][report]") {
  auto failure = failed_job().failures.front();
  CHECK(UserMessages::memory_hint(failure, 2).empty());  // killed itself, as its cause says
  failure.worker.status = Exited{1};
  CHECK(UserMessages::memory_hint(failure, 0).empty());
  CHECK_THAT(UserMessages::memory_hint(failure, 1), Contains("ended 1 process of the"));
  CHECK_THAT(UserMessages::memory_hint(failure, 2), Contains("OOM killer ended 2 processes of"));
  failure.worker.status.reset();  // it hung: multiprocessing.Pool waits for the killed one
  CHECK_THAT(UserMessages::memory_hint(failure, 1), Contains("ended 1 process of the"));
}

TEST_CASE("what a pool or subprocess says of a process that was killed", "[agent][report]") {
  auto failure = failed_job().failures.front();
  CHECK_FALSE(UserMessages::names_killed_process(failure));
  for (const std::string words :
       {"RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed. ",
        "subprocess.CalledProcessError: Command 'tar' died with <Signals.SIGKILL: 9>.",
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was "
        "terminated abruptly while the future was running or pending.",
        "RuntimeError: One of the subprocesses has abruptly died during map operation."}) {
    failure.tail = words + "\n";
    CHECK(UserMessages::names_killed_process(failure));
  }
}

TEST_CASE("a missing module wasn't told where an exit handler wrote behind the exception",
          "[agent][report]") {
  auto failure = failed_job().failures.front();
  failure.worker.status = Exited{1};
  failure.tail = "[rank1]: ModuleNotFoundError: No module named 'torch'\nwandb: summary loss 0.3\n";
  CHECK_THAT(UserMessages::start_hint(failure, {"/usr/bin/python3", false}),
             Contains("has no module 'torch'"));
  failure.worker.status = Exited{3};  // by itself, later
  CHECK(UserMessages::start_hint(failure, {"/usr/bin/python3", false}).empty());
}

TEST_CASE("a module that a library does without was named as the cause an hour later",
          "[agent][report]") {
  auto failure = failed_job().failures.front();
  failure.worker.status = Exited{1};
  const std::string caught =
      "Traceback (most recent call last):\n  File \"xformers/__init__.py\", line 57, in f\n"
      "    import triton\nModuleNotFoundError: No module named 'triton'\n";
  const auto hint = [&](const std::string& behind) {
    failure.tail = caught + behind;
    return UserMessages::start_hint(failure, {"/usr/bin/python3", false});
  };
  CHECK(hint("step 1 loss 0.3\nno data\n").empty());
  CHECK(hint("  0%|  | 0/10 [00:00<?]\r 10%|# | 1/10\nno data\n").empty());
  std::string summary;
  for (int i = 0; i < 60; ++i) summary += "wandb: summary\n";
  CHECK(hint(summary).empty());
  CHECK_THAT(hint("wandb: Run summary:\nwandb: loss 0.3\n"), Contains("has no module 'triton'"));
  CHECK_THAT(hint("wandb: loss 0.3\n"), Contains("it wrote"));
  CHECK_THAT(hint(""), !Contains("it wrote"));
}

TEST_CASE("the hint for a missing module on another node didn't say where", "[agent][report]") {
  auto failure = failed_job().failures.front();
  failure.tail = "ModuleNotFoundError: No module named 'torch'\n";
  CHECK_THAT(UserMessages::start_hint(failure, {"/usr/bin/python3", false, "node7"}),
             Contains("/usr/bin/python3 on node7 has no module 'torch'"));
}

TEST_CASE("the hint for a lack of memory on another node says where", "[agent][report]") {
  auto failure = failed_job().failures.front();
  failure.worker.status = Exited{1};
  CHECK_THAT(UserMessages::memory_hint(failure, 1, "node7"),
             Contains("of the cgroup that this job is in on node7: fewer data loader workers"));
}

TEST_CASE("the error in front of another node's lines was told as one of its last lines",
          "[agent][report]") {
  auto report = failed_elsewhere();
  auto& failure = report.elsewhere->failure;
  failure.error_lines = {"KeyError: 'x'"};
  CHECK_THAT(
      to_text(report, false),
      Contains("output    its last error, and its last lines:\n    | KeyError: 'x'\n    | …\n"
               "    | step 41\n"));
  CHECK(nlohmann::json::parse(to_json(report))["first_failure"]["error_lines"].size() == 1);
}

TEST_CASE("the probable cause of a lost connection stood in another rank's log alone",
          "[agent][report]") {
  for (auto report : {failed_job(), failed_elsewhere()}) {
    const auto of_first = [&] {
      return nlohmann::json::parse(to_json(report))["first_failure"]["other_errors"];
    };
    CHECK(of_first().empty());
    auto& first = report.elsewhere ? report.elsewhere->failure : report.failures.back();
    first.other_errors = {"rank 2 had written: KeyError: 'label'"};
    CHECK_THAT(to_text(report, false), Contains("others    rank 2 had written: KeyError: 'label'"));
    CHECK(of_first() == first.other_errors);
  }
}

TEST_CASE("a script that doesn't find torch is told which Python ran it", "[agent][report]") {
  auto failure = failed_job().failures.front();
  const auto hint = [&](const std::string& program) {
    return UserMessages::start_hint(failure, {program, false});
  };
  CHECK(hint("/usr/bin/python3").empty());
  failure.tail = "Traceback …\nModuleNotFoundError: No module named 'torch'\n";
  CHECK(hint("/usr/local/bin/python3") ==
        "/usr/local/bin/python3 has no module 'torch': install it there, or run the script with "
        "another Python (PYTHON_EXEC names it)");
  failure.tail = "ModuleNotFoundError: No module named 'acc_heartbeat'\n";
  CHECK(hint("/usr/bin/python3") ==
        "/usr/bin/python3 has no module 'acc_heartbeat': it is a file of acc-launch, "
        "share/acc/python/acc_heartbeat.py beside its folder bin. With acc-launch in /usr/bin: "
        "PYTHONPATH=/usr/share/acc/python (with --hosts: --env PYTHONPATH=/usr/share/acc/python)");
  failure.tail = "ModuleNotFoundError: No module named 'yaml.nodes'; 'yaml' is not a package";
  CHECK(hint("/opt/py/bin/python3.12").empty());  // a yaml there is
  failure.tail = "ModuleNotFoundError: No module named 'torch.distributed.foo'";
  CHECK(hint("/usr/bin/python3").empty());
  failure.tail = "ModuleNotFoundError: No module named 'flash_attn'\nValueError: x\n";
  CHECK(hint("/usr/bin/python3").empty());  // it was caught
  failure.tail = "ModuleNotFoundError: No module named 'torch'\n";
  CHECK(hint("/home/ann/train.sh").empty());
  failure.tail.clear();
  failure.error = WorkerError{"ModuleNotFoundError: No module named 'torch'", ""};
  CHECK_THAT(hint("/usr/bin/python3"), Contains("has no module 'torch'"));
}

TEST_CASE("a port of the script's own that was taken was said to be MASTER_PORT",
          "[agent][report]") {
  auto failure = failed_job().failures.front();
  const auto hint = [&] {
    return UserMessages::start_hint(failure, {"python3", false, {}, 29600});
  };
  const std::string begin =
      "RuntimeError: The server socket has failed to listen on any local network address. ";
  failure.tail = begin +
                 "The server socket has failed to bind to [::]:23456 (errno: 98 - Address "
                 "already in use). The server socket has failed to bind to ?UNKNOWN? "
                 "(errno: 98 - Address already in use).\n";
  CHECK_THAT(hint(), Contains("port 23456 is the script's own choice, and taken"));
  failure.tail = begin + "port: 23456, useIpv6: false, code: -98, name: EADDRINUSE\n";
  CHECK_THAT(hint(), Contains("port 23456 is the script's own choice, and taken"));
  failure.tail = begin + "port: 29600, useIpv6: false, code: -98, name: EADDRINUSE\n";
  CHECK_THAT(hint(), Contains("MASTER_PORT is taken"));
  failure.tail = begin + "\n";
  CHECK_THAT(hint(), Contains("MASTER_PORT is taken"));
}

TEST_CASE("a script that wants a rank is told how to get one", "[agent][report]") {
  auto failure = failed_job().failures.front();
  for (const std::string error :
       {"ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
        "variable RANK expected, but not set",
        "KeyError: 'LOCAL_RANK'"}) {
    failure.tail = "Traceback …\n" + error + "\n";
    CHECK(UserMessages::start_hint(failure, {"/usr/bin/python3", false}).empty());  // it has one
    CHECK_THAT(UserMessages::start_hint(failure, {"/usr/bin/python3", true}),
               Catch::StartsWith("one plain process was started") &&
                   Contains("--nproc_per_node N, in front of the script, starts N workers"));
  }
  failure.tail = "KeyError: 'lr'";
  CHECK(UserMessages::start_hint(failure, {"/usr/bin/python3", true}).empty());
}

TEST_CASE("an error whose words don't name the cure is told with it", "[agent][report]") {
  auto failure = failed_job().failures.front();
  const auto hint = [&](const std::string& tail) {
    failure.tail = tail;
    return UserMessages::start_hint(failure, {"/usr/bin/python3", false, {}, 29500});
  };
  // As PyTorch 1.13 to 2.9 and argparse write them; some go on behind the line that matters.
  CHECK_THAT(hint("train.py: error: the following arguments are required: --local_rank\n"),
             Contains("read int(os.environ['LOCAL_RANK'])"));
  CHECK_THAT(hint("t.py: error: the following arguments are required: --local-rank/--local_rank\n"),
             Contains("read int(os.environ['LOCAL_RANK'])"));
  CHECK_THAT(hint("RuntimeError: CUDA error: invalid device ordinal\nCUDA kernel errors might be "
                  "asynchronously reported at some other API call\n"),
             Contains("--nproc_per_node gpu"));
  CHECK_THAT(
      hint("ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
           "Last error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000\n"),
      Contains("set_device"));
  CHECK_THAT(hint("ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!\n"),
             Contains("'gloo'"));
  CHECK_THAT(hint("RuntimeError: The server socket has failed to listen on any local network "
                  "address. The server socket has failed to bind to [::]:29500 (errno: 98 - "
                  "Address already in use).\n"),
             Contains("MASTER_PORT"));
  CHECK(hint("ValueError: --local_rank is bad\n").empty());
}

TEST_CASE("input and GPUs were advised of for errors that had been caught", "[agent][report]") {
  auto failure = failed_job().failures.front();
  failure.worker.status = Exited{1};
  const std::string raised =
      "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n";
  failure.tail = "dataset: caught EOFError: EOF when reading a line, shard skipped\nstep 1\n" +
                 raised + "ValueError: loss is nan\n";
  CHECK(UserMessages::input_hint(failure).empty());
  failure.tail = raised + "EOFError: EOF when reading a line\nwandb: bye\n";
  CHECK_THAT(UserMessages::input_hint(failure), Contains("--stdin"));
  const auto hint = [&](const std::string& tail) {
    failure.tail = tail;
    return UserMessages::start_hint(failure, {"/usr/bin/python3", false});
  };
  const std::string ordinal = "CUDA error: invalid device ordinal";
  CHECK(hint("probing GPU 8: " + ordinal + " (ignored)\n" + raised + "ValueError: nan\n").empty());
  CHECK(hint(raised + "RuntimeError: " + ordinal + "\nskipped\n" + raised + "ValueError: nan\n")
            .empty());
  const auto advice = Contains("--nproc_per_node gpu");
  CHECK_THAT(hint(raised + "RuntimeError: " + ordinal +
                  "\n\nThe above exception was the direct cause of the following exception:\n\n" +
                  raised + "OSError: no GPU\n"),
             advice);
  CHECK_THAT(hint(raised + "RuntimeError: " + ordinal +
                  "\nCompile with TORCH_USE_CUDA_DSA\nterminate called after throwing an instance "
                  "of 'E'\n  what():  x\n"),
             advice);
  CHECK_THAT(hint("step 1\n" + ordinal + "\n"), advice);  // of a program that isn't Python's
}

TEST_CASE("the block of another node lacked the failures before", "[agent][report]") {
  auto report = failed_elsewhere();
  report.restarts = 2;
  report.restarted_after = "rank 1 exited with code 7";
  const auto before =
      Contains("before    2 restarts; the last after: rank 1 exited with code 7\n");
  CHECK_THAT(to_text(report, false), before);
  report.elsewhere->is_node = true;
  CHECK_THAT(to_text(report, false), before);
  report.restarts = 0;
  CHECK_THAT(to_text(report, false), !Contains("before"));
  auto here = failed_job();  // of three failures one was on this node
  here.failed_rounds = 1;
  here.restarts = 2;
  here.restarted_after = report.restarted_after;
  CHECK_THAT(to_text(here, false), before);
}

TEST_CASE("another rank than the one of the restart was told as the first to fail",
          "[agent][report]") {
  auto here = failed_job();  // the first time a rank here failed a moment after the coordinator's
  here.failures.push_back(here.failures.front());
  here.failed_rounds = here.failed_attempts = 2;
  here.restarts = 1;
  CHECK_THAT(to_text(here, false), Contains("before    1 earlier failure; the first: rank 1 was"));
  here.restarted_after = "rank 3 on node2 exited with code 1";
  CHECK_THAT(to_text(here, false),
             Contains("before    1 restart; the last after: rank 3 on node2 exited with code 1\n"));
}

TEST_CASE("the JSON of a failure has the same keys wherever it was", "[agent][report]") {
  using nlohmann::json;
  const auto keys = [](const json& object) {
    std::vector<std::string> names;
    for (const auto& [name, value] : object.items()) names.push_back(name);
    return names;
  };
  const auto here = json::parse(to_json(failed_job()))["first_failure"];
  auto report = failed_elsewhere();
  const auto there = json::parse(to_json(report))["first_failure"];
  CHECK(keys(here) == keys(there));
  CHECK(there["last_lines"] == json{"step 41", "step 42"});
  CHECK(there["exit"]["signal"] == "SIGSEGV");
  CHECK(there["pid"] == 4711);
  CHECK(there["host"] == "node-b");
  CHECK(there["node_lost"] == false);
  CHECK(there["time"] == "1970-01-02T00:00:00.000Z");
  report.elsewhere->is_node = true;
  report.elsewhere->failure.worker.pid = 0;
  report.elsewhere->failure.worker.status.reset();
  const auto lost = json::parse(to_json(report))["first_failure"];
  CHECK(keys(here) == keys(lost));
  CHECK(lost["node_lost"] == true);
  CHECK(lost["pid"].is_null());
  CHECK(lost["exit"].is_null());
}

TEST_CASE("a lost node's block has no worker in it", "[agent][report]") {
  auto report = failed_elsewhere();
  report.elsewhere->is_node = true;
  report.elsewhere->node = "node b (node rank 1)";
  auto& failure = report.elsewhere->failure;
  failure.worker.status.reset();
  failure.worker.pid = 0;
  failure.cause = "lost: no traffic for 5 s";
  failure.tail.clear();
  failure.log_path.clear();
  const std::string text = to_text(report, false);
  CHECK_THAT(text, Contains("job failed: node b (node rank 1) lost: no traffic for 5 s\n"));
  CHECK_THAT(text, Contains("12 s into attempt 2"));
  CHECK_THAT(text, !Contains("who ") && !Contains("pid") && !Contains("output"));
}

TEST_CASE("a success whose report could not be written isn't called one", "[agent][report]") {
  JobReport report;
  report.host = "node-a";
  report.is_unwritten = true;
  report.exit_code = 73;
  CHECK_THAT(to_text(report, false), Contains("all workers succeeded, but the report could not be "
                                              "written (exit code 73)"));
  Losses loss;
  loss.where = "the console";
  loss.why = "it takes output too slowly";
  loss.lines = 1;
  loss.bytes = 7;
  report.losses = {loss};
  const std::string text = to_text(report, false);
  CHECK_THAT(text, Contains("but the report could not be written"));
  CHECK_THAT(text, Contains("lost      1 line (7 bytes) for the console"));
  CHECK_THAT(text, Contains("exit code 73"));
}

namespace {

using Keys = std::set<std::string>;

Keys documented(std::initializer_list<std::string_view> places) {
  Keys keys;
  for (const auto& key : kReportKeys) {
    for (const auto place : places) {
      if (key.place == place) keys.emplace(key.name);
    }
  }
  return keys;
}

Keys keys_of(const nlohmann::json& object) {
  Keys keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

}  // namespace

TEST_CASE("the report's JSON has the keys that are documented, and no others", "[agent][report]") {
  auto report = failed_job();
  report.failures.front().error = WorkerError{"message", "traceback"};
  report.losses.push_back({"stdout", "nobody reads it", 10, 1, {}});
  const auto json = nlohmann::json::parse(to_json(report));
  CHECK(keys_of(json) == documented({""}));
  CHECK(json["format"] == kReportFormat);
  CHECK(keys_of(json["workers"][0]) == documented({"worker"}));
  CHECK(keys_of(json["first_failure"]) == documented({"worker", "failure"}));
  CHECK(keys_of(json["failures"][0]) == documented({"worker", "failure"}));
  CHECK(keys_of(json["failures"][0]["error"]) == documented({"error"}));
  CHECK(keys_of(json["losses"][0]) == documented({"loss"}));
  auto exit = keys_of(json["workers"][0]["exit"]);
  exit.merge(keys_of(json["workers"][1]["exit"]));
  CHECK(exit == documented({"exit"}));
}

TEST_CASE("a short report is JSON with keys of the long one, whatever its words",
          "[agent][report]") {
  const auto json =
      nlohmann::json::parse(to_json({"not_started", 2, "bad \"flag\"\n\x01\xff", 71}));
  CHECK(json["format"] == kReportFormat);
  CHECK(json["verdict"] == "not_started");
  CHECK(json["exit_code"] == 2);
  CHECK(json["pid"] == 71);
  const auto all = documented({""});
  for (const auto& key : keys_of(json)) CHECK(all.contains(key));
  CHECK(nlohmann::json::parse(to_json({"running", 0, "", 71}))["exit_code"].is_null());
}

TEST_CASE("a worker's time counts from its own start", "[agent][report]") {
  auto report = failed_job();
  report.workers[0].started = Instant{} + Millis{12'000};
  const auto json = nlohmann::json::parse(to_json(report));
  CHECK(json["workers"][0]["seconds"] == 0.1);
  CHECK(json["workers"][1]["seconds"].is_null());  // started on another machine, or not at all
}
