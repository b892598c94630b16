#include "agent/evidence/culprits.hpp"
#include "agent/evidence/flight_dump.hpp"
#include "agent/evidence/native_tool.hpp"
#include "agent/evidence/stack_text.hpp"
#include "agent/evidence/stacks_report.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent::evidence;
using namespace std::chrono_literals;

namespace {

RankSummary rank(std::uint32_t number) {
  RankSummary s;
  s.rank = Rank{number};
  s.local_rank = LocalRank{number};
  s.node = "a";
  s.pid = static_cast<pid_t>(100 + number);
  s.state = 'S';
  s.is_silent = true;
  s.has_beaten = true;
  s.step = 41;
  return s;
}

std::vector<RankSummary> ranks(std::uint32_t count) {
  std::vector<RankSummary> all;
  for (std::uint32_t i = 0; i < count; ++i) all.push_back(rank(i));
  return all;
}

constexpr const char* kGdb = R"([New LWP 4712]
Thread 2 (Thread 0x7f49 (LWP 4712) "pt_main"):
#0  0x00007f49 in __futex_abstimed_wait_common (x=...) at ./nptl/futex.c:57
#1  0x00007f50 in std::function<void ()>::operator()() const (this=0x0) at /usr/include/std_function.h:590

Thread 1 (Thread 0x7f48 (LWP 4711) "train"):
#0  spin_for_ever () at /work/tests/heartbeat_worker.cpp:41
#1  0x00005621 in step_once(unsigned long, std::chrono::duration<long, std::ratio<1l, 1000l> >) (...) at heartbeat_worker.cpp:80
#2  0x00005622 in main (argc=2, argv=0x7ffc) from /usr/lib/libx.so
[Inferior 1 (process 4711) detached])";

constexpr const char* kFaulthandler = R"(Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/usr/lib/python3.11/threading.py", line 622 in wait

Current thread 0x00007f02 (most recent call first):
  File "/home/u/train.py", line 31 in hang in here
  File "/home/u/train.py", line 40 in <module>
)";

constexpr const char* kInThread = R"(Thread 0x00007f03 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/usr/lib/python3.11/queue.py", line 180 in get

Thread 0x00007f01 (most recent call first):
  File "/home/u/train.py", line 9 in step
  File "/usr/lib/python3.11/threading.py", line 975 in run

Current thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 1139 in _wait_for_tstate_lock
  File "/usr/lib/python3.11/threading.py", line 1119 in join
  File "/home/u/train.py", line 20 in <module>
)";

constexpr const char* kPySpy = R"(Process 4711: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4720 (idle): "QueueFeeder"
    wait (threading.py:324)
Thread 4711 (active): "MainThread"
    hang (train.py:31)
    <module> (train.py:40)
)";

}  // namespace

TEST_CASE("a rank whose main thread only waits for another one is judged by that", "[evidence]") {
  const auto stacks = python_stacks(kInThread);
  REQUIRE(stacks.size() == 3);
  CHECK(stacks[working_thread(stacks)].frames.front().function == "step");
  CHECK(working_thread(python_stacks(kFaulthandler)) == 0);
  // A library's thread, which waits for work, may stand first.
  auto more = stacks;
  more.insert(more.begin() + 1, {"pin memory", {{"get", "/usr/lib/python3.11/queue.py:171"}, {"do_one_step", "/x/site-packages/torch/pin_memory.py:28"}}});
  CHECK(more[working_thread(more)].frames.front().function == "step");
  more.push_back({"trains", {{"all_reduce", "/x/site-packages/torch/distributed/c10d.py:9"}}});
  CHECK(more[working_thread(more)].title == "trains");
  more.front().frames.front() = {"join", "<frozen posixpath>:71"};
  more.front().frames.resize(1);
  CHECK(working_thread(more) == 0);
  CHECK(working_thread({}) == 0);
  CHECK(working_thread({stacks[0]}) == 0);
}

TEST_CASE("gdb's text becomes frames, the main thread first", "[agent][evidence]") {
  const auto stacks = native_stacks(kGdb, 4711);
  REQUIRE(stacks.size() == 2);
  CHECK(stacks[0].title == "thread 4711");
  REQUIRE(stacks[0].frames.size() == 3);
  CHECK(stacks[0].frames[0] == Frame{"spin_for_ever", "heartbeat_worker.cpp:41"});
  CHECK(stacks[0].frames[1].function ==
        "step_once(unsigned long, std::chrono::duration<long, std::ratio<1l, 1000l> >)");
  CHECK(stacks[0].frames[2] == Frame{"main", "libx.so"});
  CHECK(stacks[1].frames[1].function == "std::function<void ()>::operator()() const");
  CHECK(place_of(stacks[0]) == "spin_for_ever (heartbeat_worker.cpp:41)");
  CHECK_FALSE(waits_for_others(stacks[0]));
}

TEST_CASE("eu-stack's text becomes frames", "[agent][evidence]") {
  const auto stacks = native_stacks(
      "PID 12 - process\nTID 12:\n#0  0x00007f4f clock_nanosleep@@GLIBC_2.17 - /lib/libc.so.6\n"
      "#1  0x0000 forget(int) - /a/worker\nTID 13:\n#0  0x1 poll\n",
      12);
  REQUIRE(stacks.size() == 2);
  CHECK(stacks[0].frames[0] == Frame{"clock_nanosleep@@GLIBC_2.17", "libc.so.6"});
  CHECK(place_of(stacks[0]) == "forget (worker)");
}

TEST_CASE("a program without optimization was shown at void std::this_thread::sleep_for<...>",
          "[agent][evidence]") {
  const std::string sleep = "void std::this_thread::sleep_for<long, std::ratio<3600l, 1l> >";
  CHECK(place_of({"",
                  {{"clock_nanosleep", ""},
                   {sleep, "this_thread_sleep.h:80"},
                   {"forget", "w.cpp:3"}}}) == "forget (w.cpp:3)");
}

