#include "launcher/ctl/top/model_keys.hpp"

#include "common/text.hpp"
#include "launcher/ctl/top/columns.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace acc::ctl::top {

namespace {

constexpr std::size_t kShiftColumns = 8;
constexpr std::size_t kLongestInput = 200;

bool is_character(const KeyPress& press, std::string_view any_of) {
  return press.key == Key::character && press.text.size() == 1 &&
         any_of.find(press.text[0]) != std::string_view::npos;
}

TableState& table_of(Model& model) {
  return model.page == Page::jobs ? model.job_table : model.rank_table;
}

std::uint64_t last_top(const Model& model) {
  const auto height = log_height(model);
  const auto& text = model.log.text;
  return text.end() > text.first() + height ? text.end() - height : text.first();
}

void select(Model& model, std::size_t index) {
  const auto rows = rows_of(model);
  if (!rows.empty()) table_of(model).selected = rows[std::min(index, rows.size() - 1)].id;
}

void move_by(Model& model, std::int64_t by) {
  const auto rows = rows_of(model);
  const auto at = static_cast<std::int64_t>(selected_index(rows, table_of(model)));
  select(model, static_cast<std::size_t>(std::max<std::int64_t>(0, at + by)));
}

void scroll_log(Model& model, std::int64_t by) {
  const auto top = static_cast<std::int64_t>(log_top(model)) + by;
  const auto first = static_cast<std::int64_t>(model.log.text.first());
  const auto last = static_cast<std::int64_t>(last_top(model));
  model.log.top = static_cast<std::uint64_t>(std::clamp(top, first, last));
  model.log.follows = by > 0 && top >= last;
}

void shift_by(std::size_t& shift, bool is_right) {
  shift = is_right ? shift + kShiftColumns : shift - std::min(shift, kShiftColumns);
}

/// Arrows, pages, ends; false: another key.
bool moves(Model& model, Key key) {
  const bool is_log = model.page == Page::log;
  const auto height = static_cast<std::int64_t>(
      std::max<std::size_t>(1, is_log ? log_height(model) : table_height(model)));
  const auto move = [&](std::int64_t by) { is_log ? scroll_log(model, by) : move_by(model, by); };
  constexpr std::int64_t kFar = 1'000'000'000;
  switch (key) {
    case Key::up:
      move(-1);
      return true;
    case Key::down:
      move(1);
      return true;
    case Key::page_up:
      move(-height);
      return true;
    case Key::page_down:
      move(height);
      return true;
    case Key::home:
      move(-kFar);
      return true;
    case Key::end:
      move(kFar);
      return true;
    case Key::left:
    case Key::right:
      shift_by(is_log ? model.log.shift : table_of(model).shift, key == Key::right);
      return true;
    default:
      return false;
  }
}

// ---- search ----

void find_in_table(Model& model, bool is_next) {
  const auto rows = rows_of(model);
  const auto at = selected_index(rows, table_of(model));
  for (std::size_t i = is_next ? 1 : 0; i < rows.size() + (is_next ? 1 : 0); ++i) {
    const auto& row = rows[(at + i) % rows.size()];
    const auto text = model.page == Page::jobs ? text_of_row(model.jobs[row.index], model.now_ms)
                                               : text_of_row(*model.job, row);
    if (!fits_filter(text, model.search)) continue;
    table_of(model).selected = row.id;
    return;
  }
}

void find_in_log(Model& model, bool is_next) {
  const auto& text = model.log.text;
  const auto count = text.end() - text.first();
  const auto at = log_top(model) - text.first() + (is_next ? 1 : 0);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto number = text.first() + (at + i) % count;
    if (!fits_filter(text.at(number).text, model.search)) continue;
    model.log.top = std::min(number, last_top(model));
    model.log.follows = false;
    return;
  }
}

void find(Model& model, bool is_next) {
  if (model.search.empty()) return;
  model.page == Page::log ? find_in_log(model, is_next) : find_in_table(model, is_next);
}

// ---- panels ----

void open_panel(Model& model, Panel panel) {
  model.panel = panel;
  model.menu = panel == Panel::columns ? table_of(model).column : 0;
  model.input = panel == Panel::filter ? table_of(model).filter : std::string{};
}

/// The job that an order would be for.
std::string target_of(const Model& model) {
  return model.page == Page::jobs ? model.job_table.selected : model.wanted;
}

