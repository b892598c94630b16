// A rank that trains nothing: `heartbeat_worker STEPS MILLISECONDS [WHAT=RANK@STEP…] [any=TOKEN]`.
// In each step it beats, works and meets the others in an all_reduce. WHAT: spin (computes for
// ever), sleep, skip (never enters the collective of this step), section (sleeps in a section with
// a limit of 1 s), die (SIGKILL to itself), long (sleeps 3 s in a section without one), save (sleeps 8 s
// in one of 10 min), free (hangs in one without a limit), retry (heartbeats of this step for ever),
// stop (SIGSTOP to itself), only (no other rank sends heartbeats), slow (from here on 3 times slower; no collectives), nosave (reports no
// checkpoints).
#include <signal.h>
#include <unistd.h>

#include <acc/agent.hpp>
#include <acc/process_group.hpp>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>

using namespace std::chrono_literals;

namespace {

struct Fault {
  int rank = -1;
  std::uint64_t step = 0;
};
std::map<std::string, Fault> faults;
int my_rank = 0;

bool is_due(const std::string& what, std::uint64_t step) {
  const auto found = faults.find(what);
  const bool is_first_attempt =
      std::getenv("ACC_ROUND") == nullptr || std::string{std::getenv("ACC_ROUND")} == "0";
  return found != faults.end() && found->second.rank == my_rank && found->second.step == step &&
         is_first_attempt;
}

volatile std::uint64_t counter = 0;
[[gnu::noinline]] void spin_for_ever() {
  for (;;) counter = counter + 1;
}
[[gnu::noinline]] void sleep_for_ever() {
  for (;;) std::this_thread::sleep_for(1h);
}
[[gnu::noinline]] void try_again(std::uint64_t step) {
  for (;;) {
    acc::agent::heartbeat(step);
    std::this_thread::sleep_for(100ms);
  }
}
// Not the same as sleep_for_ever(): the compiler makes one function of equal ones, and a debugger
// names it by either.
[[gnu::noinline]] void forget_the_collective() {
  for (;;) std::this_thread::sleep_for(2h);
}

void step_once(std::uint64_t step, std::chrono::milliseconds work,
               acc::runtime::ProcessGroup* group) {
  if (!faults.contains("only") || faults["only"].rank == my_rank) acc::agent::heartbeat(step);
  if (is_due("spin", step)) spin_for_ever();
  if (is_due("sleep", step)) sleep_for_ever();
  if (is_due("stop", step)) ::raise(SIGSTOP);
  if (is_due("die", step)) ::raise(SIGKILL);
  if (is_due("skip", step)) forget_the_collective();
  if (is_due("section", step)) {
    const acc::agent::Section section{"a short one", 1s};
    sleep_for_ever();
  }
  if (is_due("long", step)) {
    const acc::agent::Section section{"a long one"};
    std::this_thread::sleep_for(3s);
  }
  if (is_due("save", step)) {
    const acc::agent::Section section{"checkpoint", 10min};
    std::this_thread::sleep_for(8s);
  }
  if (is_due("free", step)) {
    const acc::agent::Section section{"checkpoint"};
    sleep_for_ever();
  }
  if (is_due("retry", step)) try_again(step);
  std::this_thread::sleep_for(work);
  if (group == nullptr) return;
  std::array<float, 4> data{1, 2, 3, 4};
  group->all_reduce(std::span<float>{data});
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t steps = 10;
  std::chrono::milliseconds work{10};
  int number = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto equals = word.find('=');
    const auto at = word.find('@');
    if (word.starts_with("any=")) continue;
    if (equals != std::string::npos && at != std::string::npos) {
      faults[word.substr(0, equals)] = {std::atoi(word.c_str() + equals + 1),
                                        std::strtoull(word.c_str() + at + 1, nullptr, 10)};
    } else if (number++ == 0) {
      steps = std::strtoull(word.c_str(), nullptr, 10);
    } else {
      work = std::chrono::milliseconds{std::atoi(word.c_str())};
    }
  }
  const char* rank = std::getenv("RANK");
  const char* world = std::getenv("WORLD_SIZE");
  my_rank = rank != nullptr ? std::atoi(rank) : 0;
  std::unique_ptr<acc::runtime::ProcessGroup> group;
  if (world != nullptr && std::atoi(world) > 1 && !faults.contains("slow"))
    group = std::make_unique<acc::runtime::ProcessGroup>(
        acc::runtime::ProcessGroup::from_environment());
  for (std::uint64_t step = 0; step < steps; ++step) {
    const bool is_slow =
        faults.contains("slow") && faults["slow"].rank == my_rank && step >= faults["slow"].step;
    step_once(step, is_slow ? 3 * work : work, group.get());
    if (step % 5 == 4 && !faults.contains("nosave")) acc::agent::checkpoint(step);
  }
  std::printf("rank %d done\n", my_rank);
  return 0;
}