TEST_CASE("a rank whose Python stack could not be read was shown at _start, or at PyIter_Send",
          "[agent][evidence]") {
  const auto place = [](std::vector<Frame> frames) { return place_of({"", std::move(frames)}); };
  CHECK(place({{"kill", "libc.so.6"}, {"PyIter_Send", ""}, {"_PyEval_EvalFrameDefault", ""},
               {"Py_BytesMain", ""}, {"main", ""}, {"__libc_start_main", "libc.so.6"}, {"_start", ""}}) ==
        "kill");
  CHECK(place({{"clock_nanosleep@@GLIBC_2.17", "libc.so.6"}, {"PyIter_Send", "python3.11"}, {"_start", ""}}) ==
        "clock_nanosleep");
  CHECK(place({{"__GI___clock_nanosleep", "clock_nanosleep.c:48"}, {"??", ""}, {"_start", ""}}) ==
        "clock_nanosleep");
  CHECK(place({{"kill", "libc.so.6"}, {"deep_spin", "spin.so"}, {"PyIter_Send", ""}, {"main", ""}}) ==
        "deep_spin (spin.so)");
  CHECK(place({{"kill", ""}, {"PyTrainer::run()", "t.cpp:3"}, {"main", "t.cpp:9"}}) ==
        "PyTrainer::run (t.cpp:3)");
  CHECK(place({{"poll", ""}, {"main", "t.cpp:9"}, {"_start", ""}}) == "main (t.cpp:9)");
  CHECK(place({{"??", ""}, {"??", ""}}).empty());
}

TEST_CASE("Python's stacks, of faulthandler and of py-spy, begin with the main thread",
          "[agent][evidence]") {
  auto stacks = python_stacks(kFaulthandler);
  REQUIRE(stacks.size() == 2);
  CHECK(stacks[0].title.starts_with("Current thread"));
  CHECK(stacks[0].frames[0] == Frame{"hang in here", "/home/u/train.py:31"});
  CHECK(stacks[1].frames.size() == 2);
  stacks = python_stacks(kPySpy);
  REQUIRE(stacks.size() == 2);
  CHECK(stacks[0].frames[0] == Frame{"hang", "train.py:31"});
  CHECK(stacks[1].frames[0] == Frame{"wait", "threading.py:324"});
}

TEST_CASE("any text gives stacks, or none", "[agent][evidence]") {
  for (const auto& text :
       {std::string{}, std::string{"#"}, std::string{"#0"}, std::string{"Thread "},
        std::string{"Thread 1 (LWP )\n#0 "}, std::string{"TID x\n#1  0x in ("},
        std::string{"Current thread\n  File \"\n  File \"a\", line  in"}, std::string(5000, '\n'),
        std::string{"Thread 1 (LWP 1\n#0 \xff\x1b[31m\n"}}) {
    CHECK(native_stacks(text, 1).size() <= 1);
    CHECK(python_stacks(text).size() <= 1);
  }
  CHECK(native_stacks("Thread 1 (LWP 1)\n#0 a\x1b[31mb (x)\n", 1)[0].frames[0].function.find(
            '\x1b') == std::string::npos);
}

TEST_CASE("stacks that wait for other ranks in the same call are equal", "[agent][evidence]") {
  const ThreadStack a{
      "", {{"sched_yield", "libc.so"}, {"acc::runtime::Group::run()", "x"}, {"main", "w"}}};
  const ThreadStack b{"",
                      {{"__GI_nanosleep", "libc.so"},
                       {"pause", ""},
                       {"acc::runtime::Group::run()", "x"},
                       {"main", "w"}}};
  CHECK(waits_for_others(a));
  CHECK(key_of(a) == key_of(b));
  const ThreadStack torch{
      "", {{"wait", "/x/torch/distributed/distributed_c10d.py:90"}, {"<module>", "t.py:4"}}};
  CHECK(waits_for_others(torch));
  CHECK(key_of(torch) != key_of(a));
}

TEST_CASE("a rank in a wrong recv was said to be in the runtime's inside, with all argument types",
          "[agent][evidence]") {
  const ThreadStack wrong_recv{
      "",
      {{"syscall", ""},
       {"acc::runtime::shm::sleep_on(acc::runtime::shm::Word&, unsigned int)", ""},
       {"acc::runtime::Group::hand_over(acc::runtime::Call const&)", ""},
       {"std::__invoke_impl<void>(std::__invoke_other)", ""},
       {"acc::runtime::ProcessGroup::recv(void*, unsigned long, acc::runtime::DType)", ""},
       {"train(int)", "train.cpp:31"},
       {"acc::runtime::run(train)", ""},
       {"main", ""}}};
  CHECK(place_of(wrong_recv) == "acc::runtime::ProcessGroup::recv");
  CHECK(place_of({"", {{"read", ""}, {"acc::runtime::tcp::AbortableWait::wait", "x.cpp:5"}}}) ==
        "acc::runtime::tcp::AbortableWait::wait (x.cpp:5)");
  const auto place = [](const std::string& function) { return place_of({"", {{function, ""}}}); };
  CHECK(place("gloo::transport::tcp::UnboundBuffer::waitRecv(int*, std::chrono::duration<long, "
              "std::ratio<1l, 1000l> >)") == "gloo::transport::tcp::UnboundBuffer::waitRecv");
  CHECK(place("spin") == "spin");
  CHECK(place("f<void (int)>::operator()(int) const") == "f<void (int)>::operator()");
  CHECK(place("(anonymous namespace)::g(int)") == "(anonymous namespace)::g");
  CHECK(place("a::(anonymous namespace)::g()") == "a::(anonymous namespace)::g");
  CHECK(place("w::w()::{lambda(int)#1}::operator()(int)") == "w::w");
}