void open_signals(Model& model) {
  const auto target = target_of(model);
  const auto found = std::ranges::find(model.jobs, target, &JobRow::id);
  const bool is_ended = model.page == Page::jobs
                            ? found == model.jobs.end() || is_over(found->state)
                            : !model.job || model.job->is_over;
  model.target = target;
  if (!is_ended) return open_panel(model, Panel::signals);
  model.notice = target.empty() ? "no job is selected" : "the job has ended";
  model.is_notice_bad = true;
}

/// Up and down in a menu of `count` lines; false: another key.
bool moves_menu(Model& model, Key key, std::size_t count) {
  if (key == Key::up) model.menu -= model.menu > 0 ? 1 : 0;
  if (key == Key::down) model.menu += model.menu + 1 < count ? 1 : 0;
  if (key == Key::home || key == Key::page_up) model.menu = 0;
  if (key == Key::end || key == Key::page_down) model.menu = count - 1;
  return key == Key::up || key == Key::down || key == Key::home || key == Key::end ||
         key == Key::page_up || key == Key::page_down;
}

void sort_by(Model& model, std::size_t column) {
  auto& table = table_of(model);
  const bool is_same = table.column == column;
  const bool begins_descending = model.page == Page::jobs ? job_columns()[column].is_descending
                                                          : rank_columns()[column].is_descending;
  table.is_descending = is_same ? !table.is_descending : begins_descending;
  table.column = column;
}

Outcome on_columns_key(Model& model, const KeyPress& press) {
  if (moves_menu(model, press.key, column_count(model))) return {};
  if (press.key == Key::enter) sort_by(model, model.menu);
  model.panel = Panel::none;
  return {};
}

Outcome on_signals_key(Model& model, const KeyPress& press) {
  if (moves_menu(model, press.key, signal_rows().size())) return {};
  model.panel = Panel::none;
  if (press.key != Key::enter) return {};
  model.order = signal_rows()[model.menu].name;
  model.panel = Panel::confirm;
  return {};
}

Outcome on_confirm_key(Model& model, const KeyPress& press) {
  model.panel = Panel::none;
  if (!is_character(press, "yY")) {
    model.notice = "nothing was sent";
    model.is_notice_bad = false;
    return {};
  }
  const bool is_verb = model.order == "stop" || model.order == "restart";
  return {.order = Order{model.target, is_verb ? model.order : "signal",
                         is_verb ? std::string{} : model.order}};
}

void remove_last_character(std::string& text) {
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0U) == 0x80U)
    text.pop_back();
  if (!text.empty()) text.pop_back();
}

/// The line of input of search and filter; false: another key.
bool edits_input(Model& model, const KeyPress& press) {
  if (press.key == Key::backspace) {
    remove_last_character(model.input);
    return true;
  }
  if (press.key != Key::character) return false;
  if (model.input.size() + press.text.size() <= kLongestInput) model.input += press.text;
  return true;
}

Outcome on_search_key(Model& model, const KeyPress& press) {
  if (edits_input(model, press)) {
    model.search = model.input;
    find(model, false);
    return {};
  }
  if (press.key == Key::f3 || press.key == Key::down) {
    find(model, true);
    return {};
  }
  model.panel = Panel::none;
  if (press.key != Key::enter && press.key != Key::escape) moves(model, press.key);
  return {};
}

Outcome on_filter_key(Model& model, const KeyPress& press) {
  auto& filter = table_of(model).filter;
  if (edits_input(model, press)) {
    filter = model.input;
    return {};
  }
  model.panel = Panel::none;
  if (press.key == Key::escape) filter.clear();
  if (press.key != Key::enter && press.key != Key::escape) moves(model, press.key);
  return {};
}

// ---- pages ----

Outcome open_job(Model& model) {
  const auto rows = rows_of(model);
  if (rows.empty()) return {};
  model.wanted = rows[selected_index(rows, model.job_table)].id;
  model.page = Page::ranks;
  model.job.reset();
  model.trouble.clear();
  model.rank_table.selected.clear();
  model.rank_table.at = model.rank_table.first = 0;
  model.rank_table.filter.clear();
  return {.asks_now = true};
}

