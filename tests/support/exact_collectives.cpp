#include "tests/support/exact_collectives.hpp"

#include "tests/support/collective_oracle.hpp"

#include <acc/cuda.hpp>
#include <algorithm>
#include <cstring>
#include <numeric>

namespace acc::testing {

using namespace acc::runtime;
namespace {

constexpr std::byte kPoison{0xA5};
constexpr std::size_t kGuard = 64;  ///< bytes behind a buffer that must stay as they are
/// Of data that is only moved.
using selftest::kMoved;

bool is_whole(DType type) {
  return type != DType::f16 && type != DType::f32 && type != DType::f64 && type != DType::bf16;
}

/// Does NCCL divide as we do? An average is a fraction unless the ranks are a power of two.
bool is_exact(DType type, ReduceOp op, int size) {
  return op != ReduceOp::avg || is_whole(type) || (size & (size - 1)) == 0;
}

}  // namespace

void Verdicts::expect(bool right, const std::string& what) {
  ++checks_;
  if (right) return;
  const std::lock_guard lock{mutex_};
  wrong_.push_back(what);
}

std::vector<std::string> Verdicts::wrong() const {
  const std::lock_guard lock{mutex_};
  return wrong_;
}

/// Device memory with a shifted beginning and a guarded end.
class ExactCollectives::Array {
 public:
  Array(std::size_t bytes, std::size_t shift_bytes, const Bytes* contents)
      : bytes_{bytes}, shift_{shift_bytes}, buffer_{bytes + shift_bytes + kGuard} {
    Bytes all(buffer_.bytes(), kPoison);
    if (contents != nullptr) {
      std::copy(contents->begin(), contents->end(),
                all.begin() + static_cast<std::ptrdiff_t>(shift_));
    }
    acc::cuda::copy(buffer_.data(), all.data(), all.size());
  }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(buffer_.data()) + shift_; }
  /// Its bytes, and empty if what lies around them has changed.
  [[nodiscard]] Bytes read() const {
    Bytes all(buffer_.bytes());
    acc::cuda::copy(all.data(), buffer_.data(), all.size());
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(shift_);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_);
    const auto poisoned = [](std::byte byte) { return byte == kPoison; };
    if (!std::all_of(all.begin(), begin, poisoned) || !std::all_of(end, all.end(), poisoned)) {
      return Bytes(bytes_ + 1);
    }
    return {begin, end};
  }

 private:
  std::size_t bytes_;
  std::size_t shift_;
  acc::cuda::DeviceBuffer buffer_;
};

ExactCollectives::ExactCollectives(int rank, int size, Run run, RunAsOne run_as_one,
                                   Verdicts& verdicts, std::size_t shift)
    : rank_{rank},
      size_{size},
      run_{std::move(run)},
      run_as_one_{std::move(run_as_one)},
      verdicts_{verdicts},
      shift_{shift} {}