TEST_CASE("a function that torch calls doesn't wait for others, whatever called it",
          "[agent][evidence]") {
  const ThreadStack own{
      "",
      {{"sleep", "t.py:9"}, {"hook", "t.py:12"}, {"backward", "/x/torch/autograd/__init__.py:90"}}};
  const ThreadStack writes{"", {{"_write", "torch/distributed/checkpoint/filesystem.py:9"}}};
  CHECK_FALSE(waits_for_others(writes));
  CHECK_FALSE(waits_for_others(own));
  CHECK_FALSE(is_in_backward(own));
  const ThreadStack backward{
      "", {{"backward", "/x/torch/autograd/__init__.py:90"}, {"<module>", "t.py:4"}}};
  CHECK_FALSE(waits_for_others(backward));
  CHECK(is_in_backward(backward));
  ThreadStack deep{"", {}};
  for (int i = 0; i < 20; ++i) deep.frames.push_back({"compute", "lib.so"});
  deep.frames.push_back({"acc::runtime::Group::run", ""});
  CHECK_FALSE(waits_for_others(deep));
}

namespace {

/// As in pytorch's issue 95944: gdb shows the driver's own functions without names.
std::string in_item(int unnamed) {
  std::string text = "Thread 1 (Thread 0x14cd (LWP 4711) \"python\"):\n";
  int number = 0;
  const auto add = [&](const std::string& frame) {
    text += "#" + std::to_string(number++) + "  0x000014cd955ebdbc in " + frame + "\n";
  };
  for (int i = 0; i < unnamed; ++i) add("?? () from /lib64/libcuda.so.1");
  add("cuMemcpyDtoHAsync_v2 () from /lib64/libcuda.so.1");
  add("?? () from /cuda/11.3.0/lib64/libcudart.so.11.0");
  add("?? () from /cuda/11.3.0/lib64/libcudart.so.11.0");
  add("cudaMemcpyAsync () from /cuda/11.3.0/lib64/libcudart.so.11.0");
  add("at::native::copy_kernel_cuda(at::TensorIterator&, bool) () from /t/libtorch_cuda.so");
  add("at::native::_local_scalar_dense_cuda(at::Tensor const&) () from /t/libtorch_cuda.so");
  add("_PyEval_EvalFrameDefault ()");
  return text;
}

}  // namespace

TEST_CASE("a rank in loss.item() waits for a collective on the GPU, and was named as the culprit",
          "[agent][evidence]") {
  for (const int unnamed : {0, 12, 30}) {
    const auto stacks = native_stacks(in_item(unnamed), 4711);
    REQUIRE(stacks.size() == 1);
    CHECK(waits_for_others(stacks[0]));
    auto all = ranks(4);
    all[0].waits_for_others = waits_for_others(stacks[0]);
    all[1].waits_for_others = all[2].waits_for_others = true;  // in a barrier
    all[3].waits_for_others = false;                           // in its loader
    CHECK(find_culprits(all).which == std::vector<std::size_t>{3});
    CHECK(find_culprits(all).why == "ranks 0-2 wait for it");
  }
  for (const auto* name : {"cudaDeviceSynchronize", "cuCtxSynchronize", "cudaMemcpy",
                           "cuMemcpyHtoD_v2", "hipMemcpyWithStream", "hipStreamSynchronize",
                           "hipDeviceSynchronize", "hipEventSynchronize"})
    CHECK(waits_for_others({"", {{"sched_yield", ""}, {name, ""}, {"main", ""}}}));
  for (const auto* name :
       {"memcpy", "cudaLaunchKernel", "hipLaunchKernel", "shipSynchronizer", "relationshipMemcpy"})
    CHECK_FALSE(waits_for_others({"", {{"sched_yield", ""}, {name, ""}, {"main", ""}}}));
  ThreadStack deep{"", {}};
  for (int i = 0; i < 20; ++i) deep.frames.push_back({i % 2 == 0 ? "??" : "compute", "lib.so"});
  deep.frames.push_back({"cudaMemcpyAsync", ""});
  CHECK(waits_for_others(deep));
  for (int i = 0; i < 20; ++i) deep.frames.insert(deep.frames.begin(), {"compute", "lib.so"});
  CHECK_FALSE(waits_for_others(deep));  // it computes in what these call
}

TEST_CASE("of Python alone a line of the program may be in a call of a library",
          "[agent][evidence]") {
  const auto may_be = [](const char* place) { return may_be_in_library({"", {{"f", place}}}); };
  CHECK(may_be("/home/u/train.py:31"));
  CHECK(may_be("/usr/lib/python3/dist-packages/torch/_tensor.py:9"));
  CHECK(may_be("/usr/lib/python3.11/site-packages/torch/_tensor.py:9"));
  CHECK_FALSE(may_be("/usr/lib/python3.11/threading.py:324"));
  CHECK_FALSE(may_be_in_library({}));
}

TEST_CASE("a rank in the end of its Python program has no Python frames that could be missing",
          "[agent][evidence]") {
  const auto of = [](std::vector<std::string> functions) {
    ThreadStack stack;
    for (auto& one : functions) stack.frames.push_back({std::move(one), ""});
    return is_past_python(stack);
  };
  CHECK(of({"pause", "stay", "_dl_fini", "__run_exit_handlers", "exit", "_start"}));
  CHECK(of({"poll", "~Group", "Py_FinalizeEx@@Base", "Py_RunMain", "Py_BytesMain", "main"}));
  CHECK_FALSE(of({"nanosleep", "_PyEval_EvalFrameDefault", "Py_FinalizeEx", "Py_RunMain"}));
  CHECK_FALSE(of({"nanosleep", "_PyEval_EvalFrameDefault", "Py_RunMain", "main"}));
  CHECK_FALSE(of({}));
}

