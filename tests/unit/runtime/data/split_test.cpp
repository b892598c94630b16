#include <catch2/catch.hpp>

#include <acc/sampler.hpp>
#include <acc/split.hpp>
#include <numeric>

using namespace acc::runtime;

namespace {

using List = std::vector<int>;

List count_to(std::size_t length) {
  List list(length);
  std::iota(list.begin(), list.end(), 0);
  return list;
}

}  // namespace

TEST_CASE("a split list is whole again when put together", "[runtime][data]") {
  for (std::size_t length = 0; length < 40; ++length) {
    for (int ranks = 1; ranks < 10; ++ranks) {
      CAPTURE(length, ranks);
      List together;
      std::size_t longest = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto mine = split_between_processes(count_to(length), rank, ranks);
        together.insert(together.end(), mine.begin(), mine.end());
        longest = std::max(longest, mine.size());
        // The first ranks take one more.
        CHECK((mine.size() == length / static_cast<std::size_t>(ranks) ||
               static_cast<std::size_t>(rank) < length % static_cast<std::size_t>(ranks)));
      }
      CHECK(together == count_to(length));
      for (int rank = 0; rank < ranks; ++rank) {
        const auto padded = split_between_processes(count_to(length), rank, ranks, true);
        CHECK(padded.size() == longest);
      }
    }
  }
}

TEST_CASE("the list's last element stands in for missing ones", "[runtime][data]") {
  CHECK(split_between_processes(count_to(5), 1, 4, true) == List{2, 4});
  CHECK(split_between_processes(count_to(5), 3, 4, true) == List{4, 4});
  CHECK(split_between_processes(count_to(1), 3, 4, true) == List{0});
  CHECK(split_between_processes(count_to(0), 3, 4, true).empty());
  CHECK(split_between_processes(count_to(5), 1, 4, false) == List{2});
}

TEST_CASE("a tensor is split by rows", "[runtime][data]") {
  std::vector<float> values{0, 1, 10, 11, 20, 21};
  const TensorView tensor{std::span{values}, Shape{3, 2}};
  const auto first = split_between_processes(tensor, 0, 2, true);
  CHECK(first.shape() == Shape{2, 2});
  CHECK(first == HostTensor::of<float>(std::vector<float>{0, 1, 10, 11}, {2, 2}));
  const auto second = split_between_processes(tensor, 1, 2, true);
  CHECK(second == HostTensor::of<float>(std::vector<float>{20, 21, 20, 21}, {2, 2}));
  CHECK(split_between_processes(tensor, 4, 5).shape() == Shape{0, 2});
}

TEST_CASE("a table is split column by column", "[runtime][data]") {
  using Column = std::variant<List, std::vector<std::string>, HostTensor>;
  std::map<std::string, Column> table{{"a", count_to(3)},
                                      {"b", std::vector<std::string>{"x", "y", "z"}},
                                      {"c", HostTensor::of<int>(count_to(3), {3})}};
  const auto mine = split_between_processes(table, 1, 2, true);
  CHECK(std::get<List>(mine.at("a")) == List{2, 2});
  CHECK(std::get<std::vector<std::string>>(mine.at("b")) == std::vector<std::string>{"z", "z"});
  CHECK(std::get<HostTensor>(mine.at("c")) == HostTensor::of<int>(List{2, 2}, {2}));

  table["b"] = std::vector<std::string>{"x"};
  CHECK_THROWS_WITH(split_between_processes(table, 0, 2),
                    "split_between_processes: column 'b' has 1 elements, 'a' has 3");
}

TEST_CASE("what can't be split is refused", "[runtime][data]") {
  float one = 1;
  CHECK_THROWS_AS(split_between_processes(TensorView{&one, DType::f32, {}}, 0, 2), Error);
  CHECK_THROWS_AS(split_between_processes(
                      TensorView{&one, DType::f32, {1}, Device{Device::Kind::cuda, 0}}, 0, 2),
                  Error);
}
