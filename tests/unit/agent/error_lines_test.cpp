#include "agent/error_lines.hpp"

#include "agent/last_lines.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using acc::agent::abort_words;
using acc::agent::error_lines_before;
using acc::agent::last_error_line;
using acc::agent::names_missing_peer;
using acc::agent::own_error;
using Lines = std::vector<std::string>;

namespace {

std::string many(const std::string& line, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += line + std::to_string(i) + '\n';
  return text;
}

const std::string kRaised =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 9, in <module>\n"
    "    main()\n"
    "  File \"train.py\", line 5, in main\n"
    "    raise RuntimeError(\"two devices\")\n";

}  // namespace

TEST_CASE("which line of what a worker wrote names its error", "[agent][report]") {
  struct Row {
    std::string text;
    std::string line;
  };
  const std::vector<Row> rows{
      {"", ""},
      {"step 1\nstep 2\n", ""},
      {kRaised + "RuntimeError: two devices\n", "RuntimeError: two devices"},
      {kRaised + "RuntimeError: two devices\nwandb: summary loss 0.1\n",
       "RuntimeError: two devices"},
      {kRaised + "MyOwnFault: of any name\nbye\n", "MyOwnFault: of any name"},
      {kRaised + "KeyError: 0\nbye\n", "KeyError: 0"},
      {kRaised + "KeyboardInterrupt\nbye\n", "KeyboardInterrupt"},
      {"torch.cuda.OutOfMemoryError: CUDA out of memory.\nbye\n",
       "torch.cuda.OutOfMemoryError: CUDA out of memory."},
      // torch 2.4 puts the rank before each line of a traceback, torchrun the role.
      {"[rank3]: Traceback (most recent call last):\n[rank3]:   File \"a.py\", line 1, in f\n"
       "[rank3]: Fault: x\n",
       "Fault: x"},
      {"[default0]:ValueError: x\n", "ValueError: x"},
      {"Training:  87%|####| 350/400\rValueError: x\r\nbye", "ValueError: x"},
      {"terminate called after throwing an instance of 'std::bad_alloc'\n"
       "  what():  std::bad_alloc\nframe #0: f\n",
       "  what():  std::bad_alloc"},
      {"FATAL: no database\n", "FATAL: no database"},
      {"thread 'main' panicked at 'no', src/main.rs:2:5\nnote: run with RUST_BACKTRACE\n",
       "thread 'main' panicked at 'no', src/main.rs:2:5"},
      {"x: y.c:3: f: Assertion `n > 0' failed.\n", "x: y.c:3: f: Assertion `n > 0' failed."},
      {"  | ExceptionGroup: several (2 sub-exceptions)\n",
       "  | ExceptionGroup: several (2 sub-exceptions)"},
      // Logs, figures and warnings are no errors.
      {"ValidationError: 0.031\nTestError: 12 %\n", ""},
      {"ValueError: 0.12, acc: 0.9\nError: 0.3 | lr 1e-4\n", ""},
      {"L2Error: nan\nL1Error: inf at step 3\nDevError: -0.5 (best 0.4)\n", ""},
      {"MeanSquaredError: tensor(0.059)\nTestError: np.float32(0.1)\nL1Error: Array(0.2)\n", ""},
      {"DevError: [0.1, 0.2]\nDevError: [tensor(0.1)]\nDevError: (-0.1, nan)\n", ""},
      {"KeyError: 12\nbye\n", "KeyError: 12"},
      {"KeyError: (0, 1)\nbye\n", "KeyError: (0, 1)"},
      {"RuntimeError: [../gloo/pair.cc:589] Connection closed by peer [127.0.0.1]:4\nbye\n",
       "RuntimeError: [../gloo/pair.cc:589] Connection closed by peer [127.0.0.1]:4"},
      {"OSError: [Errno 28] No space left\nbye\n", "OSError: [Errno 28] No space left"},
      {"RuntimeError: [3] is not a shape\nbye\n", "RuntimeError: [3] is not a shape"},
      {kRaised + "ValueError: tensor(0.1)\nbye\n", "ValueError: tensor(0.1)"},
      {"RuntimeError: information is missing\n", "RuntimeError: information is missing"},
      {"INFO:root:cleanup\nERROR:root:saving failed\n", ""},
      {"/x.py:3: UserWarning: an Exception may follow\n  warnings.warn(x)\n", ""},
      {"the Error: x\n[Errno 2] x\n", ""},
  };
  for (const auto& row : rows) {
    INFO(row.text);
    CHECK(last_error_line(row.text) == row.line);
  }
}

TEST_CASE("a run summary at exit pushed the exception out of the report", "[agent][report]") {
  const auto text = kRaised + "RuntimeError: two devices\n" + many("wandb: summary ", 24);
  const Lines found{"Traceback (most recent call last):", "  …",
                    "  File \"train.py\", line 5, in main",
                    "    raise RuntimeError(\"two devices\")", "RuntimeError: two devices"};
  CHECK(error_lines_before(text, 20) == found);
  CHECK(error_lines_before(text, 25).empty());  // the last lines say it
  CHECK(error_lines_before(many("step ", 30), 20).empty());
  // As another node reads what this one sent it.
  std::string sent;
  for (const auto& line : found) sent += line + '\n';
  CHECK(error_lines_before(sent + "…\n" + many("wandb: summary ", 24), 20) == found);
}