TEST_CASE("a stopped process is the culprit, wherever it is", "[agent][evidence]") {
  auto all = ranks(4);
  all[2].state = 'T';
  for (const auto i : {0, 1, 3}) all[static_cast<std::size_t>(i)].is_inside = true;
  const auto found = find_culprits(all);
  CHECK(found.which == std::vector<std::size_t>{2});
  CHECK(found.why == "it was stopped by a signal (state T)");
}

TEST_CASE("a rank that a debugger holds was called stopped by a signal", "[agent][evidence]") {
  auto all = ranks(3);
  all[2].state = 't';
  CHECK(find_culprits(all).which == std::vector<std::size_t>{2});
  CHECK(find_culprits(all).why == "it is held by a debugger");
  all[2].tracer = "gdb (pid 71)";
  CHECK(find_culprits(all).why == "it is held by a debugger, gdb (pid 71)");
  NodeEvidence node{"a", {}, {}};
  node.ranks.emplace_back().summary = all[2];
  CHECK(stacks_text({}, node.ranks).find("state t (held by a debugger, gdb (pid 71))") !=
        std::string::npos);
  all[0].state = all[1].state = 't';
  CHECK(find_culprits(all).which.size() == 3);
}

TEST_CASE("one rank is stopped, another one hangs: the stacks name both", "[agent][evidence]") {
  auto all = ranks(4);
  all[0].waits_for_others = all[3].waits_for_others = true;
  all[1].state = 'T';
  all[2].waits_for_others = false;
  all[2].at = "load (data.py:7)";
  CHECK(behind_lines(all) ==
        std::vector<std::string>{
            "behind the others: rank 1: it was stopped by a signal (state T)",
            "behind the others: rank 2, at load (data.py:7): it doesn't wait for rank 1"});
  all[2].waits_for_others.reset();
  CHECK(behind_lines(all).size() == 1);
}

TEST_CASE("a rank that hasn't entered the collective of the others is the culprit",
          "[agent][evidence]") {
  auto all = ranks(4);
  for (auto& one : all) {
    one.collectives = 42;
    one.operation = "all_reduce";
    one.is_inside = true;
  }
  SECTION("it is still at the last one") {
    all[1].collectives = 41;
    all[1].is_inside = false;
  }
  SECTION("it has left this one") { all[1].is_inside = false; }
  SECTION("it is in an older one") { all[1].collectives = 40; }
  all[3].step = 12;  // what the program counts says less
  const auto found = find_culprits(all);
  CHECK(found.which == std::vector<std::size_t>{1});
  CHECK(found.why == "it hasn't entered all_reduce #42, in which ranks 0,2,3 wait");
}

TEST_CASE("a rank whose stack doesn't wait for others is the culprit", "[agent][evidence]") {
  auto all = ranks(2);
  all[0].waits_for_others = true;
  all[1].waits_for_others = false;
  const auto found = find_culprits(all);
  CHECK(found.which == std::vector<std::size_t>{1});
  CHECK(found.why == "rank 0 waits for it");
  all.push_back(rank(2));  // its stack could not be read
  CHECK(find_culprits(all).which == std::vector<std::size_t>{1});
  all[0].waits_for_others.reset();
  CHECK(find_culprits(all).which.size() == 3);  // none is known to wait
}

TEST_CASE("a rank that only sent heartbeats of its step was not named, but those that waited for it",
          "[agent][evidence]") {
  struct Row {
    std::string what;
    bool is_stuck = true;
    std::uint64_t step = 41;                ///< of rank 1; of the silent ones: 41
    std::optional<bool> it_waits{};         ///< rank 1, by its stack
    std::optional<bool> others_wait{};
    bool does_another_go_on = false;
    std::vector<std::size_t> culprits{1};
  };
  const std::vector<std::size_t> silent{0, 2, 3};
  const auto row = GENERATE_COPY(values<Row>({
      {"no stack is known"},
      {"the others wait", true, 41, false, true},
      {"it is behind", true, 40},
      {"it is behind, and another one goes on", true, 40, {}, {}, true, {1}},
      {"it is behind, and it alone is silent in a call of ours", true, 40, {}, true},
      {"it goes on", false, 41, {}, {}, false, silent},
      {"it is ahead", true, 42, {}, {}, false, silent},
      {"it tries again in the step after the heartbeats of the others", true, 42, false, true},
      {"it is a step ahead, and goes on", false, 42, false, true, false, silent},
      {"it is a step ahead, and waits there", true, 42, true, true, false, silent},
      {"it is a step ahead, somewhere", true, 42, {}, true, false, silent},
      {"it is a step ahead, and nobody is known to wait", true, 42, false, {}, false, silent},
      {"it is two steps ahead", true, 43, false, true, false, silent},
      {"it is a step ahead, and another one goes on", true, 42, false, true, true, {0, 2}},
      {"another one goes on, so that nobody waits for all", true, 41, {}, {}, true, {0, 2}},
      {"it waits, and a thread of it sends them", true, 41, true, {}, false, silent},
      {"those that are silent don't wait", true, 40, {}, false, false, silent},
  }));
  INFO(row.what);
  auto all = ranks(4);
  for (const auto i : silent) all[i].waits_for_others = row.others_wait;
  auto& one = all[1];
  one.is_silent = false;
  one.is_stuck = row.is_stuck;
  one.step = row.step;
  one.waits_for_others = row.it_waits;
  if (row.does_another_go_on) {
    all[3].is_silent = false;
    all[3].step = 50;
  }
  CHECK(find_culprits(all).which == row.culprits);
}

