#pragma once

#include "tests/support/collective_oracle.hpp"
#include "tests/unit/runtime/shm/local_ranks.hpp"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

/// One call of each operation, with its result held against the oracle. Throws when it differs.
namespace acc::runtime::testing {

using namespace acc::testing;  // NOLINT: the oracle

struct Case {
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;
  std::uint64_t round = 0;
  std::size_t off = 0;  ///< bytes that the buffers are misaligned by
  int root = 0;
  bool in_place = false;
};

inline void expect(bool right, const LocalRank& rank, Operation operation, const Case& c) {
  if (right) return;
  throw std::runtime_error{"wrong result of " + std::string{to_string(operation)} + " " +
                           std::string{to_string(c.type)} + " x" + std::to_string(c.count) + " " +
                           std::string{to_string(c.op)} + " on rank " +
                           std::to_string(rank.rank()) + " of " + std::to_string(rank.size()) +
                           ", misaligned by " + std::to_string(c.off) +
                           (c.in_place ? ", in place" : "")};
}

inline void verify_all_reduce(LocalRank& rank, const Case& c) {
  Buffer send{inputs(c.type, c.op, 0, c.count, rank.rank(), rank.size(), c.round), c.off};
  Buffer recv{c.count * size_of(c.type), c.off};
  Buffer& out = c.in_place ? send : recv;
  rank.run(Operation::all_reduce, send.data(), out.data(), c.count, c.type, c.op);
  expect(out.holds(reductions(c.type, c.op, 0, c.count, rank.size(), c.round)), rank,
         Operation::all_reduce, c);
}

inline void verify_reduce(LocalRank& rank, const Case& c) {
  Buffer send{inputs(c.type, c.op, 0, c.count, rank.rank(), rank.size(), c.round), c.off};
  Buffer recv{c.count * size_of(c.type), c.off};
  Buffer& out = c.in_place ? send : recv;
  const bool is_root = rank.rank() == c.root;
  rank.run(Operation::reduce, send.data(), is_root ? out.data() : nullptr, c.count, c.type, c.op,
           c.root);
  const bool right = is_root ? out.holds(reductions(c.type, c.op, 0, c.count, rank.size(), c.round))
                             : recv.untouched();
  expect(right, rank, Operation::reduce, c);
}

inline void verify_broadcast(LocalRank& rank, const Case& c) {
  const auto wanted = inputs(c.type, c.op, 0, c.count, c.root, rank.size(), c.round);
  Buffer data{inputs(c.type, c.op, 0, c.count, rank.rank(), rank.size(), c.round), c.off};
  rank.run(Operation::broadcast, data.data(), data.data(), c.count, c.type, c.op, c.root);
  expect(data.holds(wanted), rank, Operation::broadcast, c);
}

/// All ranks' inputs, one behind the other.
inline Bytes inputs_of_all(const Case& c, int ranks) {
  Bytes all;
  for (int r = 0; r < ranks; ++r) {
    const auto one = inputs(c.type, c.op, 0, c.count, r, ranks, c.round);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

inline void verify_all_gather(LocalRank& rank, const Case& c) {
  const auto own = inputs(c.type, c.op, 0, c.count, rank.rank(), rank.size(), c.round);
  Buffer send{own, c.off};
  Buffer recv{own.size() * static_cast<std::size_t>(rank.size()), c.off};
  auto* const rank_state = recv.data() + own.size() * static_cast<std::size_t>(rank.rank());
  if (c.in_place && !own.empty()) std::memcpy(rank_state, own.data(), own.size());
  rank.run(Operation::all_gather, c.in_place ? rank_state : send.data(), recv.data(), c.count,
           c.type);
  expect(recv.holds(inputs_of_all(c, rank.size())), rank, Operation::all_gather, c);
}

inline void verify_gather(LocalRank& rank, const Case& c) {
  const auto own = inputs(c.type, c.op, 0, c.count, rank.rank(), rank.size(), c.round);
  const bool is_root = rank.rank() == c.root;
  Buffer send{own, c.off};
  Buffer recv{own.size() * static_cast<std::size_t>(rank.size()), c.off};
  rank.run(Operation::gather, send.data(), is_root ? recv.data() : nullptr, c.count, c.type, {},
           c.root);
  expect(is_root ? recv.holds(inputs_of_all(c, rank.size())) : recv.untouched(), rank,
         Operation::gather, c);
}

inline void verify_scatter(LocalRank& rank, const Case& c) {
  Buffer send{inputs_of_all(c, rank.size()), c.off};
  Buffer recv{c.count * size_of(c.type), c.off};
  rank.run(Operation::scatter, rank.rank() == c.root ? send.data() : nullptr, recv.data(), c.count,
           c.type, {}, c.root);
  expect(recv.holds(inputs(c.type, c.op, 0, c.count, rank.rank(), rank.size(), c.round)), rank,
         Operation::scatter, c);
}

inline void verify_reduce_scatter(LocalRank& rank, const Case& c) {
  const auto ranks = static_cast<std::size_t>(rank.size());
  const auto own = static_cast<std::size_t>(rank.rank());
  Buffer send{inputs(c.type, c.op, 0, c.count * ranks, rank.rank(), rank.size(), c.round), c.off};
  Buffer recv{c.count * size_of(c.type), c.off};
  auto* const rank_state = send.data() + own * c.count * size_of(c.type);
  rank.run(Operation::reduce_scatter, send.data(), c.in_place ? rank_state : recv.data(), c.count,
           c.type, c.op);
  const auto wanted = reductions(c.type, c.op, own * c.count, c.count, rank.size(), c.round);
  const bool right =
      c.in_place ? wanted.empty() || std::memcmp(rank_state, wanted.data(), wanted.size()) == 0
                 : recv.holds(wanted);
  expect(right, rank, Operation::reduce_scatter, c);
}

inline void verify_all_to_all(LocalRank& rank, const Case& c) {
  const auto ranks = static_cast<std::size_t>(rank.size());
  const auto own = static_cast<std::size_t>(rank.rank());
  Buffer send{inputs(c.type, c.op, 0, c.count * ranks, rank.rank(), rank.size(), c.round), c.off};
  Buffer recv{c.count * ranks * size_of(c.type), c.off};
  rank.run(Operation::all_to_all, send.data(), recv.data(), c.count, c.type);
  Bytes wanted;
  for (int r = 0; r < rank.size(); ++r) {
    const auto one = inputs(c.type, c.op, own * c.count, c.count, r, rank.size(), c.round);
    wanted.insert(wanted.end(), one.begin(), one.end());
  }
  expect(recv.holds(wanted), rank, Operation::all_to_all, c);
}

/// Counts that differ from rank to rank, one of them 0.
inline std::vector<std::size_t> uneven(const Case& c, int ranks) {
  std::vector<std::size_t> counts;
  for (int r = 0; r < ranks; ++r)
    counts.push_back(r == 1 ? 0 : c.count + static_cast<std::size_t>(r) * (c.count / 3 + 1));
  return counts;
}

inline void verify_gather_v(LocalRank& rank, const Case& c, bool to_all) {
  const auto counts = uneven(c, rank.size());
  const bool takes = to_all || rank.rank() == c.root;
  Bytes wanted;
  for (int r = 0; r < rank.size(); ++r) {
    const auto one =
        inputs(c.type, c.op, 0, counts[static_cast<std::size_t>(r)], r, rank.size(), c.round);
    wanted.insert(wanted.end(), one.begin(), one.end());
  }
  Buffer send{inputs(c.type, c.op, 0, counts[static_cast<std::size_t>(rank.rank())], rank.rank(),
                     rank.size(), c.round),
              c.off};
  Buffer recv{wanted.size(), c.off};
  const auto operation = to_all ? Operation::all_gather : Operation::gather;
  rank.run_v(operation, send.data(), takes ? recv.data() : nullptr, counts, c.type,
             to_all ? -1 : c.root);
  expect(takes ? recv.holds(wanted) : recv.untouched(), rank, operation, c);
}

/// Round about: each sends to the next and receives from the one before.
inline void verify_send_recv(LocalRank& rank, const Case& c) {
  const int next = (rank.rank() + 1) % rank.size();
  const int previous = (rank.rank() + rank.size() - 1) % rank.size();
  Buffer send{inputs(c.type, c.op, 0, c.count, rank.rank(), rank.size(), c.round), c.off};
  Buffer recv{c.count * size_of(c.type), c.off};
  const auto out = [&] { rank.send(send.data(), c.count, c.type, next); };
  const auto in = [&] { rank.recv(recv.data(), c.count, c.type, previous); };
  if (rank.rank() == 0) {  // else all would wait for room at once, as the ring is bounded
    out();
    in();
  } else {
    in();
    out();
  }
  expect(recv.holds(inputs(c.type, c.op, 0, c.count, previous, rank.size(), c.round)), rank,
         Operation::recv, c);
}

/// Every operation that doesn't reduce, or does with c.op.
inline void verify_all(LocalRank& rank, Case c) {
  for (const bool in_place : {false, true}) {
    c.in_place = in_place;
    verify_all_reduce(rank, c);
    verify_reduce(rank, c);
    verify_reduce_scatter(rank, c);
    verify_all_gather(rank, c);
  }
  verify_broadcast(rank, c);
  verify_gather(rank, c);
  verify_scatter(rank, c);
  verify_all_to_all(rank, c);
  verify_gather_v(rank, c, true);
  verify_gather_v(rank, c, false);
  if (rank.size() > 1) verify_send_recv(rank, c);
}

}  // namespace acc::runtime::testing
