#include "runtime/group/arguments.hpp"

#include <catch2/catch.hpp>

#include <array>

using namespace acc::runtime;

namespace {

constexpr int kSize = 3;

struct Buffers {
  std::array<float, 64> a{};
  std::array<float, 64> b{};
};

Call call_of(Operation operation, const void* send, void* recv, std::size_t count, int root = -1) {
  Call call;
  call.what.operation = operation;
  call.what.dtype = DType::f32;
  call.what.count = count;
  call.what.root = root;
  call.send = send;
  call.recv = recv;
  return call;
}

bool good(const Call& call, int rank = 1) { return fault_of(call, rank, kSize, true) == nullptr; }

}  // namespace

TEST_CASE("a root or a peer outside of the group is refused", "[arguments]") {
  Buffers m;
  for (const auto op :
       {Operation::reduce, Operation::broadcast, Operation::gather, Operation::scatter})
    for (const int root : {-1, 3}) CHECK_FALSE(good(call_of(op, m.a.data(), m.b.data(), 1, root)));
  auto call = call_of(Operation::send, m.a.data(), nullptr, 1);
  for (const int peer : {-1, 3, 1}) {  // 1: itself
    call.peer = peer;
    CHECK_FALSE(good(call));
  }
  CHECK(fault_of(call, 1, kSize, false) == nullptr);  // without waiting it may be itself
}

TEST_CASE("null pointers are refused unless nothing is read or written there", "[arguments]") {
  Buffers m;
  for (const auto op : {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter,
                        Operation::all_to_all}) {
    CHECK_FALSE(good(call_of(op, nullptr, m.b.data(), 1)));
    CHECK_FALSE(good(call_of(op, m.a.data(), nullptr, 1)));
    CHECK(good(call_of(op, nullptr, nullptr, 0)));
  }
  CHECK(good(call_of(Operation::gather, m.a.data(), nullptr, 1, 0)));
  CHECK_FALSE(good(call_of(Operation::gather, m.a.data(), nullptr, 1, 1)));
  CHECK(good(call_of(Operation::reduce, m.a.data(), nullptr, 1, 0)));
  CHECK_FALSE(good(call_of(Operation::reduce, m.a.data(), nullptr, 1, 1)));
  CHECK(good(call_of(Operation::scatter, nullptr, m.b.data(), 1, 0)));
  CHECK_FALSE(good(call_of(Operation::scatter, nullptr, m.b.data(), 1, 1)));
  CHECK_FALSE(good(call_of(Operation::broadcast, nullptr, nullptr, 1, 0)));
}

TEST_CASE("in place is legal where it is meant, any other overlap is refused", "[arguments]") {
  Buffers m;
  float* const x = m.a.data();
  CHECK(good(call_of(Operation::all_reduce, x, x, 8)));
  CHECK_FALSE(good(call_of(Operation::all_reduce, x, x + 1, 8)));
  CHECK(good(call_of(Operation::all_reduce, x, x + 8, 8)));
  CHECK(good(call_of(Operation::reduce, x, x, 8, 1)));
  CHECK_FALSE(good(call_of(Operation::reduce, x, x + 7, 8, 1)));
  CHECK(good(call_of(Operation::reduce, x, x + 7, 8, 0)));  // only the root receives

  CHECK(good(call_of(Operation::all_gather, x + 8, x, 8)));
  CHECK_FALSE(good(call_of(Operation::all_gather, x, x, 8)));
  CHECK(good(call_of(Operation::all_gather, x, x, 8), 0));
  CHECK(good(call_of(Operation::reduce_scatter, x, x + 8, 8)));
  CHECK_FALSE(good(call_of(Operation::reduce_scatter, x, x, 8)));
  CHECK_FALSE(good(call_of(Operation::all_to_all, x, x, 8)));
  CHECK_FALSE(good(call_of(Operation::gather, x + 8, x, 8, 1)));
  CHECK_FALSE(good(call_of(Operation::scatter, x, x + 8, 8, 1)));
}

