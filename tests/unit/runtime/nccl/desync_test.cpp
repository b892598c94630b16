#include "runtime/nccl/desync.hpp"

#include <catch2/catch.hpp>

using namespace acc::runtime;
using namespace acc::runtime::nccl;
using Catch::Matchers::Contains;

namespace {

Descriptor all_reduce(std::uint64_t sequence, std::uint64_t count = 1000) {
  return {.sequence = sequence,
          .count = count,
          .operation = Operation::all_reduce,
          .dtype = DType::f32,
          .reduce = ReduceOp::sum};
}

RankProgress at(int rank, std::uint64_t enqueued, std::uint64_t started, std::uint64_t completed) {
  RankProgress progress{.rank = rank};
  const auto what = [](std::uint64_t n) { return n == 0 ? Descriptor{} : all_reduce(n); };
  progress.enqueued = what(enqueued);
  progress.started = what(started);
  progress.completed = what(completed);
  for (auto n = completed; n <= enqueued; ++n) {
    if (n > 0) progress.recent.push_back(all_reduce(n));
  }
  return progress;
}

OverdueCall stuck_at(std::uint64_t sequence, int size) {
  OverdueCall overdue{
      .group = "world", .what = all_reduce(sequence), .waited = Millis{5000}, .rank = 0};
  for (int rank = 0; rank < size; ++rank) {
    overdue.ranks.push_back({.rank = rank, .host = "h" + std::to_string(rank), .pid = 70 + rank});
  }
  return overdue;
}

}  // namespace

SCENARIO("a rank that has not called is named, with its last call", "[runtime][nccl]") {
  const auto error =
      diagnose(stuck_at(17, 3), {at(0, 17, 17, 16), at(1, 17, 17, 16), at(2, 16, 16, 16)});
  CHECK(error.code() == ErrorCode::timed_out);
  CHECK(error.ranks() == std::vector<int>{2});
  CHECK(error.operation() == "all_reduce");
  CHECK(error.sequence() == 17);
  CHECK_THAT(error.what(), Contains("all_reduce f32 x1000 sum #17 did not end within 5 s"));
  CHECK_THAT(error.what(), Contains("rank 2 (host h2, pid 72) has not called it: its last call is "
                                    "all_reduce f32 x1000 sum #16, done"));
  CHECK_THAT(error.what(), Contains("waiting: ranks 0,1"));
}

SCENARIO("a rank that does not answer is named", "[runtime][nccl]") {
  const auto error = diagnose(stuck_at(2, 3), {at(0, 2, 2, 1), std::nullopt, at(2, 2, 2, 1)});
  CHECK(error.code() == ErrorCode::timed_out);
  CHECK(error.ranks() == std::vector<int>{1});
  CHECK_THAT(error.what(), Contains("rank 1 (host h1, pid 71) does not answer"));
}

SCENARIO("a rank that has called nothing yet is named", "[runtime][nccl]") {
  const auto error = diagnose(stuck_at(1, 2), {at(0, 1, 1, 0), at(1, 0, 0, 0)});
  CHECK(error.ranks() == std::vector<int>{1});
  CHECK_THAT(error.what(), Contains("it has called nothing yet"));
}

SCENARIO("ranks that called different things differ at the first such call", "[runtime][nccl]") {
  auto other = at(1, 18, 17, 16);
  other.recent[1] = all_reduce(17, 900);
  const auto error = diagnose(stuck_at(17, 3), {at(0, 18, 17, 16), other, at(2, 17, 17, 16)});
  CHECK(error.code() == ErrorCode::mismatch);
  CHECK(error.ranks() == std::vector<int>{1});
  CHECK(error.sequence() == 17);
  CHECK_THAT(error.what(), Contains("x900") && Contains("rank 1") && Contains("ranks 0,2"));
}

SCENARIO("a difference is found although a rank does not answer", "[runtime][nccl]") {
  auto other = at(2, 17, 17, 16);
  other.recent[1].operation = Operation::broadcast;
  const auto error =
      diagnose(stuck_at(17, 4), {at(0, 17, 17, 16), std::nullopt, other, at(3, 17, 17, 16)});
  CHECK(error.code() == ErrorCode::mismatch);
  CHECK(error.ranks() == std::vector<int>{2});
  CHECK_THAT(error.what(), Contains("ranks 0,3: all_reduce") && Contains("rank 2: broadcast"));
}

SCENARIO("when all have called, the device that has not begun is told", "[runtime][nccl]") {
  const auto error = diagnose(stuck_at(17, 2), {at(0, 17, 17, 16), at(1, 17, 15, 15)});
  CHECK(error.code() == ErrorCode::timed_out);
  CHECK(error.ranks() == std::vector<int>{1});
  CHECK_THAT(error.what(), Contains("all ranks have called it") && Contains("rank 1") &&
                               Contains("device has not begun it"));
}

SCENARIO("a receive that never gets anything names its peer", "[runtime][nccl]") {
  auto overdue = stuck_at(1, 2);
  overdue.what.operation = Operation::recv;
  overdue.peer = 1;
  auto waiting = at(0, 0, 0, 0);
  waiting.enqueued = waiting.started = overdue.what;
  waiting.recent = {overdue.what};
  const auto error = diagnose(overdue, {waiting, at(1, 3, 3, 3)});
  CHECK(error.code() == ErrorCode::timed_out);
  CHECK(error.ranks() == std::vector<int>{1});
  CHECK_THAT(error.what(), Contains("recv f32 x1000 #1 from rank 1") &&
                               Contains("its last call is all_reduce f32 x1000 sum #3, done"));
}

SCENARIO("a rank whose driver hangs says so", "[runtime][nccl]") {
  auto troubled = at(1, 17, 17, 16);
  troubled.trouble = "the CUDA driver has not answered for 12 s";
  const auto error = diagnose(stuck_at(17, 2), {at(0, 17, 17, 16), troubled});
  CHECK_THAT(error.what(), Contains("rank 1 (host h1, pid 71): the CUDA driver has not answered"));
}

SCENARIO("a position survives the store, and nothing else is taken for one", "[runtime][nccl]") {
  auto progress = at(3, 20, 18, 17);
  progress.trouble = "quotes \" and \xff bytes";
  const auto text = to_text(progress);
  auto read = parse_progress(text);
  REQUIRE(read);
  read->trouble = progress.trouble;  // the byte that isn't UTF-8 is replaced
  CHECK(*read == progress);
  for (std::size_t cut = 0; cut < text.size(); ++cut)
    CHECK_FALSE(parse_progress(text.substr(0, cut)));
  for (
      const char* bad :
      {"", "{}", "[]", "null", "7", R"({"rank":"x"})",
       R"({"rank":1,"enqueued":[1,2,3,4,99,0,0],"started":[],"completed":[],"recent":[],"trouble":""})"}) {
    CHECK_FALSE(parse_progress(bad));
  }
}