Outcome open_log(Model& model) {
  const auto rows = rows_of(model);
  if (rows.empty()) return {};
  const auto& row = rows[selected_index(rows, model.rank_table)];
  if (row.is_node) {
    model.notice = "a log is of one rank: select one, Enter";
    model.is_notice_bad = false;
    return {};
  }
  const auto& rank = model.job->ranks[row.index];
  model.page = Page::log;
  model.log = LogState{};
  model.log.place = {rank.node, rank.local_rank, false};
  model.log.rank = rank.rank;
  return {.asks_now = true};
}

Outcome switch_stream(Model& model) {
  auto place = model.log.place;
  const auto rank = model.log.rank;
  place.is_stderr = !place.is_stderr;
  model.log = LogState{};
  model.log.place = place;
  model.log.rank = rank;
  return {.asks_now = true};
}

void sort_by_name(Model& model, std::string_view name) {
  for (std::size_t i = 0; i < column_count(model); ++i) {
    const auto own = model.page == Page::jobs ? job_columns()[i].name : rank_columns()[i].name;
    if (own == name) return sort_by(model, i);
  }
}

Outcome back(Model& model) {
  if (model.page == Page::log) {
    model.page = Page::ranks;
    return {.asks_now = true};
  }
  auto& table = table_of(model);
  if (!table.filter.empty()) {
    table.filter.clear();
    return {};
  }
  if (model.page == Page::jobs) return {};
  model.page = Page::jobs;
  if (model.job) model.job_table.selected = model.job->row.id;
  return {.asks_now = true};
}

Outcome on_log_key(Model& model, const KeyPress& press) {
  if (press.key == Key::escape) return back(model);
  if (press.key == Key::tab || is_character(press, "o")) return switch_stream(model);
  if (is_character(press, "fF")) {
    model.log.top = log_top(model);
    model.log.follows = !model.log.follows;
  }
  if (is_character(press, "nN")) find(model, true);
  return {};
}

Outcome on_table_key(Model& model, const KeyPress& press) {
  const bool is_jobs = model.page == Page::jobs;
  if (press.key == Key::enter) return is_jobs ? open_job(model) : open_log(model);
  if (press.key == Key::escape) return back(model);
  if (press.key == Key::f4 || is_character(press, "\\")) open_panel(model, Panel::filter);
  if (press.key == Key::f6 || is_character(press, "<>,.")) open_panel(model, Panel::columns);
  if (press.key == Key::f9 || is_character(press, "k")) open_signals(model);
  if (!is_jobs && (press.key == Key::f5 || is_character(press, "t")))
    model.rank_table.is_tree = !model.rank_table.is_tree;
  auto& table = table_of(model);
  if (is_character(press, "I")) table.is_descending = !table.is_descending;
  if (is_character(press, "M")) sort_by_name(model, "MEMORY");
  if (is_character(press, "P")) sort_by_name(model, "CPU%");
  if (is_character(press, "T")) sort_by_name(model, "TIME");
  if (is_character(press, "N")) sort_by_name(model, is_jobs ? "ID" : "RANK");
  if (is_character(press, "n")) find(model, true);
  return {};
}

Outcome on_page_key(Model& model, const KeyPress& press) {
  if (press.key == Key::f10 || is_character(press, "q")) model.is_over = true;
  if (press.key == Key::f1 || is_character(press, "h?")) open_panel(model, Panel::help);
  if (press.key == Key::f3 || is_character(press, "/")) open_panel(model, Panel::search);
  if (moves(model, press.key)) return {};
  return model.page == Page::log ? on_log_key(model, press) : on_table_key(model, press);
}

}  // namespace

std::uint64_t log_top(const Model& model) {
  if (model.log.follows) return last_top(model);
  return std::clamp(model.log.top, model.log.text.first(), last_top(model));
}

Outcome on_key(Model& model, const KeyPress& press) {
  model.notice.clear();
  switch (model.panel) {
    case Panel::none:
      return on_page_key(model, press);
    case Panel::help:
      model.panel = Panel::none;
      return {};
    case Panel::columns:
      return on_columns_key(model, press);
    case Panel::signals:
      return on_signals_key(model, press);
    case Panel::confirm:
      return on_confirm_key(model, press);
    case Panel::search:
      return on_search_key(model, press);
    case Panel::filter:
      return on_filter_key(model, press);
  }
  return {};
}

}  // namespace acc::ctl::top
