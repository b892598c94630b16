#include "launcher/ctl/top/table.hpp"

#include "common/text.hpp"
#include "launcher/ctl/top/columns.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace acc::ctl::top {

namespace {

/// The indices of `keys` in order; equal ones stay as they are.
std::vector<std::size_t> sorted(const std::vector<SortKey>& keys, bool is_descending) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const auto& x = keys[is_descending ? b : a];
    const auto& y = keys[is_descending ? a : b];
    return std::tie(x.number, x.text) < std::tie(y.number, y.text);
  });
  return order;
}

std::string id_of_rank(const RankFigures& rank) {
  return "rank " + std::to_string(rank.node) + "." + std::to_string(rank.local_rank);
}

/// Words and numbers that a user knows a row by; figures change each second.
bool is_searched(std::string_view column, bool is_right) {
  return !is_right || column == "RANK" || column == "PID" || column == "EXIT";
}

}  // namespace

std::vector<TableRow> rows_of(std::span<const JobRow> jobs, const TableState& state,
                              std::int64_t now_ms) {
  const auto& column = job_columns()[std::min(state.column, job_columns().size() - 1)];
  std::vector<SortKey> keys;
  keys.reserve(jobs.size());
  for (const auto& job : jobs) keys.push_back(column.key(job, now_ms));
  std::vector<TableRow> rows;
  for (const auto i : sorted(keys, state.is_descending)) {
    if (fits_filter(text_of_row(jobs[i], now_ms), state.filter))
      rows.push_back({jobs[i].id, i, false});
  }
  return rows;
}

std::vector<TableRow> rows_of(const JobFigures& job, const TableState& state) {
  const auto& column = rank_columns()[std::min(state.column, rank_columns().size() - 1)];
  std::vector<SortKey> keys;
  keys.reserve(job.ranks.size());
  for (const auto& rank : job.ranks) keys.push_back(column.key(job, rank));
  const auto order = sorted(keys, state.is_descending);
  std::vector<TableRow> rows;
  const auto add_ranks = [&](auto is_wanted) {
    for (const auto i : order) {
      const TableRow row{id_of_rank(job.ranks[i]), i, false};
      if (is_wanted(job.ranks[i]) && fits_filter(text_of_row(job, row), state.filter))
        rows.push_back(row);
    }
  };
  // Without the tree only what has no ranks here has a row of its own.
  for (std::size_t node = 0; state.is_tree && node < job.nodes.size(); ++node) {
    rows.push_back({"node " + std::to_string(node), node, true});
    const auto before = rows.size();
    add_ranks([&](const RankFigures& rank) { return rank.node == node; });
    const bool is_hidden =
        rows.size() == before && !fits_filter(text_of_row(job, rows.back()), state.filter);
    if (is_hidden) rows.pop_back();
  }
  if (state.is_tree) return rows;
  add_ranks([](const RankFigures&) { return true; });
  for (std::size_t node = 0; node < job.nodes.size(); ++node) {
    const bool has_ranks =
        std::ranges::any_of(job.ranks, [&](const auto& rank) { return rank.node == node; });
    const TableRow row{"node " + std::to_string(node), node, true};
    if (!has_ranks && job.nodes.size() > 1 && fits_filter(text_of_row(job, row), state.filter))
      rows.push_back(row);
  }
  return rows;
}

std::string text_of_row(const JobRow& job, std::int64_t now_ms) {
  std::string text;
  for (const auto& column : job_columns())
    if (is_searched(column.name, column.is_right)) text += column.text(job, now_ms) + "  ";
  return text;
}

std::string text_of_row(const JobFigures& job, const TableRow& row) {
  if (row.is_node) {
    const auto& node = job.nodes[row.index];
    return node.name + "  " + node.state + "  " + node.why;
  }
  std::string text;
  for (const auto& column : rank_columns())
    if (is_searched(column.name, column.is_right))
      text += column.text(job, job.ranks[row.index]) + "  ";
  return text;
}

bool fits_filter(std::string_view text, std::string_view filter) {
  if (filter.empty()) return true;
  const auto lower = to_lower(text);
  bool has_any = false;
  for (const auto& one : split(to_lower(filter), '|')) {
    if (one.empty()) continue;
    has_any = true;
    if (lower.find(one) != std::string::npos) return true;
  }
  return !has_any;
}

std::size_t selected_index(const std::vector<TableRow>& rows, const TableState& state) {
  const auto found = std::ranges::find(rows, state.selected, &TableRow::id);
  if (found != rows.end()) return static_cast<std::size_t>(found - rows.begin());
  return rows.empty() ? 0 : std::min(state.at, rows.size() - 1);
}

void scroll_to(TableState& state, std::size_t selected, std::size_t rows, std::size_t height) {
  const auto last_first = rows > height ? rows - height : 0;
  if (selected < state.first) state.first = selected;
  if (height > 0 && selected >= state.first + height) state.first = selected + 1 - height;
  state.first = std::min(state.first, last_first);
}

}  // namespace acc::ctl::top
