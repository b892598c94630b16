// The typed forms of calls, and tensors, of any contiguous range.
#include "tests/support/thread_groups.hpp"
#include "tests/support/uneven_calls.hpp"
#include "tests/unit/runtime/group/scripted_backend.hpp"

#include <catch2/catch.hpp>

#include <acc/operations.hpp>
#include <array>
#include <functional>
#include <list>

using namespace acc::runtime;
using acc::testing::on_ranks;
using acc::testing::Scripted;
using acc::testing::uneven::expect;

namespace {

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& e) {
    return std::string{to_string(e.code())} + ": " + e.what();
  }
  return "nothing was thrown";
}

GroupOptions on_cpu(Millis timeout = std::chrono::seconds{20}) {
  GroupOptions options;
  options.backend = BackendKind::cpu;
  options.timeout = timeout;
  return options;
}

/// Every call, of vectors, arrays, spans of fixed and of any extent, const where it is only read.
void call_with_ranges(ProcessGroup& group) {
  const int me = group.rank();
  const std::vector<float> mine{1.0F, static_cast<float>(me)};
  std::vector<float> sum = mine;
  group.all_reduce(sum);
  expect(sum == std::vector{3.0F, 3.0F}, "all_reduce of a vector");
  std::array<double, 1> largest{static_cast<double>(me)};
  group.all_reduce(largest, ReduceOp::max);
  expect(largest[0] == 2.0, "all_reduce of an array");
  long long whole[2] = {me, 1};
  group.all_reduce(std::span<long long, 2>{whole});
  expect(whole[0] == 3 && whole[1] == 3, "all_reduce of a static span of long long");
  group.reduce(sum, ReduceOp::avg, 1);
  std::array<std::uint8_t, 3> bytes{7, 7, 7};
  group.broadcast(bytes, 0);
  std::vector<float> all(6);
  group.all_gather(mine, all);
  expect(all[5] == 2.0F, "all_gather of a const vector");
  group.gather(std::span{mine}, all, 2);
  const std::vector<float> parts{1, 2, 3};
  std::array<float, 1> part{};
  group.scatter(parts, part, 0);
  expect(part[0] == static_cast<float>(me + 1), "scatter");
  group.reduce_scatter(parts, part, ReduceOp::sum);
  expect(part[0] == 3.0F * static_cast<float>(me + 1), "reduce_scatter");
  std::vector<float> turned(3);
  group.all_to_all(parts, turned);
  expect(turned == std::vector(3, static_cast<float>(me + 1)), "all_to_all");
  const std::vector<std::size_t> counts{2, 0, 1};
  const std::vector<float> own(counts[static_cast<std::size_t>(me)], static_cast<float>(me));
  std::vector<float> three(3);
  group.all_gather_v(own, three, counts);
  expect(three == std::vector{0.0F, 0.0F, 2.0F}, "all_gather_v");
  group.gather_v(own, three, counts, 0);
  std::array<float, 2> message{};
  if (me == 0) group.send(mine, 1);
  if (me == 1) group.recv(message, 0);
  expect(me != 1 || message[0] == 1.0F, "a message");
}

}  // namespace

TEST_CASE("calls take any contiguous range, const where it is only read", "[ranges]") {
  on_ranks(3, call_with_ranges);
}

