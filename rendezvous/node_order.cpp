#include "rendezvous/node_order.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

namespace acc::rendezvous {

bool natural_less(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
      continue;
    }
    const auto end_of_number = [&](std::string_view text, std::size_t at) {
      while (at < text.size() && is_digit(text[at])) ++at;
      return at;
    };
    const auto without_zeros = [](std::string_view digits) {
      return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
    };
    const auto i_end = end_of_number(a, i);
    const auto j_end = end_of_number(b, j);
    const auto x = without_zeros(a.substr(i, i_end - i));
    const auto y = without_zeros(b.substr(j, j_end - j));
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
    i = i_end;
    j = j_end;
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;  // node01 and node1 are different hosts
}

namespace {

constexpr std::size_t kNoRank = static_cast<std::size_t>(-1);

// Order of nodes without an old rank or a request: by host, so that two runs number them alike.
bool comes_before(const Candidate& a, const Candidate& b) {
  const auto& x = *a.join;
  const auto& y = *b.join;
  const auto rank_a = a.rank_before.value_or(kNoRank);
  const auto rank_b = b.rank_before.value_or(kNoRank);
  if (rank_a != rank_b) return rank_a < rank_b;
  if (x.wanted.has_value() != y.wanted.has_value()) return x.wanted.has_value();
  if (x.wanted != y.wanted) return x.wanted < y.wanted;
  if (x.host != y.host) return natural_less(x.host, y.host);
  return natural_less(x.node.name, y.node.name);
}

}  // namespace

std::vector<NodeIndex> order_nodes(std::vector<Candidate> candidates, std::uint32_t nodes_min,
                                   std::uint32_t nodes_max) {
  std::ranges::sort(candidates, {}, [](const Candidate& candidate) {
    return std::pair{candidate.rank_before.value_or(kNoRank), candidate.arrival};
  });
  if (candidates.size() > nodes_max) candidates.resize(nodes_max);

  std::vector<NodeIndex> order(candidates.size(), kNoNode);
  std::vector<Candidate> others;
  const bool is_static = nodes_min == nodes_max;
  for (const auto& candidate : candidates) {
    const auto& wanted = candidate.join->wanted;
    const auto rank =
        is_static && wanted ? wanted->value() : candidate.rank_before.value_or(kNoRank);
    if (rank < order.size() && order[rank] == kNoNode) {
      order[rank] = candidate.node;
    } else {
      others.push_back(candidate);
    }
  }
  std::ranges::sort(others, comes_before);
  auto next = others.begin();
  for (auto& node : order) {
    if (node == kNoNode) node = next++->node;
  }
  return order;
}

}  // namespace acc::rendezvous