TEST_CASE("a full disk was 20 lines of frames", "[agent][report]") {
  const auto text =
      "rank 0 up\nTraceback (most recent call last):\n  File \"serialization.py\", line 423, in "
      "save\n    _save(obj)\nRuntimeError: file write failed\n\nDuring handling of the above "
      "exception, another exception occurred:\n\nTraceback (most recent call last):\n"
      "  File \"train.py\", line 6, in <module>\n    torch.save(x)\nRuntimeError: unexpected pos\n"
      "terminate called after throwing an instance of 'c10::Error'\n  what():  unexpected pos\n" +
      many("frame #", 22);
  CHECK(error_lines_before(text, 20) ==
        Lines{"RuntimeError: file write failed", "  …",
              "Traceback (most recent call last):", "  File \"train.py\", line 6, in <module>",
              "    torch.save(x)", "RuntimeError: unexpected pos",
              "terminate called after throwing an instance of 'c10::Error'",
              "  what():  unexpected pos"});
}

TEST_CASE("a state dict with 150 mismatches hid what was loaded", "[agent][report]") {
  const auto text = kRaised + "RuntimeError: Error(s) in loading state_dict for Llama:\n" +
                    many("\tsize mismatch for layer ", 150);
  const auto found = error_lines_before(text, 20);
  REQUIRE(found.size() == 5);
  CHECK(found.back() == "RuntimeError: Error(s) in loading state_dict for Llama:");
}

TEST_CASE("an exception that was caught long before isn't told as what led to the last one",
          "[agent][report]") {
  const auto text = kRaised + "ValueError: caught\nstep 1\n" + kRaised + "OSError: full\n" +
                    many("INFO:root:cleanup ", 30);
  const auto found = error_lines_before(text, 20);
  REQUIRE_FALSE(found.empty());
  CHECK(found.front().starts_with("Traceback"));
  CHECK(found.back() == "OSError: full");
}

TEST_CASE("a line of an error is safe on a terminal, and short", "[agent][report]") {
  const auto found = error_lines_before(
      "ValueError: \x1b[2J" + std::string(5000, 'x') + " END\n" + many("step ", 20), 20);
  REQUIRE(found.size() == 1);
  CHECK(found.front().starts_with("ValueError: \\x1b[2Jxx"));
  CHECK(found.front().ends_with("xx END"));
  CHECK(found.front().size() < 320);
}

TEST_CASE("an abort was told without the exception that it was for", "[agent][report]") {
  CHECK(abort_words("step 1\n").empty());
  CHECK(abort_words("ValueError: caught\n").empty());
  CHECK(abort_words("terminate called after throwing an instance of 'c10::Error'\n"
                    "  what():  unexpected pos 1024 vs 944\nframe #0: f\nFatal Python error: "
                    "Aborted\n") == "c10::Error: unexpected pos 1024 vs 944");
  CHECK(abort_words("terminate called after throwing an instance of 'int'\n") == "int");
  CHECK(abort_words("terminate called without an active exception\n") ==
        "terminate called without an active exception");
  CHECK(abort_words("free(): invalid pointer\n") == "free(): invalid pointer");
  CHECK(abort_words("x: y.c:3: f: Assertion `n > 0' failed.\n") ==
        "x: y.c:3: f: Assertion `n > 0' failed.");
}

TEST_CASE("a rank that lost its connection was named, not the one that had raised",
          "[agent][report]") {
  const std::string gloo =
      "RuntimeError: [../gloo/pair.cc:589] Connection closed by peer [127.0.0.1]:4\n";
  CHECK(names_missing_peer(kRaised + gloo));
  CHECK(names_missing_peer(kRaised + "RuntimeError: Connection reset by peer\nwandb: bye\n"));
  CHECK(names_missing_peer(
      kRaised +
      "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited "
      "or there was a network error\nncclRemoteError: A call failed\nLast error:\n"));
  CHECK(names_missing_peer(
      kRaised +
      "RuntimeError: [../gloo/unbound_buffer.cc:136] Timed out waiting 5000ms for send "
      "operation to complete\n"));
  CHECK(names_missing_peer(
      kRaised +
      "torch.distributed.DistBackendError: [Rank 0] Watchdog caught collective operation "
      "timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE) ran for 600049 milliseconds\n"));
  CHECK_FALSE(names_missing_peer(kRaised + "ValueError: loss is nan\n"));
  CHECK_FALSE(names_missing_peer(kRaised + gloo + "retried\n" + kRaised + "ValueError: x\n"));
  CHECK(own_error(kRaised + "KeyError: 'label'\n") == "KeyError: 'label'");
  CHECK(own_error(kRaised + "KeyError: 'label'\n/x.py:3: UserWarning: leaked\n") ==
        "KeyError: 'label'");
  // One that was caught, that a peer caused, or our signal.
  CHECK(own_error(kRaised + "KeyError: 'label'\nstep 3\n").empty());
  CHECK(own_error(kRaised + gloo).empty());
  CHECK(own_error(kRaised + "TimeoutError: Timed out after 30 s reading shard 7\n") ==
        "TimeoutError: Timed out after 30 s reading shard 7");
  CHECK(own_error(kRaised + "KeyboardInterrupt\n").empty());
  CHECK(own_error(kRaised + "SignalException: got signal: 15\n").empty());
  CHECK(own_error("step 3\n").empty());
}

TEST_CASE("an abort was told with what a library had logged long before", "[agent][report]") {
  CHECK(abort_words(many("step ", 50) + "what(): fine\n" + many("step ", 50)).empty());
  CHECK(abort_words("free(): invalid pointer\n" + many("step ", 50)).empty());
  const std::string thrown = "terminate called after throwing an instance of 'E'\n  what():  no\n";
  CHECK(abort_words(thrown + many("frame #", 60)) == "E: no");
  CHECK(abort_words(thrown + many("INFO other thread ", 60)) == "E: no");
  CHECK(abort_words("free(): invalid size\nFatal Python error: Aborted\n\n" +
                    many("  File \"x.py\", line ", 90)) == "free(): invalid size");
}
