#include "runtime/selftest/checks.hpp"
#include "runtime/selftest/elements.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace acc::selftest {

using namespace runtime;

namespace {

constexpr DType kTypes[] = {DType::i8,  DType::u8,  DType::i32, DType::u32, DType::i64,
                            DType::u64, DType::f16, DType::f32, DType::f64, DType::bf16};
constexpr ReduceOp kReductions[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min,
                                    ReduceOp::avg};
// Not divisible by ranks or vectors; around the size where small messages end; several chunks.
constexpr std::size_t kCounts[] = {0, 1, 7, 1000, 8209, 70001};
/// Of all ranks together, where each has a part for every other: on some hundred ranks the check
/// would take minutes else, and find no more.
constexpr std::size_t kMostElements = 640'000;

std::size_t count_for(const ProcessGroup& group, std::size_t count) {
  return std::min(count, kMostElements / static_cast<std::size_t>(group.size()) + 1);
}

/// One size and type of every operation, with misaligned buffers and fresh values in each.
class Round {
 public:
  Round(ProcessGroup& group, DType type, std::size_t count)
      : group_{group},
        type_{type},
        count_{count},
        rank_{group.rank()},
        size_{group.size()},
        ranks_{static_cast<std::size_t>(size_)} {}

  void reductions() {
    for (const auto op : kReductions) {
      all_reduce(op);
      reduce(op);
      reduce_scatter(op);
    }
  }

  void moves() {
    broadcast();
    all_gather();
    gather();
    scatter();
    all_to_all();
    ring();
  }

 private:
  using Expected = std::function<double(std::size_t)>;

  Elements mine(ReduceOp op, std::size_t count) {
    ++iteration_;
    Elements made{type_, count, 1};
    for (std::size_t i = 0; i < count; ++i) made.set(i, value_of(op, rank_, size_, i, iteration_));
    return made;
  }

  Elements poisoned(std::size_t count) const {
    Elements made{type_, count, 3};
    made.poison();
    return made;
  }

  void compare(const Elements& got, const Expected& expected, const std::string& what) const {
    for (std::size_t i = 0; i < got.count(); ++i) {
      const double wanted = expected(i);
      if (got.get(i) == wanted) continue;
      throw Failed{what + " " + std::string{to_string(type_)} + " x" + std::to_string(count_) +
                   ": element " + std::to_string(i) + " is " + std::to_string(got.get(i)) +
                   ", not " + std::to_string(wanted)};
    }
  }

  void all_reduce(ReduceOp op) {
    auto data = mine(op, count_);
    group_.all_reduce(data.data(), data.data(), count_, type_, op);
    compare(
        data, [&](std::size_t i) { return reduced(op, type_, size_, i, iteration_); },
        "all_reduce " + std::string{to_string(op)});
  }

  void reduce(ReduceOp op) {
    auto data = mine(op, count_);
    auto result = poisoned(count_);
    const int root = iteration_ % size_;
    group_.reduce(data.data(), result.data(), count_, type_, op, root);
    if (rank_ == root)
      compare(
          result, [&](std::size_t i) { return reduced(op, type_, size_, i, iteration_); },
          "reduce " + std::string{to_string(op)});
  }

  void reduce_scatter(ReduceOp op) {
    auto data = mine(op, count_ * ranks_);
    auto result = poisoned(count_);
    group_.reduce_scatter(data.data(), result.data(), count_, type_, op);
    const auto first = static_cast<std::size_t>(rank_) * count_;
    compare(
        result, [&](std::size_t i) { return reduced(op, type_, size_, first + i, iteration_); },
        "reduce_scatter " + std::string{to_string(op)});
  }

  [[nodiscard]] double plain(int rank, std::size_t index) const {
    return value_of(kMoved, rank, size_, index, iteration_);
  }

  void broadcast() {
    auto data = mine(kMoved, count_);
    const int root = iteration_ % size_;
    group_.broadcast(data.data(), count_, type_, root);
    compare(
        data, [&](std::size_t i) { return plain(root, i); }, "broadcast");
  }

