#include "launcher/ctl/top/view.hpp"

#include "common/plain_text.hpp"
#include "common/text.hpp"
#include "launcher/ctl/text_table.hpp"
#include "launcher/ctl/top/columns.hpp"
#include "launcher/ctl/top/model_keys.hpp"
#include "launcher/ctl/top/view_panels.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

namespace acc::ctl::top {

namespace {

constexpr std::size_t kWidestCell = 20;
constexpr std::size_t kWidestId = 32;
constexpr std::size_t kGap = 1;
constexpr std::size_t kLongestWords = 400;

std::string clock_text(std::int64_t now_ms) {
  const auto seconds = static_cast<std::time_t>(now_ms / 1000);
  std::tm local{};
  char text[32] = "";
  if (::localtime_r(&seconds, &local) != nullptr)
    std::strftime(text, sizeof text, "%H:%M:%S", &local);
  return text;
}

/// `left`, and `right` at the end of the line if there is room for both.
Line two_sided(Line left, const std::string& right, std::size_t columns) {
  const auto used = width_of(left) + width_of(right);
  if (used + 1 > columns) return left;
  left.push_back({std::string(columns - used, ' ') + right, Style::faint});
  return left;
}

// ---- tables ----

/// Cells of all rows that the window shows, before they are put into lines.
struct TableView {
  struct Cell {
    std::string text;
    Style style = Style::plain;
  };
  struct Row {
    std::vector<Cell> cells;
    Style style = Style::plain;
    bool is_selected = false;
  };
  std::vector<std::string> names;
  std::vector<bool> are_right;
  std::size_t sorted = 0;  ///< among those that are shown
  bool is_descending = false;
  std::vector<Row> rows;
};

std::vector<std::size_t> widths_of(const TableView& table) {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < table.names.size(); ++i) {
    // A mark of the order stands behind the name.
    std::size_t width = table.names[i].size() + (i == table.sorted ? 1 : 0);
    for (const auto& row : table.rows)
      width =
          std::max(width, std::min(width_of(row.cells[i].text), i == 0 ? kWidestId : kWidestCell));
    widths.push_back(width);
  }
  return widths;
}

void draw_table(const TableView& table, std::size_t shift, std::size_t columns, Frame& frame) {
  const auto widths = widths_of(table);
  const auto last = table.names.size() - 1;
  Line heading;
  for (std::size_t i = 0; i < table.names.size(); ++i) {
    const bool is_sorted = i == table.sorted;
    const auto name =
        table.names[i] + (is_sorted ? std::string{table.is_descending ? "v" : "^"} : std::string{});
    heading.push_back(
        {fitted(name, widths[i], table.are_right[i]), is_sorted ? Style::sorted : Style::heading});
    heading.push_back({std::string(kGap, ' '), Style::heading});
  }
  heading.push_back({std::string(columns + shift, ' '), Style::heading});
  frame.lines.push_back(cut(heading, shift, columns));
  for (const auto& row : table.rows) {
    Line line;
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      const auto& cell = row.cells[i];
      const auto text =
          i == last ? cell.text
                    : fitted(shortened(cell.text, widths[i]), widths[i], table.are_right[i]);
      const auto style = row.is_selected              ? Style::selected
                         : cell.style != Style::plain ? cell.style
                                                      : row.style;
      line.push_back({text, style});
      line.push_back({std::string(kGap, ' '), row.is_selected ? Style::selected : row.style});
    }
    if (row.is_selected) line.push_back({std::string(columns + shift, ' '), Style::selected});
    frame.lines.push_back(cut(line, shift, columns));
  }
}

