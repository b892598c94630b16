#pragma once

#include "launcher/ctl/top/figures.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Which rows a table has, and in which order (pure).
namespace acc::ctl::top {

/// What a user chose for one of the tables.
struct TableState {
  std::string selected;     ///< TableRow::id; it stays selected wherever the order puts it
  std::size_t first = 0;    ///< the row at the top of the window
  std::size_t shift = 0;    ///< columns that are scrolled out at the left
  std::size_t column = 0;   ///< that it is sorted by
  bool is_descending = false;
  bool is_tree = false;     ///< by node
  std::string filter;       ///< rows with this text alone; "a|b": with one of them
};

struct TableRow {
  std::string id;
  std::size_t index = 0;  ///< of the job, rank or node
  bool is_node = false;
};

[[nodiscard]] std::vector<TableRow> rows_of(std::span<const JobRow> jobs, const TableState& state,
                                            std::int64_t now_ms);
[[nodiscard]] std::vector<TableRow> rows_of(const JobFigures& job, const TableState& state);

/// All cells of a row in one text, for searches.
[[nodiscard]] std::string text_of_row(const JobRow& job, std::int64_t now_ms);
[[nodiscard]] std::string text_of_row(const JobFigures& job, const TableRow& row);

/// Whatever the case. An empty filter fits all.
[[nodiscard]] bool fits_filter(std::string_view text, std::string_view filter);

/// Index of the selected row, or of the first one if that is gone; 0 also without rows.
[[nodiscard]] std::size_t selected_index(const std::vector<TableRow>& rows,
                                         const TableState& state);
/// Moves the window so that the selected row is in it.
void scroll_to(TableState& state, std::size_t selected, std::size_t rows, std::size_t height);

}  // namespace acc::ctl::top