TEST_CASE("forms that return a handle take ranges as well", "[ranges]") {
  on_ranks(3, [](ProcessGroup& group) {
    const std::vector<float> mine{1.0F, static_cast<float>(group.rank())};
    const std::vector<std::size_t> counts{2, 2, 2};
    std::vector<float> sum = mine, all(6), all_v(6), gathered(6), gathered_v(6), part(2), part_v(2),
                       scattered(2), scattered_v(2), turned(6), turned_v(6), from_left(2);
    std::vector<Work> works;
    works.push_back(group.all_reduce_async(sum));
    works.push_back(group.all_gather_async(mine, all));
    works.push_back(group.all_gather_v_async(mine, all_v, counts));
    works.push_back(group.gather_async(mine, gathered, 0));
    works.push_back(group.gather_v_async(mine, gathered_v, counts, 0));
    wait_all(works);
    works.clear();
    works.push_back(group.reduce_async(sum, ReduceOp::max, 0));
    works.push_back(group.broadcast_async(sum, 0));
    works.push_back(group.reduce_scatter_async(all, part));
    works.push_back(group.reduce_scatter_v_async(all, part_v, counts));
    works.push_back(group.scatter_async(all, scattered, 1));
    works.push_back(group.scatter_v_async(all, scattered_v, counts, 1));
    works.push_back(group.all_to_all_async(all, turned));
    works.push_back(group.all_to_all_v_async(all, counts, turned_v, counts));
    works.push_back(group.send_async(mine, (group.rank() + 1) % 3));
    works.push_back(group.recv_async(from_left, (group.rank() + 2) % 3));
    wait_all(works);
    expect(sum == std::vector{3.0F, 3.0F}, "sums");
    const std::vector<float> gathered_right{1, 0, 1, 1, 1, 2};
    expect(all == gathered_right && all_v == gathered_right, "all gathered");
    if (group.rank() == 0)
      expect(gathered == gathered_right && gathered_v == gathered_right, "gathered");
    const std::vector<float> own{3.0F, 3.0F * static_cast<float>(group.rank())};
    expect(part == own && part_v == own, "reduced and scattered");
    expect(scattered == mine && scattered_v == mine, "scattered");
    expect(turned == turned_v && turned[5] == static_cast<float>(group.rank()), "all to all");
    expect(from_left[1] == static_cast<float>((group.rank() + 2) % 3), "a message");
  });
}

TEST_CASE("views of tensors are taken by calls too, and compared", "[ranges]") {
  auto group = ProcessGroup::single();
  std::vector<float> values{1, 2};
  const std::vector<float> constant{5, 6};
  group.all_reduce(TensorView{values});
  group.all_gather(ConstTensorView{constant}, TensorView{values});
  CHECK(values == constant);
  std::vector<double> other(2);
  CHECK_THAT(error_of([&] { group.all_gather(ConstTensorView{constant}, TensorView{other}); }),
             Catch::StartsWith("invalid_argument: what is sent is f32, what is received f64"));
}

TEST_CASE("a tensor is a view of any contiguous range", "[ranges]") {
  std::vector<float> vector(6);
  std::array<std::int64_t, 4> array{};
  double plain[2] = {};
  CHECK(TensorView{vector}.count() == 6);
  CHECK(TensorView{vector, {2, 3}}.shape == Shape{2, 3});
  CHECK(TensorView{array}.dtype == DType::i64);
  CHECK(TensorView{plain}.data == plain);
  CHECK(TensorView{std::span{plain}}.count() == 2);
  CHECK_THAT(error_of([&] {
               (void)TensorView{vector, {7}};
             }),
             Catch::StartsWith("invalid_argument"));
  const std::vector<float> constant{1, 2, 3};
  const ConstTensorView view{constant, {3, 1}};
  CHECK(view.data == constant.data());
  CHECK(ConstTensorView{TensorView{vector}}.count() == 6);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<TensorView, const std::vector<float>&>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<TensorView, std::vector<float>>);       // dangles
  STATIC_REQUIRE_FALSE(std::is_constructible_v<ConstTensorView, std::vector<float>>);  // dangles
  STATIC_REQUIRE_FALSE(std::is_constructible_v<TensorView, std::vector<bool>&>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<TensorView, std::list<float>&>);
  auto group = ProcessGroup::single();
  CHECK(gather(group, constant).as<float>()[2] == 3.0F);
  CHECK(HostTensor::of(constant, {3}).view().count() == 3);
}

TEST_CASE("lengths and counts that don't fit are refused before anything is sent", "[ranges]") {
  Scripted s{1, 2};
  std::vector<float> two(2), three(3), four(4);
  const std::vector<std::size_t> counts{1, 3}, too_few{4};
  CHECK_THAT(error_of([&] { s.group.all_gather(three, four); }),
             Catch::StartsWith("invalid_argument: all_gather: recv has 4 elements"));
  CHECK_THAT(error_of([&] { s.group.all_to_all(three, three); }),
             Catch::Contains("both need equally many for each of 2 ranks"));
  CHECK_THAT(error_of([&] { s.group.all_gather_v(two, four, counts); }),
             Catch::Contains("send has 2 elements, where the count of rank 1 is 3"));
  CHECK_THAT(error_of([&] { s.group.reduce_scatter_v(three, three, counts); }),
             Catch::Contains("send has 3 elements, where its counts add up to 4"));
  CHECK_THAT(error_of([&] { s.group.scatter_v(four, three, too_few, 0); }),
             Catch::Contains("1 counts for 2 ranks"));
  CHECK_THAT(error_of([&] {
               s.group.all_to_all_v(four, counts, two, std::vector<std::size_t>{1, 1});
             }),
             Catch::EndsWith("what this rank sends to itself isn't what it receives from itself"));
  CHECK_THAT(error_of([&] { s.group.all_gather_v(&two, &four, {}, DType::f32); }),
             Catch::EndsWith("there must be as many counts as ranks"));
  CHECK(s.script->calls.empty());
  CHECK_FALSE(s.group.broken());
}