TEST_CASE("a rank that sent heartbeats of one step, and wasn't named, was not told",
          "[agent][evidence]") {
  auto all = ranks(4);
  all[1].is_silent = false;
  all[1].is_stuck = true;
  all[1].step = 42;
  const auto found = find_culprits(all);
  CHECK(repeating_words(all, found) == "rank 1 sends heartbeats, but only of step 42");
  CHECK(behind_lines(all).back() == repeating_words(all, found));
  all[1].waits_for_others = true;
  CHECK(repeating_words(all, found).empty());
  all[1].waits_for_others.reset();
  all[2] = all[1];
  all[2].rank = Rank{2};
  CHECK(repeating_words(all, find_culprits(all)) ==
        "ranks 1,2 send heartbeats, but of one step each");
  all[1].step = all[2].step = 40;  // both are named
  CHECK(repeating_words(all, find_culprits(all)).empty());
}

namespace {

/// Rank 0 is silent; ranks 1 and 2 have sent no heartbeat, and wait or don't by their stacks.
std::vector<RankSummary> only_rank_0_sends(std::optional<bool> it_waits, std::optional<bool> second,
                                           std::optional<bool> third) {
  auto all = ranks(3);
  all[0].waits_for_others = it_waits;
  all[1].waits_for_others = second;
  all[2].waits_for_others = third;
  for (const auto i : {1U, 2U}) {
    all[i].is_silent = all[i].has_beaten = false;
    all[i].is_starting = true;
    all[i].step = 0;
  }
  return all;
}

}  // namespace

TEST_CASE("where only rank 0 sent heartbeats it was named, though it waited for another rank",
          "[agent][evidence]") {
  struct Row {
    std::optional<bool> it_waits, second, third;
    std::vector<std::size_t> culprits;
    std::string why;
    std::string unheard;
  };
  const std::string all_of_them = "ranks 1,2 sent no heartbeat in this attempt";
  const auto row = GENERATE_COPY(values<Row>({
      {true, true, false, {2}, "ranks 0,1 wait for it", "rank 1 sent no heartbeat in this attempt"},
      {true, false, false, {1, 2}, "rank 0 waits for it", ""},
      {true, {}, {}, {0}, "", all_of_them + ", so rank 0 may wait for one of them"},
      {{}, {}, {}, {0}, "", all_of_them + ", so rank 0 may wait for one of them"},
      {true, true, {}, {0}, "", "rank 2 sent no heartbeat in this attempt, so rank 0 may wait for it"},
      {{}, true, false, {0}, "", all_of_them},   // nobody is known to wait for rank 2
      {false, {}, {}, {0}, "", all_of_them},     // it waits for none
      {false, true, false, {0}, "", all_of_them},  // rank 2 may be in its first step
  }));
  CAPTURE(row.it_waits.has_value(), row.second.has_value(), row.third.has_value());
  const auto all = only_rank_0_sends(row.it_waits, row.second, row.third);
  const auto found = find_culprits(all);
  CHECK(found.which == row.culprits);
  CHECK(found.why == row.why);
  CHECK(unheard_words(all, found) == row.unheard);
}

TEST_CASE("a rank without heartbeats is named if it is stopped, or in no collective of the others",
          "[agent][evidence]") {
  auto all = only_rank_0_sends({}, {}, {});
  SECTION("stopped") {
    all[2].state = 'T';
    CHECK(find_culprits(all).which == std::vector<std::size_t>{2});
    all[2].state = 'D';  // it may read from a disk at this moment
    CHECK(find_culprits(all).which == std::vector<std::size_t>{0});
  }
  SECTION("in no collective") {
    for (auto& one : all) {
      one.collectives = 42;
      one.operation = "all_reduce";
      one.is_inside = true;
    }
    all[2].is_inside = false;
    CHECK(find_culprits(all).which == std::vector<std::size_t>{2});
    CHECK(find_culprits(all).why == "it hasn't entered all_reduce #42, in which ranks 0,1 wait");
    all[2].collectives = 0;  // of a program that doesn't meet there
    CHECK(find_culprits(all).which == std::vector<std::size_t>{0});
  }
  SECTION("another one that sends heartbeats hangs") {
    all.push_back(rank(3));
    all[0].waits_for_others = true;
    all[2].waits_for_others = all[3].waits_for_others = false;
    CHECK(find_culprits(all).which == std::vector<std::size_t>{3});
  }
  SECTION("its first heartbeat was all that it sent") {
    all[0].waits_for_others = true;
    all[2].waits_for_others = false;
    all[2].has_beaten = true;
    CHECK(find_culprits(all).which == std::vector<std::size_t>{2});
    CHECK(unheard_words(all, find_culprits(all)) == "rank 1 sent no heartbeat in this attempt");
  }
}

TEST_CASE("stacks say which ranks sent no heartbeat, and call none behind that may wait for them",
          "[agent][evidence]") {
  std::vector<RankEvidence> all;
  for (auto& one : only_rank_0_sends(true, {}, {})) {
    all.emplace_back();
    all.back().summary = one;
  }
  const auto text = stacks_text({}, all);
  CHECK(text.find("behind the others") == std::string::npos);
  CHECK(text.find("\nranks 1,2 sent no heartbeat in this attempt, so rank 0 may wait for one of "
                  "them\n") != std::string::npos);
}

TEST_CASE("of two ranks at one step, one silent and one not, the silent one is named if no stack "
          "tells which of them waits",
          "[agent][evidence]") {
  auto all = ranks(2);
  all[1].is_silent = false;
  all[1].is_stuck = true;
  CHECK(find_culprits(all).which == std::vector<std::size_t>{0});
  all[0].waits_for_others = true;
  CHECK(find_culprits(all).which == std::vector<std::size_t>{1});
  CHECK(find_culprits(all).why == "rank 0 waits for it");
}

TEST_CASE("a rank in a section for longer than it may is named, unless it waits for another one",
          "[agent][evidence]") {
  auto all = ranks(3);
  all[1].is_overdue = true;
  CHECK(find_culprits(all).which == std::vector<std::size_t>{1});
  SECTION("the others wait by their stacks") {
    all[0].waits_for_others = all[2].waits_for_others = true;
    all[1].waits_for_others = false;
    CHECK(find_culprits(all).which == std::vector<std::size_t>{1});
  }
  SECTION("it waits for one by its stack") {
    all[0].waits_for_others = false;
    all[1].waits_for_others = true;
    CHECK(find_culprits(all).which == std::vector<std::size_t>{0});
  }
  SECTION("another one is at an earlier step") {
    all[2].step = 40;
    CHECK(find_culprits(all).which == std::vector<std::size_t>{2});
  }
}

