// nccl_rank STORE LIMIT_MS ABORT_LIMIT_MS: one rank (RANK of WORLD_SIZE) over NCCL, for tests that
// kill it. It reduces until something fails: "running" on stdout when the tenth reduction is done;
// "error CODE RANKS MS WHAT" and status 3 when one fails, MS after the last success.

#include "runtime/bootstrap/tcp_store.hpp"
#include "runtime/nccl/nccl_backend.hpp"

#include <unistd.h>

#include <acc/cuda.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace acc::runtime;

namespace {

GroupFacts facts_of(int rank, int size) {
  GroupFacts facts;
  facts.rank = facts.local_rank = rank;
  facts.size = facts.local_size = size;
  facts.name = "world";
  facts.key = "job";
  for (int r = 0; r < size; ++r) facts.ranks.push_back({r, "here", 0, r});
  return facts;
}

void reduce_for_ever(Backend& backend, Millis limit, Clock::time_point& last) {
  acc::cuda::DeviceBuffer data{4};
  for (std::uint64_t i = 1;; ++i) {
    Call call;
    call.what = {
        .sequence = i, .count = 1, .operation = Operation::all_reduce, .dtype = DType::i32};
    call.send = data.data();
    call.recv = data.data();
    call.limit = limit;
    backend.begin(call)->wait(std::nullopt);
    last = Clock::now();
    if (i == 10) {
      std::puts("running");
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int rank = std::atoi(std::getenv("RANK"));
  const int size = std::atoi(std::getenv("WORLD_SIZE"));
  auto last = Clock::now();
  try {
    TcpStorePlace place;
    place.name = argv[1];
    place.local = true;
    place.job = "test";
    place.rank = rank;
    place.size = size;
    const auto store = open_tcp_store(place, Clock::now() + std::chrono::seconds{20});
    acc::cuda::set_device(rank);
    NcclOptions options;
    options.init_timeout = Millis{20'000};
    options.abort_limit = Millis{std::atoi(argv[3])};
    const auto backend = make_nccl_backend(store, facts_of(rank, size), options);
    reduce_for_ever(*backend, Millis{std::atoi(argv[2])}, last);
  } catch (const Error& error) {
    const auto since = std::chrono::duration_cast<Millis>(Clock::now() - last).count();
    const auto ranks = error.ranks().empty() ? std::string{"-"} : describe_ranks(error.ranks());
    std::printf("error %s [%s] %lld %s\n", std::string{to_string(error.code())}.c_str(),
                ranks.c_str(), static_cast<long long>(since), error.what());
    std::fflush(stdout);
    return 3;
  }
}