void ExactCollectives::all(DType type, std::size_t count) {
  for (const auto op :
       {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
    if (!is_exact(type, op, size_)) continue;
    all_reduce(type, count, op, false);
    all_reduce(type, count, op, true);
    reduce_scatter(type, count, op, false);
    reduce_scatter(type, count, op, true);
    for (const int root : roots()) reduce(type, count, op, root);
  }
  for (const int root : roots()) {
    broadcast(type, count, root);
    gather(type, count, root);
    gather_v(type, count, root);
    scatter(type, count, root);
  }
  all_gather(type, count, false);
  all_gather(type, count, true);
  all_gather_v(type, count);
  all_to_all(type, count);
  ring(type, count);
  in_pairs(type, count);
}

std::vector<int> ExactCollectives::roots() const {
  if (size_ == 1) return {0};
  return size_ <= 3 ? std::vector<int>{0, size_ - 1} : std::vector<int>{0, 1, size_ - 1};
}

Call ExactCollectives::call(Operation operation, const void* send, void* recv, std::size_t count,
                            DType type) {
  Call made;
  made.what.operation = operation;
  made.what.count = count;
  made.what.dtype = type;
  made.what.sequence = ++sequence_;
  made.send = send;
  made.recv = recv;
  made.limit = Millis{60'000};
  return made;
}

void ExactCollectives::expect(const Array& buffer, const Bytes& expected, const Call& made) {
  verdicts_.expect(buffer.read() == expected,
                   "rank " + std::to_string(rank_) + " of " + std::to_string(size_) + ": " +
                       to_string(made.what) + ", shifted by " + std::to_string(shift_));
}

void ExactCollectives::run_and_expect(const Call& made, const Array& buffer,
                                      const Bytes& expected) {
  run_(made);
  expect(buffer, expected, made);
}

ExactCollectives::Array ExactCollectives::own(DType type, std::size_t count, ReduceOp op) const {
  const auto contents = input(type, count, rank_, op);
  return {contents.size(), shift_ * size_of(type), &contents};
}

ExactCollectives::Array ExactCollectives::empty(DType type, std::size_t count) const {
  return {count * size_of(type), shift_ * size_of(type), nullptr};
}

Bytes ExactCollectives::input(DType type, std::size_t count, int rank, ReduceOp op,
                              std::size_t first) const {
  return inputs(type, op, first, count, rank, size_, sequence_);
}

Bytes ExactCollectives::inputs_of_all(DType type, std::size_t count) const {
  Bytes all;
  for (int rank = 0; rank < size_; ++rank) {
    const auto one = input(type, count, rank);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

void ExactCollectives::all_reduce(DType type, std::size_t count, ReduceOp op, bool in_place) {
  const auto expected = reductions(type, op, 0, count, size_, sequence_);
  const auto send = own(type, count, op);
  const auto recv = empty(type, count);
  const auto& into = in_place ? send : recv;
  auto made = call(Operation::all_reduce, send.data(), into.data(), count, type);
  made.what.reduce = op;
  run_and_expect(made, into, expected);
}

void ExactCollectives::reduce(DType type, std::size_t count, ReduceOp op, int root) {
  const auto expected = reductions(type, op, 0, count, size_, sequence_);
  const auto send = own(type, count, op);
  const auto recv = empty(type, count);
  const auto before = recv.read();
  const bool mine = rank_ == root;
  auto made = call(Operation::reduce, send.data(), mine ? recv.data() : nullptr, count, type);
  made.what.reduce = op;
  made.what.root = root;
  run_and_expect(made, recv, mine ? expected : before);
}

void ExactCollectives::reduce_scatter(DType type, std::size_t count, ReduceOp op, bool in_place) {
  const auto whole = count * static_cast<std::size_t>(size_);
  const auto offset = count * static_cast<std::size_t>(rank_);
  const auto expected = reductions(type, op, offset, count, size_, sequence_);
  const auto send = own(type, whole, op);
  const auto recv = empty(type, count);
  auto* const into = in_place ? send.data() + offset * size_of(type) : recv.data();
  auto made = call(Operation::reduce_scatter, send.data(), into, count, type);
  made.what.reduce = op;
  run_(made);
  if (!in_place) return expect(recv, expected, made);
  // The other slices of the input are the implementation's to leave or to overwrite.
  Bytes slice(expected.size());
  acc::cuda::copy(slice.data(), into, slice.size());
  verdicts_.expect(slice == expected,
                   "rank " + std::to_string(rank_) + ": in place: " + to_string(made.what));
}

void ExactCollectives::broadcast(DType type, std::size_t count, int root) {
  const auto expected = input(type, count, root);
  const auto data = own(type, count);
  auto made = call(Operation::broadcast, data.data(), data.data(), count, type);
  made.what.root = root;
  run_and_expect(made, data, expected);
}

void ExactCollectives::all_gather(DType type, std::size_t count, bool in_place) {
  const auto expected = inputs_of_all(type, count);
  const auto send = own(type, count);
  const auto recv = empty(type, count * static_cast<std::size_t>(size_));
  auto* const place = recv.data() + count * size_of(type) * static_cast<std::size_t>(rank_);
  if (in_place) acc::cuda::copy(place, send.data(), count * size_of(type));
  run_and_expect(
      call(Operation::all_gather, in_place ? place : send.data(), recv.data(), count, type), recv,
      expected);
}

void ExactCollectives::all_gather_v(DType type, std::size_t count) {
  std::vector<std::size_t> counts;
  Bytes expected;
  for (int rank = 0; rank < size_; ++rank) {
    counts.push_back(rank == 1 ? 0 : count + static_cast<std::size_t>(rank));
    const auto one = input(type, counts.back(), rank);
    expected.insert(expected.end(), one.begin(), one.end());
  }
  const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const auto send = own(type, counts[static_cast<std::size_t>(rank_)]);
  const auto recv = empty(type, total);
  auto made = call(Operation::all_gather, send.data(), recv.data(), total, type);
  made.counts = counts;
  run_and_expect(made, recv, expected);
}

void ExactCollectives::gather(DType type, std::size_t count, int root) {
  const auto expected = inputs_of_all(type, count);
  const auto send = own(type, count);
  const auto recv = empty(type, count * static_cast<std::size_t>(size_));
  const auto before = recv.read();
  const bool mine = rank_ == root;
  auto made = call(Operation::gather, send.data(), mine ? recv.data() : nullptr, count, type);
  made.what.root = root;
  run_and_expect(made, recv, mine ? expected : before);
}

void ExactCollectives::gather_v(DType type, std::size_t count, int root) {
  std::vector<std::size_t> counts;
  Bytes expected;
  for (int rank = 0; rank < size_; ++rank) {
    counts.push_back(rank == 0 ? count + 3 : count);
    const auto one = input(type, counts.back(), rank);
    expected.insert(expected.end(), one.begin(), one.end());
  }
  const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const auto send = own(type, counts[static_cast<std::size_t>(rank_)]);
  const auto recv = empty(type, total);
  const auto before = recv.read();
  const bool mine = rank_ == root;
  auto made = call(Operation::gather, send.data(), mine ? recv.data() : nullptr, total, type);
  made.what.root = root;
  made.counts = counts;
  run_and_expect(made, recv, mine ? expected : before);
}

void ExactCollectives::scatter(DType type, std::size_t count, int root) {
  const auto whole = count * static_cast<std::size_t>(size_);
  const auto offset = count * static_cast<std::size_t>(rank_);
  const auto expected = input(type, count, root, kMoved, offset);
  const auto send = own(type, whole);
  const auto recv = empty(type, count);
  auto made =
      call(Operation::scatter, rank_ == root ? send.data() : nullptr, recv.data(), count, type);
  made.what.root = root;
  run_and_expect(made, recv, expected);
}

void ExactCollectives::all_to_all(DType type, std::size_t count) {
  const auto whole = count * static_cast<std::size_t>(size_);
  Bytes expected;
  for (int rank = 0; rank < size_; ++rank) {
    const auto one = input(type, count, rank, kMoved, static_cast<std::size_t>(rank_) * count);
    expected.insert(expected.end(), one.begin(), one.end());
  }
  const auto send = own(type, whole);
  const auto recv = empty(type, whole);
  run_and_expect(call(Operation::all_to_all, send.data(), recv.data(), count, type), recv,
                 expected);
}

/// Each rank sends to the next one, as one launch; else all would wait for their receivers.
void ExactCollectives::ring(DType type, std::size_t count) {
  if (size_ == 1) return;
  const int from = (rank_ + size_ - 1) % size_;
  const auto expected = input(type, count, from);
  const auto send = own(type, count);
  const auto recv = empty(type, count);
  auto out = call(Operation::send, send.data(), nullptr, count, type);
  out.peer = (rank_ + 1) % size_;
  auto in = out;
  in.what.operation = Operation::recv;
  in.send = nullptr;
  in.recv = recv.data();
  in.peer = from;
  run_as_one_({out, in});
  expect(recv, expected, in);
}

/// Even ranks send to the next odd one.
void ExactCollectives::in_pairs(DType type, std::size_t count) {
  const bool sends = rank_ % 2 == 0;
  const int peer = sends ? rank_ + 1 : rank_ - 1;
  if (peer >= size_) {
    ++sequence_;
    return;
  }
  const auto expected = input(type, count, peer);
  const auto data = own(type, count);
  auto made = call(sends ? Operation::send : Operation::recv, sends ? data.data() : nullptr,
                   sends ? nullptr : data.data(), count, type);
  made.peer = peer;
  run_(made);
  if (!sends) expect(data, expected, made);
}

}  // namespace acc::testing