TEST_CASE("the fewest steps, then the odd stack", "[agent][evidence]") {
  auto all = ranks(4);
  for (auto& one : all) one.stack_key = "main > wait";
  all[3].stack_key = "main > load";
  CHECK(find_culprits(all).which == std::vector<std::size_t>{3});
  all[0].step = 40;
  CHECK(find_culprits(all).which == std::vector<std::size_t>{0});
  CHECK(find_culprits(all).why == "others are at step 41");
  all[0].has_beaten = false;
  CHECK(find_culprits(all).which == std::vector<std::size_t>{0});
}

TEST_CASE("where nothing tells them apart all silent ranks are named", "[agent][evidence]") {
  auto all = ranks(3);
  CHECK(find_culprits(all).which.size() == 3);
  all[0].is_silent = false;  // goes on: whatever it does, it isn't the culprit
  all[0].state = 'T';
  CHECK(find_culprits(all).which == std::vector<std::size_t>{1, 2});
  CHECK(find_culprits({}).which.empty());
}

TEST_CASE("ranks in words", "[agent][evidence]") {
  CHECK(describe_ranks({3, 1, 2, 7, 0, 9, 10}) == "0-3,7,9,10");
  CHECK(name_ranks({3}) == "rank 3");
  CHECK(name_ranks({3, 2}) == "ranks 2,3");
}

TEST_CASE("what was found survives the way between processes", "[agent][evidence]") {
  auto all = ranks(3);
  all[1].waits_for_others = true;
  all[2].waits_for_others = false;
  all[2].at = "f (x.cpp:3)";
  all[2].tracer = "gdb (pid 71)";
  NodeEvidence node{"a", {}, {"gdb"}};
  for (const auto& summary : all) {
    RankEvidence one;
    one.summary = summary;
    node.ranks.push_back(one);
  }
  node.finished = {{Rank{5}, 12s}};
  node.ranks[0].python = {{"Current thread", {{"f", "a.py:1"}, {"g", ""}}}, {"Thread 2", {}}};
  node.ranks[0].notes = {"a note"};
  node.ranks[1].beat = heartbeat::Beat{};
  node.ranks[1].beat->step = 7;
  node.ranks[1].beat->section = "evaluation";
  const auto again = decode_node(encode(node));
  REQUIRE(again.has_value());
  CHECK(again->node == "a");
  CHECK(again->tools == node.tools);
  CHECK(again->finished == node.finished);
  REQUIRE(again->ranks.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(again->ranks[i].summary == all[i]);
  CHECK(again->ranks[0].python == node.ranks[0].python);
  CHECK(again->ranks[0].notes == node.ranks[0].notes);
  CHECK(again->ranks[1].beat == node.ranks[1].beat);
  CHECK_FALSE(again->ranks[2].beat);
  const auto answer = decode_answer(encode(Answer{"text \xff", node, "/tmp/x", "full"}));
  REQUIRE(answer.has_value());
  CHECK(answer->evidence.ranks.size() == 3);
  Request request;
  request.gathered = {node, node};
  request.facts.missing = {"b (ranks 3-5)"};
  const auto asked = decode_request(encode(request));
  REQUIRE(asked.has_value());
  CHECK(asked->gathered.size() == 2);
  CHECK(asked->facts.missing == request.facts.missing);
  for (const std::string_view text : {"", "{}", "[1]", "[{}]", "null", "{\"text\": 1}"}) {
    CHECK_FALSE(decode_answer(text).has_value());
    CHECK_FALSE(decode_request(text).has_value());
    CHECK_FALSE(decode_node(text).has_value());
  }
}

TEST_CASE("torch's flight recorder says who hasn't come to a collective", "[agent][evidence]") {
  const auto dumps = decode_flight(
      R"({"path": "/d/0", "groups": {"default_pg": {"last": {"number": 44, "name": "all_gather", "state": "scheduled"}, "open": {"number": 42, "name": "all_reduce", "state": "started"}}}}
no line of its
{"path": "/d/1", "groups": {"default_pg": {"last": {"number": 41, "name": "all_reduce", "state": "completed"}, "open": null}}}
{"path": "/d/2", "error": "a dump holds no os.system"}
{"path": 7, "groups": {"x": {"last": 1}, "y": 2}}
)");
  REQUIRE(dumps.size() == 3);
  CHECK(dumps[0].path == "/d/0");
  CHECK(flight_words(dumps[0].groups.at(0)) ==
        "default_pg: in all_reduce #42 (started), queued up to #44");
  CHECK(flight_words(dumps[1].groups.at(0)) == "default_pg: has completed all_reduce #41");
  CHECK(dumps[2].groups.empty());
  std::vector<RankEvidence> all(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    all[i].summary.rank = Rank{i};
    all[i].flight = dumps[i == 1 ? 1 : 0].groups;
  }
  const auto lines = missing_in_flight(all);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] ==
        "torch's flight recorder: rank 1 hasn't come to all_reduce #42 of default_pg, in which ranks "
        "0,2 wait");
  CHECK(stacks_text({}, all).find(lines[0] + "\n") != std::string::npos);
  all[1].flight = dumps[0].groups;
  CHECK(missing_in_flight(all).empty());  // all have come
  CHECK(missing_in_flight({}).empty());
  const auto again = decode_node(encode(NodeEvidence{"a", all, {}}));
  REQUIRE(again.has_value());
  CHECK(again->ranks[0].flight == all[0].flight);
}