/// Rows of the window.
std::vector<TableRow> shown_rows(const Model& model, const TableState& state) {
  auto rows = rows_of(model);
  const auto first = std::min(state.first, rows.size());
  const auto count = std::min(table_height(model), rows.size() - first);
  const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

void draw_jobs(const Model& model, Frame& frame) {
  const auto& state = model.job_table;
  TableView table;
  for (const auto& column : job_columns()) {
    table.names.emplace_back(column.name);
    table.are_right.push_back(column.is_right);
  }
  table.sorted = state.column;
  table.is_descending = state.is_descending;
  for (const auto& row : shown_rows(model, state)) {
    const auto& job = model.jobs[row.index];
    TableView::Row cells;
    for (const auto& column : job_columns()) {
      const bool is_state = column.name == "STATE";
      cells.cells.push_back(
          {column.text(job, model.now_ms), is_state ? style_of_state(job.state) : Style::plain});
    }
    cells.is_selected = row.id == state.selected;
    table.rows.push_back(std::move(cells));
  }
  draw_table(table, state.shift, model.size.columns, frame);
}

std::string ranks_of(const NodeFigures& node) {
  if (node.slots <= 0) return "";
  const auto last = node.first_rank + node.slots - 1;
  return std::to_string(node.first_rank) +
         (node.slots == 1 ? std::string{} : "-" + std::to_string(last));
}

void draw_ranks(const Model& model, Frame& frame) {
  const auto& state = model.rank_table;
  const auto& job = *model.job;
  TableView table;
  std::vector<const RankColumn*> shown;
  for (const auto& column : rank_columns()) {
    const bool is_left_out = (column.is_used != nullptr && !column.is_used(job)) ||
                             (state.is_tree && column.name == "NODE");
    if (is_left_out) continue;
    if (&column == &rank_columns()[state.column]) table.sorted = shown.size();
    shown.push_back(&column);
    table.names.emplace_back(column.name);
    table.are_right.push_back(column.is_right);
  }
  // In the tree the first column is that of the nodes' names, with their ranks below.
  if (state.is_tree) table.are_right[0] = false;
  const auto of_nodes = std::ranges::find(table.names, "NODE") - table.names.begin();
  const auto name_at = state.is_tree ? std::size_t{0} : static_cast<std::size_t>(of_nodes);
  table.is_descending = state.is_descending;
  for (const auto& row : shown_rows(model, state)) {
    TableView::Row cells;
    cells.is_selected = row.id == state.selected;
    if (row.is_node) {
      const auto& node = job.nodes[row.index];
      const auto totals = totals_of(job, row.index);
      cells.style = node.why.empty() ? Style::node : Style::warning;
      for (const auto* column : shown)
        cells.cells.push_back(
            {column->total != nullptr ? column->total(job, row.index, totals) : "", cells.style});
      if (!state.is_tree) cells.cells[0].text = ranks_of(node);
      if (name_at < cells.cells.size()) cells.cells[name_at].text = node.name;
    } else {
      const auto& rank = job.ranks[row.index];
      cells.style = style_of(rank);
      for (const auto* column : shown)
        cells.cells.push_back({column->text(job, rank), Style::plain});
      if (state.is_tree) cells.cells[0].text.insert(0, "  ");
    }
    table.rows.push_back(std::move(cells));
  }
  draw_table(table, state.shift, model.size.columns, frame);
}

// ---- the lines above ----

Line jobs_title(const Model& model) {
  std::size_t running = 0;
  std::size_t failed = 0;
  for (const auto& job : model.jobs) {
    running += is_over(job.state) ? 0 : 1;
    failed += job.state == "failed" ? 1 : 0;
  }
  Line line{{"acc-top", Style::title}, {" on " + plain_line(model.host, 64) + ": ", Style::plain}};
  if (!model.are_jobs_known) {
    line.push_back({"asking for jobs", Style::faint});
    return line;
  }
  line.push_back({plural(model.jobs.size(), "job") + ", ", Style::plain});
  line.push_back({std::to_string(running) + " running", running > 0 ? Style::good : Style::plain});
  if (failed > 0) line.push_back({", " + std::to_string(failed) + " failed", Style::bad});
  return line;
}

Line job_title(const Model& model) {
  const auto& job = *model.job;
  const auto& row = job.row;
  const auto totals = totals_of(job);
  auto state = row.state;
  // What the agent says is more exact, as long as all nodes say the same.
  if (!job.is_over && job.nodes.size() == 1 && !job.nodes[0].state.empty())
    state = job.nodes[0].state;
  Line line{{plain_line(row.id, 64), Style::title}, {"  ", Style::plain}};
  line.push_back({plain_line(state, 40), style_of_state(state)});
  if (row.exit_code)
    line.push_back({", exit code " + std::to_string(*row.exit_code), Style::plain});
  std::string rest;
  if (row.started_ms > 0 && (!job.is_over || row.ended_ms > 0))
    rest += (job.is_over ? " after " : " for ") + span_words(seconds_of(row, model.now_ms));
  const auto world = std::max<std::uint64_t>(
      totals.ranks, static_cast<std::uint64_t>(std::max<std::int64_t>(0, job.world_size)));
  rest += ", " + plural(world, "rank");
  if (job.nodes.size() > 1) rest += " on " + plural(job.nodes.size(), "node");
  if (job.max_restarts > 0 || job.round > 0)
    rest += ", attempt " + std::to_string(job.round) + ", restarts " +
            std::to_string(job.restarts_used) + " of " + std::to_string(job.max_restarts);
  line.push_back({rest, Style::plain});
  return line;
}

Line sums_line(const JobFigures& job) {
  const auto totals = totals_of(job);
  std::vector<std::string> parts;
  const bool has_others =
      static_cast<std::int64_t>(totals.ranks) < job.world_size ||
      std::ranges::any_of(job.nodes, [](const auto& node) { return !node.is_watched; });
  parts.push_back(totals.running == totals.ranks ? plural(totals.running, "rank") + " running"
                                                 : std::to_string(totals.running) + " of " +
                                                       plural(totals.ranks, "rank") + " running");
  if (has_others) parts.back() += " here";
  if (totals.least_step) {
    const bool is_one = totals.least_step == totals.most_step;
    parts.push_back("step " + std::to_string(*totals.least_step) +
                    (is_one ? "" : " to " + std::to_string(*totals.most_step)));
  }
  if (totals.steps_per_second) parts.push_back(rate_text(*totals.steps_per_second) + " steps/s");
  if (totals.cpu_percent) parts.push_back("CPU " + percent_text(*totals.cpu_percent) + " %");
  if (totals.running > 0)
    parts.push_back("memory " + size_words(static_cast<std::uint64_t>(
                                    std::max<std::int64_t>(0, totals.rss_bytes))));
  double gpu = 0;
  std::size_t gpus = 0;
  for (const auto& node : job.nodes) {
    for (const auto& one : node.gpus) {
      if (!one.percent) continue;
      gpu += *one.percent;
      ++gpus;
    }
  }
  if (gpus > 0)
    parts.push_back(plural(gpus, "GPU") + " " + percent_text(gpu / static_cast<double>(gpus)) +
                    " %");
  return {{join(parts, ", "), Style::plain}};
}

/// What a user should know now; what went wrong before other things.
Line news_line(const Model& model) {
  if (model.page == Page::jobs) return {{model.jobs_trouble, Style::warning}};
  if (!model.trouble.empty()) {
    const auto age = static_cast<double>(model.now_ms - model.answered_ms) / 1000;
    const auto since =
        model.answered_ms > 0 ? "no answer for " + span_words(age) + ": " : std::string{};
    return {{since + model.trouble, Style::warning}};
  }
  if (!model.job) return {};
  const auto& job = *model.job;
  if (!job.gone.empty())
    return {{"the job is gone: " + job.gone + ". Its last figures:", Style::warning}};
  if (!job.row.reason.empty()) return {{plain_line(job.row.reason, kLongestWords), Style::warning}};
  if (!job.restart_reason.empty()) return {{"last restart: " + job.restart_reason, Style::faint}};
  return {};
}

void draw_heading(const Model& model, Frame& frame) {
  const auto columns = model.size.columns;
  const bool is_jobs = model.page == Page::jobs;
  if (!is_jobs && !model.job) {
    frame.lines.push_back({{plain_line(model.wanted, 64), Style::title},
                           {model.trouble.empty() ? "  asking" : "  " + model.trouble,
                            model.trouble.empty() ? Style::faint : Style::warning}});
    return;
  }
  frame.lines.push_back(
      two_sided(is_jobs ? jobs_title(model) : job_title(model), clock_text(model.now_ms), columns));
  if (heading_height(model) <= 2) return;
  if (!is_jobs) {
    const auto words = plain_line(command_text(model.job->row), kLongestWords);
    frame.lines.push_back({{words, Style::faint}});
    frame.lines.push_back(sums_line(*model.job));
  }
  frame.lines.push_back(news_line(model));
}

// ---- a log ----

Line marked(const std::string& text, const std::string& search) {
  const auto at = search.empty() ? std::string::npos : to_lower(text).find(to_lower(search));
  if (at == std::string::npos) return {{text, Style::plain}};
  return {{text.substr(0, at), Style::plain},
          {text.substr(at, search.size()), Style::match},
          {text.substr(at + search.size()), Style::plain}};
}

std::string why_empty(const Model& model) {
  const auto& log = model.log;
  if (!log.trouble.empty()) return log.trouble;
  if (!log.is_answered) return "asking";
  return std::string{"nothing on "} + (log.place.is_stderr ? "stderr" : "stdout") +
         " so far; Tab shows " + (log.place.is_stderr ? "stdout" : "stderr");
}

void draw_log(const Model& model, Frame& frame) {
  const auto& log = model.log;
  const auto columns = model.size.columns;
  Line title{{"rank " + std::to_string(log.rank), Style::title}};
  std::string where = " of " + plain_line(model.wanted, 64);
  if (model.job && model.job->nodes.size() > 1 && log.place.part < model.job->nodes.size())
    where += " on " + model.job->nodes[log.place.part].name;
  title.push_back({where + ", " + (log.place.is_stderr ? "stderr" : "stdout"), Style::plain});
  if (model.job && model.job->is_over) title.push_back({", the job has ended", Style::faint});
  if (!log.trouble.empty() && !log.text.is_empty())
    title.push_back({"  " + log.trouble, Style::warning});
  const auto top = log_top(model);
  const auto shown = std::min<std::uint64_t>(log.text.end() - top, log_height(model));
  const auto at = log.follows
                      ? std::string{"follows"}
                      : "line " + std::to_string(top + 1) + " of " + std::to_string(log.text.end());
  frame.lines.push_back(cut(two_sided(std::move(title), at, columns), 0, columns));
  if (log.text.is_empty()) frame.lines.push_back({{why_empty(model), Style::faint}});
  for (std::uint64_t i = 0; i < shown; ++i) {
    const auto entry = log.text.at(top + i);
    const auto line =
        entry.is_note ? Line{{entry.text, Style::faint}} : marked(entry.text, model.search);
    frame.lines.push_back(cut(line, log.shift, columns));
  }
}

}  // namespace

Frame frame_of(const Model& model) {
  Frame frame;
  if (model.page == Page::log) {
    draw_log(model, frame);
  } else {
    draw_heading(model, frame);
    if (model.page == Page::jobs) {
      draw_jobs(model, frame);
      if (model.are_jobs_known && model.jobs.empty())
        frame.lines.push_back(
            {{"no job of yours is known here; acc-ctl submit starts one", Style::faint}});
    } else if (model.job) {
      draw_ranks(model, frame);
      if (model.job->ranks.empty() && model.job->nodes.size() <= 1)
        frame.lines.push_back({{model.job->is_over ? "it has ended, and no rank is known any more"
                                                   : "no rank runs yet",
                                Style::faint}});
    }
  }
  frame.lines.resize(std::max<std::size_t>(1, model.size.rows));
  draw_panel(model, frame);
  for (auto& line : frame.lines) line = cut(line, 0, model.size.columns);
  return frame;
}

}  // namespace acc::ctl::top
