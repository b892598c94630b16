#include <catch2/catch.hpp>

#include <acc/wire.hpp>
#include <array>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

using namespace acc::runtime;

namespace {

struct Plain {
  int a;
  double b;
  friend bool operator==(const Plain&, const Plain&) = default;
};
struct Opaque {
  std::vector<int*> where;
};

template <class T>
void round_trip(const T& value) {
  std::string bytes;
  Wire<T>::write(bytes, value);
  std::string_view left = bytes;
  CHECK(Wire<T>::read(left) == value);
  CHECK(left.empty());
  // Whatever part of it comes is an error, and nothing else.
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    std::string_view part{bytes.data(), length};
    CHECK_THROWS_AS(Wire<T>::read(part), Error);
  }
}

}  // namespace

// Spans of rank 0's memory were sent as addresses: SIGSEGV on the others, or their own bytes there.
static_assert(!Wired<int*> && !Wired<std::span<int>> && !Wired<std::span<const float, 3>> &&
              !Wired<std::string_view> && !Wired<std::reference_wrapper<int>> &&
              !Wired<std::array<std::string_view, 2>> && !Wired<std::vector<std::string_view>> &&
              !Wired<std::pair<std::span<int>, int>>);
static_assert(Wired<std::array<int, 3>> && Wired<std::pair<int, int>> &&
              Wired<std::vector<std::string>> && Wired<std::vector<bool>>);

TEST_CASE("samples are the same after the journey, or an error", "[runtime][data]") {
  round_trip(42);
  round_trip(Plain{1, 2.5});
  round_trip(std::string("a\0b", 3));
  round_trip(std::vector<float>{1, 2, 3});
  round_trip(std::vector<std::string>{"", "x", std::string(300, 'y')});
  round_trip(std::vector<std::vector<std::int64_t>>{{1, 2}, {}, {3}});
  round_trip(std::pair<std::vector<float>, int>{{1, 2}, 7});
  round_trip(HostTensor::of<float>(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}));
  round_trip(HostTensor{DType::f16, {0, 4}});
  round_trip(HostTensor{DType::i64, {}});
}

TEST_CASE("lengths that can't be are refused before memory is taken", "[runtime][data]") {
  std::string bytes;
  Wire<std::uint64_t>::write(bytes, std::numeric_limits<std::uint64_t>::max() / 4 + 2);
  bytes += "1234567812345678";
  for (int i = 0; i < 3; ++i) {
    std::string_view in = bytes;
    if (i == 0) CHECK_THROWS_AS(Wire<std::vector<double>>::read(in), Error);
    if (i == 1) CHECK_THROWS_AS(Wire<std::string>::read(in), Error);
    if (i == 2) CHECK_THROWS_AS(Wire<std::vector<std::string>>::read(in), Error);
  }
  std::string tensor;
  Wire<DType>::write(tensor, DType::f64);
  Wire<Shape>::write(tensor, {std::int64_t{1} << 40, std::int64_t{1} << 40});
  std::string_view in = tensor;
  CHECK_THROWS_AS(Wire<HostTensor>::read(in), Error);
}

TEST_CASE("what can't be sent is known when it is compiled", "[runtime][data]") {
  STATIC_REQUIRE(Wired<int>);
  STATIC_REQUIRE(Wired<std::vector<std::pair<std::string, HostTensor>>>);
  STATIC_REQUIRE_FALSE(Wired<Opaque>);
  STATIC_REQUIRE_FALSE(Wired<int*>);
}
