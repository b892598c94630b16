#include "launcher/docs_tables.hpp"

#include "agent/event_keys.hpp"
#include "agent/metrics_text.hpp"
#include "agent/report_keys.hpp"
#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "common/worker_env.hpp"
#include "launcher/config_keys.hpp"
#include "launcher/deviations.hpp"

#include <vector>

namespace acc::launcher {

namespace {

/// A bar would end the cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string{"\\|"} : std::string(1, c);
  return out;
}

std::string table(std::vector<std::string> heads,
                  const std::vector<std::vector<std::string>>& rows) {
  std::string out = "| " + join(heads, " | ") + " |\n|";
  for (std::size_t i = 0; i < heads.size(); ++i) out += "---|";
  out += "\n";
  for (const auto& row : rows) {
    std::vector<std::string> cells;
    cells.reserve(row.size());
    for (const auto& text : row) cells.push_back(cell(text));
    out += "| " + join(cells, " | ") + " |\n";
  }
  return out;
}

std::string flag_cell(const KeyRow& row) {
  if (!row.is_flag) return "–";
  std::string out = "`--" + std::string{row.name} + "`";
  if (row.letter != 0) out = std::string{"`-"} + row.letter + "` " + out;
  if (!row.aliases.empty()) out += " `--" + join(split(row.aliases, ' '), "` `--") + "`";
  return out;
}

std::string key_cell(const KeyRow& row) {
  if (row.place == Place::nowhere) return "–";
  const auto section = section_name(row.place);
  return section.empty() ? "`" + std::string{row.name} + "`" : "in `" + std::string{section} + "`";
}

std::string value_cell(const KeyRow& row) {
  if (!row.choices.empty()) return join(split(row.choices, ' '), ", ");
  return row.type == Type::flag ? "switch" : metavar(row);
}

std::string default_cell(const KeyRow& row) {
  if (row.initial == nullptr || row.type == Type::flag) return "";
  return python_text(default_value(row));
}

std::string configuration() {
  std::string out;
  for (const auto& group : group_rows()) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& row : key_rows()) {
      if (row.group == group.group)
        rows.push_back({flag_cell(row), key_cell(row), value_cell(row), default_cell(row),
                        std::string{row.help}});
    }
    out += "### " + std::string{group.title} + "\n`--help " + std::string{group.name} + "`\n\n" +
           table({"flag", "key", "value", "default", "meaning"}, rows) + "\n";
  }
  out.pop_back();
  return out;
}

std::string worker_variables() {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(worker_env::rows().size());
  for (const auto& row : worker_env::rows()) {
    rows.push_back({std::string{row.name}, std::string{row.meaning},
                    row.elastic_only ? "jobs with ranks" : "every job"});
  }
  return table({"variable", "meaning", "in"}, rows);
}

std::string mode_variables() {
  std::vector<std::vector<std::string>> rows;
  for (const auto& group : group_rows()) {
    for (const auto& row : key_rows()) {
      if (row.group != group.group || row.variable.empty()) continue;
      rows.push_back({std::string{row.variable}, "`" + std::string{row.name} + "`",
                      std::string{group.name}, row.shown == Case::lower ? "in lower case" : ""});
    }
  }
  return table({"variable", "set by", "group", "value"}, rows);
}

std::string exit_codes() {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(kExitCodes.size());
  for (const auto& row : kExitCodes) {
    rows.push_back({std::to_string(to_int(row.code)), std::string{row.name},
                    std::string{row.meaning}, std::string{row.what_to_do}});
  }
  return table({"code", "name", "meaning", "what to do"}, rows);
}

std::string report_keys() {
  std::vector<std::vector<std::string>> rows;
  for (const auto& key : agent::kReportKeys) {
    rows.push_back({key.place.empty() ? "" : "each " + std::string{key.place},
                    "`" + std::string{key.name} + "`", std::string{key.type},
                    std::string{key.meaning}});
  }
  return table({"in", "key", "value", "meaning"}, rows);
}

std::string event_keys() {
  std::vector<std::vector<std::string>> rows;
  for (const auto& key : agent::kEventKeys) {
    rows.push_back({key.event.empty() ? "each line" : "`" + std::string{key.event} + "`",
                    "`" + std::string{key.name} + "`", std::string{key.type},
                    std::string{key.meaning}});
  }
  return table({"event", "key", "value", "meaning"}, rows);
}

template <class Rows>
std::string metric_table(const Rows& metrics) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : metrics) {
    rows.push_back({"`" + std::string{row.name} + "`",
                    row.kind == agent::MetricKind::counter ? "counter" : "gauge",
                    join(split(row.labels, ' '), ", "), std::string{row.help}});
  }
  return table({"metric", "type", "labels", "meaning"}, rows);
}

std::string deviation_table() {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(deviations().size());
  for (const auto& row : deviations())
    rows.push_back({std::string{row.original}, std::string{row.ours}, std::string{row.reason}});
  return table({"the original", "here", "why"}, rows);
}

}  // namespace

std::string docs_block(std::string_view name) {
  if (name == "configuration") return configuration();
  if (name == "worker-variables") return worker_variables();
  if (name == "mode-variables") return mode_variables();
  if (name == "exit-codes") return exit_codes();
  if (name == "report-keys") return report_keys();
  if (name == "event-keys") return event_keys();
  if (name == "common-metrics") return metric_table(agent::kCommonMetrics);
  if (name == "launch-metrics") return metric_table(agent::kLaunchMetrics);
  if (name == "daemon-metrics") return metric_table(agent::kDaemonMetrics);
  if (name == "deviations") return deviation_table();
  return {};
}

Result<std::string> with_fresh_blocks(std::string_view page) {
  constexpr std::string_view kBegin = "<!-- generated: ";
  constexpr std::string_view kEnd = "<!-- end -->";
  std::string out;
  for (;;) {
    const auto begin = page.find(kBegin);
    if (begin == std::string_view::npos) return out + std::string{page};
    const auto name_end = page.find(" -->", begin);
    const auto end = page.find(kEnd, begin);
    if (name_end == std::string_view::npos || end == std::string_view::npos)
      return Error{Errc::bad_config, "a generated block has no end"};
    const auto name = page.substr(begin + kBegin.size(), name_end - begin - kBegin.size());
    const auto block = docs_block(name);
    if (block.empty())
      return Error{Errc::bad_config, "there is no block '" + printable(name) + "'"};
    out += std::string{page.substr(0, name_end)} + " -->\n" + block + std::string{kEnd};
    page.remove_prefix(end + kEnd.size());
  }
}

}  // namespace acc::launcher