TEST_CASE("counts of each rank's own, and messages at once, over shared memory", "[ranges]") {
  for (int n = 1; n <= 6; ++n) {
    INFO(n << " ranks");
    const auto check = [](ProcessGroup& group) {
      acc::testing::uneven::check_calls(group);
      acc::testing::uneven::check_messages(group);
      group.barrier();
    };
    CHECK_NOTHROW(on_ranks(n, check));  // the reference
    auto groups = ProcessGroup::threads(n, on_cpu());
    CHECK_NOTHROW(acc::testing::on_all(groups, check));
  }
}

TEST_CASE("what two ranks say of each other is compared", "[ranges]") {
  auto groups = ProcessGroup::threads(3, on_cpu());
  std::array<std::string, 3> told;
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    std::vector<float> data(6), into(6);
    std::vector<std::size_t> send(3, 2), recv(3, 2);
    if (group.rank() == 1) send = {1, 2, 3};
    told[static_cast<std::size_t>(group.rank())] =
        error_of([&] { group.all_to_all_v(data, send, into, recv); });
  });
  for (const auto& text : told) {
    CHECK_THAT(text, Catch::StartsWith("mismatch: "));
    CHECK_THAT(text, Catch::Contains("rank 1 sends 1 elements to rank 0, which expects 2 of it") ||
                         Catch::Contains("rank 1 sends 3 elements to rank 2, which expects 2"));
  }
}

TEST_CASE("one message of a batch that is refused: none is begun", "[ranges]") {
  Scripted s{0, 3};
  std::vector<float> data(2), into(2);
  CHECK_THAT(error_of([&] {
               s.group.batch({Message::send(data, 1), Message::recv(into, 7)});
             }),
             Catch::EndsWith("the peer isn't a rank of the group"));
  CHECK(s.script->calls.empty());
}

TEST_CASE("messages that run at once and share memory are refused, and none is begun", "[ranges]") {
  Scripted s{0, 3};
  std::vector<float> data(6);
  const std::span all{data};
  const auto of = [&](std::vector<Message> messages) {
    return error_of([&] { s.group.batch(messages); });
  };
  const auto into_sent =
      Catch::EndsWith("received into memory that another one of the same call sends");
  CHECK_THAT(error_of([&] { s.group.sendrecv(data, 1, data, 2); }), into_sent);
  CHECK_THAT(error_of([&] { s.group.sendrecv(all.first(4), 1, all.last(3), 2); }), into_sent);
  CHECK_THAT(
      of({Message::send(data, 1), Message::send(all.first(1), 2), Message::recv(all.last(1), 2)}),
      into_sent);
  CHECK_THAT(of({Message::recv(data, 1), Message::recv(data, 2)}),
             Catch::EndsWith("two messages are received into the same memory"));
  CHECK(s.script->calls.empty());
  // One buffer may be sent to several, and parts that only touch are legal.
  CHECK(of({Message::send(all.first(3), 1), Message::send(all.first(3), 2),
            Message::recv(all.subspan(3, 1), 1), Message::recv(all.last(2), 2)}) ==
        "nothing was thrown");
}

