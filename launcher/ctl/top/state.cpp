#include "launcher/ctl/top/state.hpp"

#include "launcher/ctl/top/columns.hpp"

namespace acc::ctl::top {

const std::array<SignalRow, 8>& signal_rows() {
  static constexpr std::array<SignalRow, 8> kRows{{
      {"TERM", "ends the job: the workers may save, then are killed", true},
      {"INT", "ends the job, as Ctrl-C does", true},
      {"HUP", "ends the job", true},
      {"QUIT", "saves the stacks of all workers, ends the job", true},
      {"USR1", "means what the program makes of it", false},
      {"USR2", "means what the program makes of it", false},
      {"stop", "acc-ctl stop: ends the job for good", true},
      {"restart", "acc-ctl restart: starts all workers anew", false},
  }};
  return kRows;
}

std::size_t heading_height(const Model& model) {
  // Of a job: what it is, its sums, what happened last, a free line. The heading of the table.
  const std::size_t lines = model.page == Page::jobs ? 3 : 5;
  return model.size.rows < 12 ? 2 : lines;
}

std::size_t table_height(const Model& model) {
  const std::size_t others = heading_height(model) + 1;  // and the line of keys
  return model.size.rows > others ? model.size.rows - others : 0;
}

std::size_t log_height(const Model& model) {
  constexpr std::size_t kOthers = 2;
  return model.size.rows > kOthers ? model.size.rows - kOthers : 0;
}

std::vector<TableRow> rows_of(const Model& model) {
  if (model.page == Page::jobs) return rows_of(model.jobs, model.job_table, model.now_ms);
  if (!model.job) return {};
  return rows_of(*model.job, model.rank_table);
}

std::size_t column_count(const Model& model) {
  return model.page == Page::jobs ? job_columns().size() : rank_columns().size();
}

}  // namespace acc::ctl::top
