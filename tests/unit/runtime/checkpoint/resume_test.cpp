#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>

#include <acc/checkpoint.hpp>
#include <mutex>
#include <numeric>

using namespace acc::testing;
using acc::runtime::Error;

TEST_CASE("another number of ranks goes on with the same state", "[runtime][checkpoint]") {
  const auto before = GENERATE(1, 2, 3, 5, 8);
  const auto after = GENERATE(1, 2, 3, 4, 8);
  const TemporaryFolder folder;
  save_seed(folder.path(), before, 1, 6);
  CHECK(loaded_seed(folder.path(), after) == 6);
}

TEST_CASE("pieces of any length make the same tensor", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  const std::vector<std::vector<std::size_t>> cuts{{10}, {0, 10}, {10, 0, 0}, {1, 2, 3, 4}, {9, 1}};
  std::vector<std::int32_t> whole(10);
  std::iota(whole.begin(), whole.end(), 100);
  const auto piece_of = [&](const std::vector<std::size_t>& cut, int rank) {
    const auto first = std::accumulate(cut.begin(), cut.begin() + rank, std::size_t{0});
    return std::vector<std::int32_t>(
        whole.begin() + static_cast<std::ptrdiff_t>(first),
        whole.begin() + static_cast<std::ptrdiff_t>(first + cut[static_cast<std::size_t>(rank)]));
  };
  for (const auto& from : cuts) {
    on_ranks(static_cast<int>(from.size()), [&](ProcessGroup& group) {
      Checkpointer checkpoints{group, quiet_options(folder.path())};
      auto piece = piece_of(from, group.rank());
      CheckpointState state;
      state.tensors = {{"m", std::span{piece}, Placement::sharded}};
      checkpoints.save(0, state);
    });
    for (const auto& to : cuts) {
      on_ranks(static_cast<int>(to.size()), [&](ProcessGroup& group) {
        Checkpointer checkpoints{group, quiet_options(folder.path())};
        auto expected = piece_of(to, group.rank());
        std::vector<std::int32_t> piece(expected.size());
        CheckpointState state;
        state.tensors = {{"m", std::span{piece}, Placement::sharded}};
        checkpoints.load(state);
        if (piece != expected) throw std::runtime_error{"not the piece of this rank"};
      });
    }
  }
}

TEST_CASE("what was in pieces can be had whole, and the other way round", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  on_ranks(3, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(folder.path())};
    std::vector<float> mine(2, static_cast<float>(group.rank()));
    std::vector<float> all{0, 0, 1, 1, 2, 2};
    CheckpointState state;
    state.tensors = {{"pieces", std::span{mine}, Placement::sharded}, {"whole", std::span{all}}};
    checkpoints.save(0, state);

    std::vector<float> whole(6), piece(2);
    CheckpointState other;
    other.tensors = {{"pieces", std::span{whole}}, {"whole", std::span{piece}, Placement::sharded}};
    checkpoints.load(other);
    if (whole != all || piece != mine) throw std::runtime_error{"not what was saved"};
  });
}

TEST_CASE("each rank's own state stays with its number", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 3, 1, 6);
  on_ranks(2, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(folder.path())};
    SmallRun run{group.rank(), 2};
    const auto restored = checkpoints.load(run.state());
    const auto& checkpoint = restored.value().checkpoint;
    if (checkpoint.ranks() != 3 || checkpoint.number() != 1 || !restored->unused.empty() ||
        restored->per_rank.at("rng") != "[6," + std::to_string(group.rank()) + "]" ||
        checkpoint.of_rank(2).at("rng") != "[6,2]" || !checkpoint.of_rank(3).empty()) {
      throw std::runtime_error{"not the state of the ranks"};
    }
  });
}

TEST_CASE("JSON comes back as it was meant", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  const StateTexts texts{{"a", "18446744073709551615"},
                         {"b \"x\"", "{\"z\":1,\"a\":[0.1,-1e-300,null,true]}"},
                         {"c", "\"\xc3\xbc\""},
                         {"", "{}"}};
  on_ranks(1, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(folder.path())};
    CheckpointState state;
    state.shared = texts;
    checkpoints.save(0, state);
    CheckpointState none;
    if (checkpoints.load(none).value().shared != texts) throw std::runtime_error{"other texts"};
  });
}

