#pragma once

#include "launcher/ctl/top/cells.hpp"
#include "launcher/ctl/top/figures.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// The columns of both tables: what they show, and what they are sorted by (pure).
namespace acc::ctl::top {

/// What a row is sorted by: the number, then the text.
struct SortKey {
  double number = 0;
  std::string text{};
};

struct RankColumn {
  std::string_view name;
  std::string_view help;  ///< in the menu of columns
  bool is_right = false;
  bool is_descending = false;  ///< the order that it begins with: large figures first
  std::string (*text)(const JobFigures&, const RankFigures&) = nullptr;
  SortKey (*key)(const JobFigures&, const RankFigures&) = nullptr;
  /// Of a node's row in the tree; null: nothing.
  std::string (*total)(const JobFigures&, std::size_t node, const Totals&) = nullptr;
  /// Whether there is anything to show; null: always.
  bool (*is_used)(const JobFigures&) = nullptr;
};
[[nodiscard]] std::span<const RankColumn> rank_columns();

struct JobColumn {
  std::string_view name;
  std::string_view help;
  bool is_right = false;
  bool is_descending = false;
  std::string (*text)(const JobRow&, std::int64_t now_ms) = nullptr;
  SortKey (*key)(const JobRow&, std::int64_t now_ms) = nullptr;
};
[[nodiscard]] std::span<const JobColumn> job_columns();

/// "0", "12", "3.4": of a share in percent.
[[nodiscard]] std::string percent_text(double percent);
[[nodiscard]] std::string rate_text(double per_second);
[[nodiscard]] std::string state_text(const RankFigures& rank);
[[nodiscard]] Style style_of(const RankFigures& rank);
[[nodiscard]] Style style_of_state(std::string_view state);

}  // namespace acc::ctl::top
