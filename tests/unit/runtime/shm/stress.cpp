// shm-stress SECONDS [SEED]: groups of 1 to 12 ranks, threads and processes by turns, call random
// operations with random types, sizes, roots and alignments, and verify each; ranks come late at
// random. Ends with 0 when nothing was wrong.
#include "tests/unit/runtime/shm/verification.hpp"

#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <random>

using namespace acc::runtime;
using namespace acc::runtime::testing;

namespace {

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t limit) { return random() % limit; }

/// Small ones mostly, and now and then several chunks.
std::size_t draw_bytes(Random& random) {
  const auto kind = below(random, 100);
  if (kind < 50) return below(random, 200);
  if (kind < 85) return below(random, 40'000);
  return below(random, 600'000);
}

Case draw(Random& random, int ranks, std::uint64_t round) {
  Case c;
  c.type = kAllTypes[below(random, std::size(kAllTypes))];
  c.op = kAllOps[below(random, std::size(kAllOps))];
  c.count = draw_bytes(random) / size_of(c.type);
  c.round = round;
  c.off = below(random, 2) * below(random, 16);
  c.root = static_cast<int>(below(random, static_cast<std::size_t>(ranks)));
  c.in_place = below(random, 2) == 0;
  return c;
}

void registered_all_reduce(LocalRank& rank, const SharedBuffer& memory, Case c) {
  c.count = std::min(c.count, memory.bytes() / size_of(c.type));
  const auto mine = inputs(c.type, c.op, 0, c.count, rank.rank(), rank.size(), c.round);
  if (!mine.empty()) std::memcpy(memory.data(), mine.data(), mine.size());
  rank.all_reduce(memory.data(), c.count, c.type, c.op);
  const auto wanted = reductions(c.type, c.op, 0, c.count, rank.size(), c.round);
  expect(wanted.empty() || std::memcmp(memory.data(), wanted.data(), wanted.size()) == 0, rank,
         Operation::all_reduce, c);
}

void one_call(LocalRank& rank, const SharedBuffer& memory, std::size_t which, const Case& c) {
  switch (which) {
    case 0:
      return verify_all_reduce(rank, c);
    case 1:
      return verify_reduce(rank, c);
    case 2:
      return verify_broadcast(rank, c);
    case 3:
      return verify_all_gather(rank, c);
    case 4:
      return verify_gather(rank, c);
    case 5:
      return verify_scatter(rank, c);
    case 6:
      return verify_reduce_scatter(rank, c);
    case 7:
      return verify_all_to_all(rank, c);
    case 8:
      return verify_gather_v(rank, c, c.in_place);
    case 9:
      if (rank.size() > 1) verify_send_recv(rank, c);
      return;
    case 10:
      return registered_all_reduce(rank, memory, c);
    default:
      return rank.barrier();
  }
}

/// All ranks draw the same, from the same seed; each is late by a dice of its own.
Body calls(std::uint64_t seed, Clock::time_point end) {
  return [=](LocalRank& rank) {
    Random common{seed};
    Random own{seed * 1000 + static_cast<std::uint64_t>(rank.rank())};
    const auto memory = rank.allocate(300'000);
    for (std::uint64_t round = 1;; ++round) {
      const auto which = below(common, 12);
      one_call(rank, memory, which, draw(common, rank.size(), round));
      if (below(own, 20) == 0)
        for (auto n = below(own, 2'000); n > 0; --n) ::sched_yield();
      if (round % 50 != 0) continue;
      std::uint8_t go_on = Clock::now() < end ? 1 : 0;  // the clocks agree, but not the moments
      rank.run(Operation::broadcast, &go_on, &go_on, 1, DType::u8, {}, 0);
      if (go_on == 0) return;
    }
  };
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: shm-stress SECONDS [SEED]\n");
    return 2;
  }
  const auto end = Clock::now() + std::chrono::seconds{std::atoi(argv[1])};
  std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device{}();
  int groups = 0;
  for (; Clock::now() < end; ++seed, ++groups) {
    Random random{seed};
    const int ranks = 1 + static_cast<int>(below(random, 12));
    const bool threads = below(random, 2) == 0;
    const auto until = std::min(end, Clock::now() + std::chrono::milliseconds{500});
    const auto body = calls(seed, until);
    const Settings settings{.check = true, .alarm_s = 120};
    const auto outcomes =
        threads ? as_threads(ranks, body, settings) : as_processes(ranks, body, settings);
    for (std::size_t r = 0; r < outcomes.size(); ++r) {
      if (!outcomes[r].threw) continue;
      std::printf("seed %llu, %d %s, rank %zu: %s\n", static_cast<unsigned long long>(seed), ranks,
                  threads ? "threads" : "processes", r, outcomes[r].what.c_str());
      return 1;
    }
  }
  std::printf("%d groups, nothing wrong; last seed %llu\n", groups,
              static_cast<unsigned long long>(seed - 1));
  return 0;
}