  void all_gather() {
    auto data = mine(kMoved, count_);
    auto result = poisoned(count_ * ranks_);
    group_.all_gather(data.data(), result.data(), count_, type_);
    compare(
        result, [&](std::size_t i) { return plain(static_cast<int>(i / count_), i % count_); },
        "all_gather");
  }

  void gather() {
    auto data = mine(kMoved, count_);
    const int root = iteration_ % size_;
    auto result = poisoned(rank_ == root ? count_ * ranks_ : 0);
    group_.gather(data.data(), rank_ == root ? result.data() : nullptr, count_, type_, root);
    compare(
        result, [&](std::size_t i) { return plain(static_cast<int>(i / count_), i % count_); },
        "gather");
  }

  void scatter() {
    auto data = mine(kMoved, count_ * ranks_);
    auto result = poisoned(count_);
    const int root = iteration_ % size_;
    group_.scatter(rank_ == root ? data.data() : nullptr, result.data(), count_, type_, root);
    const auto first = static_cast<std::size_t>(rank_) * count_;
    compare(
        result, [&](std::size_t i) { return plain(root, first + i); }, "scatter");
  }

  void all_to_all() {
    auto data = mine(kMoved, count_ * ranks_);
    auto result = poisoned(count_ * ranks_);
    group_.all_to_all(data.data(), result.data(), count_, type_);
    const auto first = static_cast<std::size_t>(rank_) * count_;
    compare(
        result,
        [&](std::size_t i) { return plain(static_cast<int>(i / count_), first + i % count_); },
        "all_to_all");
  }

  /// To the next, from the one before: even ranks send first.
  void ring() {
    if (size_ == 1) return;
    auto data = mine(kMoved, count_);
    auto result = poisoned(count_);
    const int next = (rank_ + 1) % size_;
    const int before = (rank_ + size_ - 1) % size_;
    auto receiving = group_.recv_async(result.data(), count_, type_, before);
    auto sending = group_.send_async(data.data(), count_, type_, next);
    receiving.wait();
    sending.wait();
    compare(
        result, [&](std::size_t i) { return plain(before, i); }, "send, recv");
  }

  ProcessGroup& group_;
  DType type_;
  std::size_t count_;
  int rank_, size_;
  std::size_t ranks_;
  int iteration_ = 0;
};

}  // namespace

std::string check_reductions(ProcessGroup& group) {
  for (const auto type : kTypes)
    for (const auto count : kCounts) Round{group, type, count_for(group, count)}.reductions();
  return "all_reduce, reduce, reduce_scatter: exact in 10 types, 5 reductions, 6 sizes";
}

std::string check_moves(ProcessGroup& group) {
  for (const auto type : kTypes)
    for (const auto count : kCounts) Round{group, type, count_for(group, count)}.moves();
  for (int i = 0; i < 100; ++i) group.barrier();
  return "broadcast, gather, scatter, all_to_all, send … exact in 10 types, 6 sizes";
}

std::string check_objects(ProcessGroup& group) {
  const auto of = [](int rank) {
    return std::string(static_cast<std::size_t>(rank) * 1000, 'x') + std::to_string(rank);
  };
  const auto all = group.all_gather_object(of(group.rank()));
  for (int rank = 0; rank < group.size(); ++rank)
    if (all.at(static_cast<std::size_t>(rank)) != of(rank))
      throw Failed{"all_gather_object: the text of rank " + std::to_string(rank) + " is another"};
  const int last = group.size() - 1;
  if (group.broadcast_object(of(group.rank()), last) != of(last))
    throw Failed{"broadcast_object: not the text of rank " + std::to_string(last)};
  return "texts of different lengths arrive whole";
}

std::string check_sub_groups(ProcessGroup& group) {
  auto half = group.split(group.rank() % 2, group.rank());
  std::int64_t sum = group.rank();
  half.all_reduce(&sum, &sum, 1, DType::i64);
  std::int64_t wanted = 0;
  for (int rank = group.rank() % 2; rank < group.size(); rank += 2) wanted += rank;
  if (sum != wanted)
    throw Failed{"split into even and odd ranks: the sum of ranks is " + std::to_string(sum) +
                 ", not " + std::to_string(wanted)};
  return "even and odd ranks reduce by themselves";
}

}  // namespace acc::selftest
