#pragma once

#include <acc/process_group.hpp>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

/// What every backend has to give for calls with counts of each rank's own, and for several
/// messages at once. In host memory, by the typed forms.
namespace acc::testing::uneven {

/// Depends on the sender, the receiver and the place.
inline std::int32_t element(int from, int to, std::size_t i) {
  return from * 1'000'000 + to * 10'000 + static_cast<std::int32_t>(i % 9973);
}

inline std::vector<std::int32_t> elements(int from, int to, std::size_t count) {
  std::vector<std::int32_t> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = element(from, to, i);
  return made;
}

inline void expect(bool truth, const std::string& what) {
  if (!truth) throw std::runtime_error{what};
}

/// Of rank 1 none.
inline std::vector<std::size_t> uneven_counts(int ranks, std::size_t scale) {
  std::vector<std::size_t> counts;
  for (int r = 0; r < ranks; ++r)
    counts.push_back(r == 1 ? 0 : scale + static_cast<std::size_t>(r) * 3);
  return counts;
}

inline void append(std::vector<std::int32_t>& to, const std::vector<std::int32_t>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

inline void check_scatter_v(runtime::ProcessGroup& group, std::size_t scale) {
  const auto counts = uneven_counts(group.size(), scale);
  const auto own = counts[static_cast<std::size_t>(group.rank())];
  for (int root = 0; root < group.size(); ++root) {
    std::vector<std::int32_t> whole;
    if (group.rank() == root)
      for (int r = 0; r < group.size(); ++r)
        append(whole, elements(root, r, counts[static_cast<std::size_t>(r)]));
    std::vector<std::int32_t> got(own, -1);
    group.scatter_v(whole, got, counts, root);
    expect(got == elements(root, group.rank(), own), "scatter_v");
  }
}

inline void check_reduce_scatter_v(runtime::ProcessGroup& group, std::size_t scale) {
  const auto counts = uneven_counts(group.size(), scale);
  const auto own = counts[static_cast<std::size_t>(group.rank())];
  std::vector<std::int32_t> mine, wanted(own, 0);
  for (int r = 0; r < group.size(); ++r)
    append(mine, elements(group.rank(), r, counts[static_cast<std::size_t>(r)]));
  for (int from = 0; from < group.size(); ++from) {
    const auto theirs = elements(from, group.rank(), own);
    for (std::size_t i = 0; i < own; ++i) wanted[i] += theirs[i];
  }
  std::vector<std::int32_t> got(own, -1);
  group.reduce_scatter_v(mine, got, counts);
  expect(got == wanted, "reduce_scatter_v");
  const auto work = group.reduce_scatter_v_async(mine, got, std::vector{counts});
  work.wait();
  expect(got == wanted, "reduce_scatter_v_async, whose counts were a temporary");
}

/// Elements that rank `from` sends to rank `to`.
inline std::size_t between(int from, int to, std::size_t scale) {
  return (from + to) % 3 == 2 ? 0 : scale + static_cast<std::size_t>(from * 5 + to);
}

inline void check_all_to_all_v(runtime::ProcessGroup& group, std::size_t scale) {
  const int me = group.rank();
  std::vector<std::size_t> send_counts, recv_counts;
  std::vector<std::int32_t> send, wanted;
  for (int r = 0; r < group.size(); ++r) {
    send_counts.push_back(between(me, r, scale));
    recv_counts.push_back(between(r, me, scale));
    append(send, elements(me, r, send_counts.back()));
    append(wanted, elements(r, me, recv_counts.back()));
  }
  std::vector<std::int32_t> got(wanted.size(), -1);
  group.all_to_all_v(send, send_counts, got, recv_counts);
  expect(got == wanted, "all_to_all_v");
  got.assign(wanted.size(), -1);
  group.all_to_all_v_async(send, std::vector{send_counts}, got, std::vector{recv_counts}).wait();
  expect(got == wanted, "all_to_all_v_async, whose counts were temporaries");
}

/// None, some that go along with the arrival, and several chunks and a bit.
inline void check_calls(runtime::ProcessGroup& group) {
  for (const std::size_t scale : {std::size_t{0}, std::size_t{2}, std::size_t{700},
                                  std::size_t{20'000}, std::size_t{90'001}}) {
    check_scatter_v(group, scale);
    check_reduce_scatter_v(group, scale);
    check_all_to_all_v(group, scale);
  }
}

/// A ring in which all send before they receive, and all to all in an order in which blocking sends
/// would wait for each other.
inline void check_messages(runtime::ProcessGroup& group) {
  using runtime::Message;
  const int me = group.rank(), n = group.size();
  const int right = (me + 1) % n, left = (me + n - 1) % n;
  for (const std::size_t count : {std::size_t{0}, std::size_t{5}, std::size_t{1'000'000}}) {
    std::vector<std::int32_t> got(count, -1);
    group.sendrecv(elements(me, right, count), right, got, left);
    expect(got == elements(left, me, count), "sendrecv in a ring");
  }
  constexpr std::size_t kCount = 50'000;
  std::vector<std::vector<std::int32_t>> out, in;
  for (int r = 0; r < n; ++r) {
    out.push_back(elements(me, r, kCount));
    in.emplace_back(kCount, -1);
  }
  std::vector<Message> messages;
  for (int step = 0; step < n; ++step) {
    const int peer = me % 2 == 0 ? (me + step) % n : (me + n - step) % n;
    messages.push_back(Message::send(out[static_cast<std::size_t>(peer)], peer));
    messages.push_back(Message::recv(in[static_cast<std::size_t>(n - 1 - step)], n - 1 - step));
  }
  group.batch(messages);
  for (int r = 0; r < n; ++r)
    expect(in[static_cast<std::size_t>(r)] == elements(r, me, kCount), "a batch of messages");
}

}  // namespace acc::testing::uneven