namespace {

/// What `ranks` threads fail with when they load a checkpoint of one rank's SmallRun into the
/// state that `change` makes of theirs: the same on all.
std::string refusal(const std::function<void(CheckpointState&, int rank)>& change,
                    ErrorCode expected = ErrorCode::invalid_argument) {
  const TemporaryFolder folder;
  save_seed(folder.path(), 1, 1, 6);
  std::mutex guard;
  std::vector<std::string> words;
  on_ranks(3, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(folder.path())};
    SmallRun run{group.rank(), 3};
    auto state = run.state();
    change(state, group.rank());
    try {
      checkpoints.load(state);
    } catch (const Error& error) {
      const std::lock_guard lock{guard};
      words.push_back(error.code() == expected ? error.what() : "another code");
    }
    group.barrier();  // it is as usable as before
    SmallRun again{group.rank(), 3};
    checkpoints.load(again.state());
  });
  REQUIRE(words.size() == 3);
  return words.front();
}

}  // namespace

TEST_CASE("a state that doesn't fit the checkpoint is refused on all ranks",
          "[runtime][checkpoint]") {
  std::vector<float> some(1000);
  CHECK_THAT(refusal([](auto& state, int) { state.tensors[0].name = "else"; }),
             Catch::Contains("has no tensor 'else'"));
  CHECK_THAT(refusal([](auto& state, int) { state.tensors[0].part = "else"; }),
             Catch::Contains("has no tensor 'weights' in the part 'else'"));
  CHECK_THAT(
      refusal([](auto& state, int rank) {
        if (rank == 2) state.tensors[0].view.shape = {100, 3};
      }),
      Catch::Contains("rank 2") && Catch::Contains("[3, 100]") && Catch::Contains("[100, 3]"));
  CHECK_THAT(refusal([](auto& state, int) {
               state.tensors[0].view.shape = {2, 100};
             }),
             Catch::Contains("[2, 100]"));
  CHECK_THAT(refusal([](auto& state, int) { state.tensors[0].view.dtype = DType::i32; }),
             Catch::Contains("f32") && Catch::Contains("i32"));
  CHECK_THAT(
      refusal([](auto& state, int rank) {
        if (rank == 1) state.tensors[2].view.shape.front() -= 1;
      }),
      Catch::Contains("'momentum'") && Catch::Contains("[1000]") && Catch::Contains("[999]"));
  CHECK_THAT(refusal([](auto& state, int) { state.tensors[2].view.shape.clear(); }),
             Catch::Contains("'momentum'"));
  CHECK_THAT(refusal([](auto& state, int rank) {
               if (rank == 1) state.tensors.pop_back();
             }),
             Catch::Contains("other sharded tensors"));
}

TEST_CASE("what a checkpoint has beyond the state is told", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 1, 1, 6);
  on_ranks(1, [&](ProcessGroup& group) {
    Checkpointer checkpoints{group, quiet_options(folder.path())};
    SmallRun run{0, 1};
    auto state = run.state();
    state.tensors.erase(state.tensors.begin() + 1);
    if (checkpoints.load(state).value().unused != std::vector<std::string>{"steps"}) {
      throw std::runtime_error{"not told"};
    }
  });
}

TEST_CASE("reading a checkpoint without a group", "[runtime][checkpoint]") {
  const TemporaryFolder folder;
  save_seed(folder.path(), 2, 1, 6);
  const Checkpoint checkpoint{folder / "checkpoint_1"};
  CHECK(checkpoint.tensors().size() == 4);
  const auto* second = checkpoint.find("optimizer", "second");
  REQUIRE(second != nullptr);
  CHECK(second->shape == Shape{7, 3});
  CHECK(second->dtype == DType::bf16);
  CHECK(second->placement == Placement::sharded);
  const SmallRun whole{0, 1, 6};
  CHECK(checkpoint.read("optimizer", "momentum") ==
        HostTensor::of(std::span<const float>{whole.momentum}, {1000}));
  CHECK(checkpoint.read("optimizer", "steps").shape() == Shape{});
  std::vector<float> some(4);
  checkpoint.read("optimizer", "momentum", 498, std::span{some});
  CHECK(some == std::vector<float>(whole.momentum.begin() + 498, whole.momentum.begin() + 502));
  CHECK_THROWS_WITH(checkpoint.read("optimizer", "momentum", 997, std::span{some}),
                    Catch::Contains("from row 997"));
  CHECK_THROWS_WITH(checkpoint.read("optimizer", "momentum", -1, std::span{some}),
                    Catch::Contains("from row -1"));
  CHECK_THROWS_WITH(Checkpoint{folder / "none"}, Catch::Contains("No such file"));
}