TEST_CASE("a line that shows a group of torch names its description, if it has one",
          "[agent][evidence]") {
  const auto dumps = decode_flight(
      R"({"path": "/d/0", "groups": {"1": {"description": "tensor\u001b", "last": {"number": 3, "name": "all_reduce", "state": "started"}, "open": {"number": 3, "name": "all_reduce", "state": "started"}}, "2": {"description": 7, "last": {"number": 1, "name": "barrier", "state": "completed"}, "open": null}}})");
  REQUIRE(dumps.size() == 1);
  REQUIRE(dumps[0].groups.size() == 2);
  CHECK(flight_words(dumps[0].groups[0]) == "1:tensor\\x1b: in all_reduce #3 (started)");
  CHECK(flight_words(dumps[0].groups[1]) == "2: has completed barrier #1");
  std::vector<RankEvidence> all(2);
  all[0].flight = all[1].flight = dumps[0].groups;
  all[1].summary.rank = Rank{1};
  all[1].flight[0].description = "another one's";  // the name tells groups apart
  all[1].flight[0].last.number = 2;
  all[1].flight[0].open.reset();
  CHECK(missing_in_flight(all) ==
        std::vector<std::string>{"torch's flight recorder: rank 1 hasn't come to all_reduce #3 of "
                                 "1:tensor\\x1b, in which rank 0 waits"});
  const auto again = decode_node(encode(NodeEvidence{"a", all, {}}));
  REQUIRE(again.has_value());
  CHECK(again->ranks[0].flight == all[0].flight);
}

TEST_CASE("what doesn't fit into the store loses stacks, and keeps its ranks", "[agent][evidence]") {
  NodeEvidence node{"a", {}, {}};
  for (const auto& summary : ranks(8)) {
    RankEvidence one;
    one.summary = summary;
    one.native.assign(40, {"Thread", std::vector<Frame>(40, {"a_function_with_a_name", "x.cpp:1"})});
    node.ranks.push_back(one);
  }
  const auto whole = encode(node).size();
  fit(node, whole);
  CHECK(encode(node).size() == whole);
  fit(node, 64 * 1024);
  CHECK(encode(node).size() <= 64 * 1024);
  CHECK_FALSE(node.ranks[0].native.empty());
  fit(node, 4 * 1024);
  CHECK(node.ranks.size() == 8);
  CHECK(node.ranks[7].summary == ranks(8)[7]);
  CHECK(encode(node).size() <= 4 * 1024);
}

TEST_CASE("what is found of a thousand silent ranks fits into one value of the store",
          "[agent][evidence]") {
  NodeEvidence node{"node-0123456789.cluster.example.org", {}, {}};
  for (const auto& summary : ranks(1024)) {
    RankEvidence one;
    one.summary = summary;
    one.summary.node = node.node;
    one.summary.stack_key = "17446744073709551615";
    one.summary.at = "a_function_of_the_program (trainer.py:1234)";
    one.beat = heartbeat::Beat{};
    one.notes = {"its Python handler wrote no stack in time"};
    node.ranks.push_back(one);
  }
  fit(node, 192 * 1024);
  CHECK(encode(node).size() <= 192 * 1024);
  CHECK(node.ranks.size() == 1024);
}

TEST_CASE("the text of several nodes names each rank's node, and those without an answer",
          "[agent][evidence]") {
  std::vector<RankEvidence> all;
  for (const auto& summary : ranks(4)) {
    RankEvidence one;
    one.summary = summary;
    one.summary.node = summary.rank.value() < 2 ? "a" : "b";
    one.summary.stack_key = "1";
    all.push_back(one);
  }
  all[2].native = {{"Thread 1", {{"wait_here", "x.cpp:1"}}}};  // the only one that came with it
  Facts facts;
  facts.node = "a, b";
  facts.missing = {"c (ranks 4-5)"};
  const auto text = stacks_text(facts, all);
  INFO(text);
  CHECK(text.find("no answer from node c (ranks 4-5)\n") != std::string::npos);
  CHECK(text.find("  rank 1  on a  pid") != std::string::npos);
  CHECK(text.find("  rank 3  on b  pid") != std::string::npos);
  CHECK(text.find("stacks of rank 2:\n    native, Thread 1:\n      wait_here") != std::string::npos);
}

TEST_CASE("the text shows the odd rank first, and equal ones together", "[agent][evidence]") {
  std::vector<RankEvidence> all;
  for (const auto& summary : ranks(4)) {
    RankEvidence one;
    one.summary = summary;
    one.worker_pid = summary.pid;
    one.command = "python3";
    one.wait_channel = "futex_wait";
    one.python = {
        {"Current thread", {{"all_reduce", "distributed_c10d.py:9"}, {"<module>", "train.py:4"}}}};
    one.summary.stack_key = key_of(one.python[0]);
    one.summary.waits_for_others = true;
    all.push_back(one);
  }
  all[2].python = {
      {"Current thread", {{"sleep_for_ever", "train.py:31"}, {"<module>", "train.py:4"}}}};
  all[2].summary.stack_key = key_of(all[2].python[0]);
  all[2].summary.waits_for_others = false;
  all[2].summary.at = place_of(all[2].python[0]);
  Facts facts;
  facts.job = "j";
  facts.node = "a";
  facts.why = "ranks 0-3 sent no heartbeat for 10 s";
  const auto text = stacks_text(facts, all);
  INFO(text);
  CHECK(
      text.find(
          "behind the others: rank 2, at sleep_for_ever (train.py:31): ranks 0,1,3 wait for it") !=
      std::string::npos);
  const auto odd = text.find("---- 1 rank: 2 ----");
  const auto rest = text.find("---- 3 ranks: 0,1,3 ----");
  CHECK(odd != std::string::npos);
  CHECK(rest != std::string::npos);
  CHECK(odd < rest);
  CHECK(text.find("stacks of rank 0:") > rest);
}

