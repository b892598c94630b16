#include "runtime/group/group.hpp"
#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <array>

using namespace acc::runtime;
using acc::testing::on_ranks;

namespace {

void expect(bool truth, const std::string& what) {
  if (!truth) throw std::runtime_error{what};
}

int sum_of_ranks(ProcessGroup& group, int mine) {
  std::int32_t x = mine;
  group.all_reduce(&x, &x, 1, DType::i32);
  return x;
}

}  // namespace

TEST_CASE("split: the same color is a group, in the order of key and rank", "[split]") {
  const auto check = [](ProcessGroup& group) {
    auto part = group.split(group.rank() % 2, -group.rank());
    expect(part.size() == (group.rank() % 2 == 0 ? 3 : 2), "size");
    expect(part.rank() == (part.size() - 1) - group.rank() / 2, "the order is turned round");
    expect(sum_of_ranks(part, group.rank()) == (group.rank() % 2 == 0 ? 6 : 4), "sum");
    expect(part.name() == "world/1." + std::to_string(group.rank() % 2), "name");
    group.barrier();
  };
  on_ranks(5, check);
  GroupOptions options;
  options.backend = BackendKind::cpu;
  auto groups = ProcessGroup::threads(5, options);  // the library's own
  acc::testing::on_all(groups, check);
}

TEST_CASE("split: equal keys keep the order, a negative color has no group", "[split]") {
  on_ranks(4, [](ProcessGroup& group) {
    auto part = group.split(group.rank() == 1 ? -1 : 7, 0, "three");
    if (group.rank() == 1) {
      expect(!part, "none");
    } else {
      expect(part.name() == "three" && part.size() == 3, "facts");
      expect(part.rank() == (group.rank() == 0 ? 0 : group.rank() - 1), "order");
      part.barrier();
    }
    group.barrier();
  });
}

TEST_CASE("sub_group: these ranks in this order, nothing on the others", "[split]") {
  on_ranks(4, [](ProcessGroup& group) {
    const std::array ranks{3, 1};
    for (int again = 0; again < 3; ++again) {  // each one is new
      auto part = group.sub_group(ranks);
      if (group.rank() % 2 == 0) {
        expect(!part, "none");
        continue;
      }
      expect(part.rank() == (group.rank() == 3 ? 0 : 1), "rank");
      expect(sum_of_ranks(part, group.rank()) == 4, "sum");
      auto alone = part.split(part.rank(), 0);
      expect(alone.size() == 1 && sum_of_ranks(alone, 9) == 9, "a part of a part");
      part.barrier();
    }
    group.barrier();
  });
}

TEST_CASE("sub_group: ranks that aren't there or come twice are refused", "[split]") {
  on_ranks(2, [](ProcessGroup& group) {
    for (const auto& ranks : {std::vector{0, 2}, std::vector{-1}, std::vector{1, 1}}) {
      try {
        (void)group.sub_group(ranks);
        expect(false, "it was taken");
      } catch (const Error& e) {
        expect(e.code() == ErrorCode::invalid_argument, e.what());
      }
    }
    const std::vector<int> nobody;
    expect(!group.sub_group(nobody), "an empty group is none");
    group.barrier();
  });
}

TEST_CASE("sub_group: the rank whose list differs from the others' is blamed on every rank",
          "[split]") {
  std::vector<std::vector<int>> blamed(4);
  on_ranks(4, [&](ProcessGroup& group) {
    const std::vector<int> ranks = group.rank() == 2 ? std::vector{0, 1, 2} : std::vector{0, 1, 3};
    try {
      (void)group.sub_group(ranks);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::mismatch)
        blamed[static_cast<std::size_t>(group.rank())] = error.ranks();
    }
  });
  CHECK(blamed == std::vector<std::vector<int>>(4, {2}));
}

TEST_CASE("sub_group: ranks with different lists all learn it", "[split]") {
  auto groups = acc::testing::thread_groups(3);
  std::vector<ErrorCode> codes(3, ErrorCode::system);
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    const std::vector ranks = group.rank() == 2 ? std::vector{0, 1} : std::vector{0, 2};
    try {
      (void)group.sub_group(ranks);
    } catch (const Error& e) {
      codes[static_cast<std::size_t>(group.rank())] = e.code();
    }
  });
  CHECK(codes == std::vector<ErrorCode>(3, ErrorCode::mismatch));
}

TEST_CASE("a group that can't be split says so", "[split]") {
  GroupFacts facts;
  facts.name = "fixed";
  auto backends = acc::testing::thread_backends(1);
  ProcessGroup group{
      std::make_shared<Group>(facts, std::move(backends[0]), nullptr, GroupOptions{})};
  CHECK_THROWS_WITH(group.split(0, 0), "group 'fixed' can't be split");
}