TEST_CASE("counts of each rank: as many as ranks, and in place behind those before",
          "[arguments]") {
  Buffers m;
  float* const x = m.a.data();
  const std::array<std::size_t, 3> counts{5, 0, 7};
  auto call = call_of(Operation::all_gather, x + 5, x, 12);
  call.counts = counts;
  CHECK(good(call, 2));
  call.send = x + 4;
  CHECK_FALSE(good(call, 2));
  CHECK(good(call, 1));  // sends nothing
  call.counts = std::span{counts}.first(2);
  CHECK_FALSE(good(call));
  const std::array<std::size_t, 3> huge{SIZE_MAX / 8, SIZE_MAX / 8, 1};
  call.counts = huge;
  CHECK_FALSE(good(call));
}

TEST_CASE("more than memory can hold, no such type and no such reduction are refused",
          "[arguments]") {
  Buffers m;
  CHECK_FALSE(good(call_of(Operation::all_reduce, m.a.data(), m.a.data(), SIZE_MAX / 4)));
  CHECK_FALSE(good(call_of(Operation::all_gather, m.a.data(), m.b.data(), SIZE_MAX / 8)));
  auto call = call_of(Operation::all_reduce, m.a.data(), m.a.data(), 1);
  call.what.dtype = static_cast<DType>(10);
  CHECK_FALSE(good(call));
  call.what.dtype = DType::f32;
  call.what.reduce = static_cast<ReduceOp>(5);
  CHECK_FALSE(good(call));
}

TEST_CASE("the digest of counts tells their order and their number apart", "[arguments]") {
  const auto digest = [](std::vector<std::size_t> counts) { return digest_of(counts); };
  CHECK(digest({1, 2}) != digest({2, 1}));
  CHECK(digest({1, 2}) != digest({1, 2, 0}));
  CHECK(digest({3, 0}) != digest({0, 3}));
  CHECK(digest({}) != 0);
}

TEST_CASE("calls at the same time share no memory that one of them writes", "[arguments]") {
  Buffers m;
  float* const x = m.a.data();
  float* const y = m.b.data();
  const auto refused = [&](std::initializer_list<Call> calls) {
    UsedMemory used;
    const char* fault = nullptr;
    for (const Call& call : calls)
      if (fault == nullptr) fault = used.add(call, 1, kSize);
    return fault != nullptr;
  };
  const auto reduce_to = [&](float* from, float* to, std::size_t count) {
    return call_of(Operation::all_reduce, from, to, count);
  };
  CHECK_FALSE(refused({reduce_to(x, x, 8), reduce_to(x + 8, x + 8, 8), reduce_to(y, y, 64)}));
  CHECK(refused({reduce_to(x, x, 8), reduce_to(x + 7, x + 7, 1)}));
  CHECK(refused({reduce_to(x + 7, x + 7, 1), reduce_to(x, x, 8)}));
  CHECK_FALSE(refused({reduce_to(x, y, 8), reduce_to(x + 4, y + 8, 8), reduce_to(x, y + 16, 16)}));
  CHECK(refused({reduce_to(x, y, 8), reduce_to(x + 20, y + 8, 8), reduce_to(y + 15, y + 30, 1)}));
  CHECK(refused({reduce_to(x, y, 8), reduce_to(x + 20, y + 8, 8), reduce_to(y + 40, x + 27, 1)}));
  // What a rank only passes to others, or doesn't touch.
  CHECK_FALSE(refused({call_of(Operation::broadcast, x, x, 8, 1), reduce_to(x, y, 8)}));
  CHECK(refused({call_of(Operation::broadcast, x, x, 8, 0), reduce_to(x, y, 8)}));
  CHECK_FALSE(refused({call_of(Operation::reduce, y, x, 8, 0), reduce_to(x, y + 8, 8)}));
  CHECK(refused({call_of(Operation::reduce, y, x, 8, 1), reduce_to(x, y + 8, 8)}));
  CHECK(refused({call_of(Operation::all_gather, y, x, 8), reduce_to(x + 23, y + 8, 1)}));
  CHECK_FALSE(refused({call_of(Operation::all_gather, y, x, 8), reduce_to(x + 24, y + 8, 1)}));
  CHECK_FALSE(refused({call_of(Operation::barrier, nullptr, nullptr, 0), reduce_to(x, x, 0)}));
}