TEST_CASE("of more than a hundred Python threads the newest one was taken for the main thread",
          "[agent][evidence]") {
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += "Thread 0x00007f0000" + std::to_string(100 + i) +
            " (most recent call first):\n  File \"x.py\", line 7 in helper\n\n";
  CHECK(place_of(python_stacks(text).front()) == "helper (x.py:7)");
  const auto stacks = python_stacks(text + "...\n");
  CHECK(stacks.size() == 101);
  CHECK(stacks.front().frames.empty());
  CHECK(working_thread(stacks) == 0);
  CHECK(place_of(stacks.front()).empty());
  CHECK_FALSE(waits_for_others(stacks.front()));
  const auto current =
      "Current thread 0x1 (most recent call first):\n  File \"x.py\", line 9 in f\n";
  CHECK(place_of(python_stacks(current + text + "...\n").front()) == "f (x.py:9)");
}

TEST_CASE("workers that go on are not stopped for seconds by gdb", "[agent][evidence]") {
  using Kind = NativeTool::Kind;
  struct Row {
    Purpose purpose;
    const char* eu_stack;
    const char* gdb;
    Kind kind;
    const char* name;
  };
  for (const auto& row : {Row{Purpose::look, "/e/eu-stack", "/g/gdb", Kind::eu_stack, "eu-stack"},
                          Row{Purpose::look, "/e/eu-stack", "", Kind::eu_stack, "eu-stack"},
                          Row{Purpose::look, "", "/g/gdb", Kind::none, ""},
                          Row{Purpose::look, "", "", Kind::none, ""},
                          Row{Purpose::end, "/e/eu-stack", "/g/gdb", Kind::eu_stack, "eu-stack"},
                          Row{Purpose::end, "", "/g/gdb", Kind::gdb, "gdb"},
                          Row{Purpose::end, "", "", Kind::none, ""}}) {
    const auto tool = choose_native_tool(row.purpose, row.eu_stack, row.gdb);
    CHECK(tool.kind == row.kind);
    CHECK(tool.name() == row.name);
  }
  CHECK(choose_native_tool(Purpose::look, "/e/eu-stack", "").words(7) ==
        std::vector<std::string>{"/e/eu-stack", "-p", "7", "-n", "64"});
  const auto gdb = choose_native_tool(Purpose::end, "", "/g/gdb").words(7);
  CHECK(gdb.at(0) == "/g/gdb");
  CHECK(gdb.at(2) == "7");
}

TEST_CASE("a worker that still forms its process group isn't signalled for its stack",
          "[agent][evidence]") {
  auto forming = rank(1);
  forming.has_beaten = false;
  CHECK_FALSE(may_signal(Purpose::look, forming));
  CHECK(may_signal(Purpose::end, forming));
  CHECK(may_signal(Purpose::look, rank(1)));
}

TEST_CASE("stacks without native ones name the package to install, and the nodes",
          "[agent][evidence]") {
  Facts facts;
  CHECK(stacks_text(facts, {}).find("elfutils") == std::string::npos);
  facts.without_native_tool = {"a"};
  CHECK(stacks_text(facts, {}).find("no native stacks of node a: they need eu-stack (apt-get install "
                                    "elfutils); gdb would stop each worker for seconds and isn't "
                                    "used\n") != std::string::npos);
  facts.purpose = Purpose::end;
  CHECK(stacks_text(facts, {}).find("elfutils)\n") != std::string::npos);
  const auto of_nodes = text_of_nodes({}, {{"a", {}, {}, true}, {"b", {}, {}}, {"c", {}, {}, true}});
  CHECK(of_nodes.find("no native stacks of node a, c: ") != std::string::npos);
}

TEST_CASE("ranks that had finished, of all nodes, were missing in the stacks",
          "[agent][evidence]") {
  CHECK(finished_words({}).empty());
  CHECK(finished_words({{Rank{1}, 12s}}) == "rank 1 had finished (exit code 0) 12 s before");
  Request request;
  request.facts.finished = {{Rank{1}, 12s}};
  CHECK(decode_request(encode(request))->facts.finished == request.facts.finished);
  NodeEvidence a{"a", {}, {}}, b{"b", {}, {}};
  a.finished = {{Rank{1}, 12s}};
  b.finished = {{Rank{2}, 5min}};
  CHECK(text_of_nodes({}, {a, b})
            .find("\nranks 1,2 had finished (exit code 0), the last of them 12 s before\n") !=
        std::string::npos);
  CHECK(
      decode_node(R"({"node": "a", "tools": [], "ranks": []})")->finished.empty());  // an older one
  for (const auto* finished : {"[1]", "[[1]]", R"([["x", 1]])"})
    CHECK_FALSE(decode_node(std::string{R"({"node": "a", "tools": [], "ranks": [], "finished": )"} +
                            finished + "}")
                    .has_value());
}

TEST_CASE("why stacks are collected survives the way to other nodes", "[agent][evidence]") {
  for (const auto purpose : {Purpose::look, Purpose::end}) {
    const Question question{"SIGQUIT to acc-launch", purpose};
    CHECK(decode_question(encode(question)) == question);
    Request request;
    request.facts.purpose = purpose;
    CHECK(decode_request(encode(request))->facts.purpose == purpose);
  }
  CHECK(decode_question("asked for by another version") ==
        Question{"asked for by another version", Purpose::look});
  CHECK(decode_question(R"({"why": "x", "purpose": "a later one"})") ==
        Question{"x", Purpose::look});
  for (const auto* text : {"", "{}", "[1]", "null", R"({"why": 1, "purpose": "end"})"})
    CHECK(decode_question(text) == Question{text, Purpose::look});
  CHECK(decode_node(encode(NodeEvidence{"a", {}, {}, true}))->lacks_native_tool);
  CHECK_FALSE(decode_node(encode(NodeEvidence{"a", {}, {}}))->lacks_native_tool);
}