TEST_CASE("objects, splits and shared memory have time-outs of their own", "[ranges]") {
  const CallOptions soon{.timeout = Millis{60}};
  const std::vector<std::string> parts{"a", "b"};
  const auto late = [&](const std::function<void(ProcessGroup&)>& call) {
    auto pair = ProcessGroup::threads(2, on_cpu(Millis{0}));
    return error_of([&] { call(pair[0]); });  // rank 1 never comes
  };
  using Catch::StartsWith;
  CHECK_THAT(late([&](auto& g) { (void)g.all_gather_object("x", soon); }), StartsWith("timed_out"));
  CHECK_THAT(late([&](auto& g) { (void)g.gather_object("x", 0, soon); }), StartsWith("timed_out"));
  CHECK_THAT(late([&](auto& g) { (void)g.broadcast_object("x", 1, soon); }),
             StartsWith("timed_out"));
  CHECK_THAT(late([&](auto& g) { (void)g.scatter_object(parts, 1, soon); }),
             StartsWith("timed_out"));
  CHECK_THAT(late([&](auto& g) { (void)g.split(0, 0, "", soon); }), StartsWith("timed_out"));
  CHECK_THAT(late([&](auto& g) {
               (void)g.sub_group(std::array{0, 1}, "", soon);
             }),
             StartsWith("timed_out"));
  CHECK_THAT(late([&](auto& g) { (void)g.allocate_shared(64, soon); }), StartsWith("timed_out"));
}

TEST_CASE("on cpu coalesced calls are carried out as they come", "[ranges]") {
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<float> a{1}, b{2};
    group.coalesce([&] {
      group.all_reduce(a);
      group.all_reduce(b);
    });
    expect(a[0] == 2.0F && b[0] == 4.0F, "coalesced");
  });
}

TEST_CASE("coalesced calls that share memory which one of them writes are refused, also on cpu",
          "[ranges]") {
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<float> a(4, 1), b(4, 1);
    std::vector<float> both(8);
    const auto coalesced = [&](const std::function<void()>& second) {
      return error_of([&] {
        group.coalesce([&] {
          group.all_reduce(a.data(), b.data(), 4, DType::f32);
          second();
        });
      });
    };
    expect(
        coalesced([&] { group.broadcast(b, 0); }).find("of the same coalesce") != std::string::npos,
        "what was received is sent");
    expect(coalesced([&] {
             group.all_reduce(both.data(), a.data() + 3, 1, DType::f32);
           }).find("that another call of the same coalesce sends") != std::string::npos,
           "what is sent is overwritten, by one element");
    expect(coalesced([&] {
             group.all_reduce(a.data(), b.data(), 4, DType::f32);
           }).find("into which another call") != std::string::npos,
           "received twice");
    expect(coalesced([&] { (void)group.all_gather_object("x"); }).find("within coalesce") !=
               std::string::npos,
           "objects, whose memory is the group's");
    expect(coalesced([&] { group.all_gather(a, both); }) == "nothing was thrown",
           "both may send the same memory");
    expect(!group.broken(), "the group is as before");
    group.all_reduce(b);  // afterwards it is nobody's
  });
}

TEST_CASE("ranks that gather tensors of other shapes all learn it", "[ranges]") {
  auto groups = ProcessGroup::threads(3, on_cpu());
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    const std::vector<float> six(6);
    const Shape shape = group.rank() == 1 ? Shape{3, 2} : Shape{2, 3};
    expect(error_of([&] {
             (void)gather(group, ConstTensorView{six, shape});
           })
               .starts_with("mismatch: gather: the ranks have tensors of different shapes: rank 0 "
                            "has f32 [2, 3], rank 1 has f32 [3, 2]; pad_across_processes"),
           "told on every rank");
    expect(!group.broken(), "the group is as before");
    expect(gather(group, six).count() == 18, "it works");
  });
}

TEST_CASE("a rank that gathers another type broke the group, and no rank learned both types",
          "[ranges]") {
  auto groups = ProcessGroup::threads(3, on_cpu());
  acc::testing::on_all(groups, [&](ProcessGroup& group) {
    // As many elements, and as many bytes.
    const std::vector<double> doubles(2);
    const std::vector<std::int64_t> integers(2);
    const auto gather_mine = [&] {
      if (group.rank() == 2) return gather(group, ConstTensorView{integers, Shape{2}});
      return gather(group, ConstTensorView{doubles, Shape{2}});
    };
    expect(error_of([&] { (void)gather_mine(); }) ==
               "mismatch: gather: the ranks have tensors of different types: rank 0 has f64 [2], "
               "rank 2 has i64 [2]",
           "told on every rank");
    expect(!group.broken(), "the group is as before");
    expect(gather(group, doubles).count() == 6, "it works");
  });
}
