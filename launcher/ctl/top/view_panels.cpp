#include "launcher/ctl/top/view_panels.hpp"

#include "common/plain_text.hpp"
#include "common/text.hpp"
#include "launcher/ctl/top/columns.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace acc::ctl::top {

namespace {

struct KeyLabel {
  std::string_view key;
  std::string_view label;
};

std::vector<KeyLabel> keys_of(const Model& model) {
  if (model.page == Page::log) {
    return {{"F1", "Help "}, {"F3", "Search "},
            {"Tab", model.log.place.is_stderr ? "Stdout " : "Stderr "},
            {"f", model.log.follows ? "Hold   " : "Follow "}, {"Esc", "Back "}, {"F10", "Quit"}};
  }
  if (model.page == Page::jobs)
    return {{"F1", "Help "},   {"F3", "Search "}, {"F4", "Filter "}, {"F6", "SortBy "},
            {"F9", "Signal "}, {"F10", "Quit "},  {"Enter", "Ranks"}};
  return {{"F1", "Help "},   {"F3", "Search "}, {"F4", "Filter "},
          {"F5", model.rank_table.is_tree ? "List " : "Tree "},
          {"F6", "SortBy "}, {"F9", "Signal "}, {"F10", "Quit "}, {"Enter", "Log "}, {"Esc", "Jobs"}};
}

Line key_line(const Model& model) {
  Line line;
  for (const auto& [key, label] : keys_of(model)) {
    line.push_back({std::string{key}, Style::key});
    line.push_back({std::string{label}, Style::label});
  }
  line.push_back({std::string(model.size.columns, ' '), Style::label});
  return line;
}

/// A line of input; the cursor stands behind it.
Line input_line(const Model& model, const std::string& prompt, const std::string& hint,
                Frame& frame) {
  const auto text = prompt + plain_line(model.input);
  frame.cursor = {frame.lines.size() - 1, std::min(width_of(text), model.size.columns - 1)};
  return {{text, Style::plain}, {"   " + hint, Style::faint}};
}

Line question(const Model& model) {
  const auto& rows = signal_rows();
  const auto found = std::ranges::find(rows, model.order, &SignalRow::name);
  const auto what = model.order == "stop" || model.order == "restart"
                        ? (model.order == "stop" ? std::string{"Stop "} : std::string{"Restart "})
                        : "Send SIG" + model.order + " to all ranks of ";
  const auto job = model.page == Page::jobs ? model.job_table.selected : model.wanted;
  const bool ends = found != rows.end() && found->ends_job;
  return {{what + plain_line(job, 64) + (ends ? "? It ends the job." : "?") + " y, or any key: no ",
           Style::warning}};
}

Line last_line(const Model& model, Frame& frame) {
  switch (model.panel) {
    case Panel::search:
      return input_line(model, "Search: ", "F3 next, Enter", frame);
    case Panel::filter:
      return input_line(model, "Filter: ", "a|b: one of them; Enter keeps it, Esc drops it", frame);
    case Panel::confirm:
      return question(model);
    case Panel::columns:
      return {{"Enter sorts by the column, or turns the order; Esc", Style::faint}};
    case Panel::signals:
      return {{"Enter chooses, then asks; Esc", Style::faint}};
    case Panel::help:
      return {{"any key goes back", Style::faint}};
    case Panel::none:
      break;
  }
  if (!model.notice.empty())
    return {{model.notice, model.is_notice_bad ? Style::bad : Style::good}};
  const auto& filter = model.page == Page::jobs ? model.job_table.filter : model.rank_table.filter;
  if (model.page != Page::log && !filter.empty())
    return {{"only rows with: " + plain_line(filter, 80), Style::warning},
            {"   F4 changes it, Esc drops it", Style::faint}};
  return key_line(model);
}

/// A menu over the left of the table.
void draw_menu(const Model& model, const std::vector<std::string>& lines, const std::string& title,
               Frame& frame) {
  const auto begin = std::min(heading_height(model) - 1, frame.lines.size() - 1);
  const auto room = frame.lines.size() - 1 - begin;
  if (room < 2) return;
  std::size_t width = title.size();
  for (const auto& line : lines) width = std::max(width, line.size());
  width = std::min(width + 2, model.size.columns);
  const auto put = [&](std::size_t row, const std::string& text, Style style) {
    auto rest = cut(frame.lines[row], width, model.size.columns - width);
    frame.lines[row] = {{fitted(" " + text, width), style}};
    for (auto& span : rest) frame.lines[row].push_back(std::move(span));
  };
  put(begin, title, Style::heading);
  const auto height = room - 1;
  const auto first = model.menu >= height ? model.menu + 1 - height : 0;
  for (std::size_t i = 0; i < height && first + i < lines.size(); ++i)
    put(begin + 1 + i, lines[first + i], first + i == model.menu ? Style::selected : Style::panel);
}

void draw_columns(const Model& model, Frame& frame) {
  std::vector<std::string> lines;
  const auto add = [&](std::string_view name, std::string_view help) {
    lines.push_back(fitted(name, 10) + std::string{help});
  };
  if (model.page == Page::jobs) {
    for (const auto& column : job_columns()) add(column.name, column.help);
  } else {
    for (const auto& column : rank_columns()) add(column.name, column.help);
  }
  draw_menu(model, lines, "Sort by", frame);
}

void draw_signals(const Model& model, Frame& frame) {
  std::vector<std::string> lines;
  for (const auto& row : signal_rows()) {
    const bool is_verb = row.name == "stop" || row.name == "restart";
    lines.push_back(fitted((is_verb ? "" : "SIG") + std::string{row.name}, 9) +
                    std::string{row.help});
  }
  draw_menu(model, lines, "To all ranks of the job", frame);
}

constexpr std::array<std::string_view, 21> kHelp{
    "acc-top: jobs, the ranks of one, what a rank writes; asked once a second.",
    "",
    " Arrows PgUp PgDn Home End   move; left and right: columns that don't fit",
    " Enter                       a job's ranks; a rank's log",
    " Esc                         back",
    " F3 /    n                   search; the next one",
    " F4 \\                        show only rows with a text: a|b",
    " F5 t                        ranks by node, with sums",
    " F6 < >                      sort by a column; I turns the order",
    " P M N T                     by CPU%, MEMORY, RANK (ID), TIME",
    " F9 k                        signal, stop or restart a job; asks before",
    " f  Tab                      in a log: follow or hold; stdout or stderr",
    " F10 q  Ctrl-C               quit; the job goes on",
    "",
    " CPU%     of the worker itself; 100: one core",
    " MEMORY   resident, of the worker itself",
    " STEP     of programs with heartbeats; STEPS/S above: of the slowest rank",
    " STATE    quiet 30 s: no heartbeat for so long; in NAME: inside that section",
    " GPU%     of the GPUs that a rank uses, on average",
    "",
    " Details: man acc-ctl, docs/operations.md",
};

void draw_help(Frame& frame) {
  for (std::size_t i = 0; i + 1 < frame.lines.size(); ++i) {
    frame.lines[i].clear();
    if (i < kHelp.size()) frame.lines[i] = {{std::string{kHelp[i]}, i == 0 ? Style::title : Style::plain}};
  }
}

}  // namespace

void draw_panel(const Model& model, Frame& frame) {
  if (model.panel == Panel::help) draw_help(frame);
  if (model.panel == Panel::columns) draw_columns(model, frame);
  if (model.panel == Panel::signals) draw_signals(model, frame);
  if (frame.lines.size() > 1) frame.lines.back() = last_line(model, frame);
}

}  // namespace acc::ctl::top
