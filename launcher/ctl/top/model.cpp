#include "launcher/ctl/top/model.hpp"

#include "common/plain_text.hpp"
#include "launcher/ctl/top/model_keys.hpp"

#include <algorithm>
#include <utility>

namespace acc::ctl::top {

namespace {

constexpr std::size_t kLongestTrouble = 400;

Outcome take(Model& model, const Resized& event) {
  model.size = event.size;
  return {};
}

Outcome take(Model&, const Tick&) { return {}; }

Outcome take(Model& model, const JobsAnswer& answer) {
  model.jobs = answer.jobs;
  model.are_jobs_known = true;
  model.jobs_trouble = plain_line(answer.trouble, kLongestTrouble);
  return {};
}

/// What a user should know of the parts that gave no answer.
std::string trouble_of(const std::vector<PartAnswer>& parts) {
  std::string text;
  for (const auto& part : parts) {
    if (part.how != PartAnswer::How::silent) continue;
    text += text.empty() ? "" : "; ";
    text += (part.node.empty() ? "" : part.node + ": ") + part.why;
  }
  return plain_line(text, kLongestTrouble);
}

/// A stream that began anew: of the next attempt, or a file that was replaced.
void begin_again(LogState& log, std::int64_t round) {
  if (!log.text.is_empty())
    log.text.note(round >= 0 ? "-- attempt " + std::to_string(round) + " --"
                             : "-- the stream begins anew --");
  log.offset = 0;
}

Outcome take(Model& model, const JobAnswer& answer) {
  if (answer.id != model.wanted) return {};  // of a page that was left
  if (answer.parts.empty()) {
    model.trouble = plain_line(answer.trouble, kLongestTrouble);
    return {};
  }
  const auto* before = model.job ? &*model.job : nullptr;
  auto job = figures_of(answer.known, answer.parts, before, model.now_ms);
  const bool has_next_file = model.page == Page::log && before != nullptr &&
                             job.row.is_of_service && job.round != before->round;
  if (has_next_file) begin_again(model.log, job.round);
  model.job = std::move(job);
  model.trouble = trouble_of(answer.parts);
  if (model.trouble.empty()) model.answered_ms = model.now_ms;
  return {};
}

Outcome take(Model& model, const LogAnswer& answer) {
  auto& log = model.log;
  const bool is_for_this = answer.id == model.wanted && answer.place == log.place;
  if (!is_for_this || answer.asked_from != log.offset) return {};
  log.is_answered = true;
  log.trouble = plain_line(answer.trouble, kLongestTrouble);
  if (!answer.trouble.empty()) return {};
  const bool is_next_round = answer.round >= 0 && log.round >= 0 && answer.round != log.round;
  log.round = answer.round;
  if (answer.is_anew || is_next_round) {
    begin_again(log, answer.round);
    if (answer.text.empty() || answer.from > 0) return {.asks_now = true};
  }
  if (log.offset && answer.from > *log.offset)
    log.text.note("-- " + std::to_string(answer.from - *log.offset) + " bytes left out --");
  // Of a long stream only the end is here, from its first whole line.
  const auto line_end = answer.text.find('\n');
  const bool begins_inside = !log.offset && answer.from > 0 && line_end != std::string::npos;
  log.text.append(std::string_view{answer.text}.substr(begins_inside ? line_end + 1 : 0));
  log.offset = answer.from + answer.text.size();
  return {};
}

Outcome take(Model& model, const OrderAnswer& answer) {
  model.notice = plain_line(answer.text, kLongestTrouble);
  model.is_notice_bad = !answer.is_done;
  return {.asks_now = true};
}

Outcome take(Model& model, const KeyPress& press) { return on_key(model, press); }

}  // namespace

Outcome step(Model& model, const Event& event, std::int64_t now_ms) {
  model.now_ms = now_ms;
  auto outcome = std::visit([&](const auto& one) { return take(model, one); }, event);
  if (model.page == Page::log) return outcome;
  auto& table = model.page == Page::jobs ? model.job_table : model.rank_table;
  const auto rows = rows_of(model);
  const auto selected = selected_index(rows, table);
  if (!rows.empty()) table.selected = rows[selected].id;
  scroll_to(table, selected, rows.size(), table_height(model));
  return outcome;
}

Wish wish_of(const Model& model) {
  Wish wish;
  wish.jobs = model.page == Page::jobs;
  if (wish.jobs) return wish;
  wish.job = model.wanted;
  if (model.page == Page::log) {
    wish.log = model.log.place;
    wish.log_from = model.log.offset;
  }
  return wish;
}

}  // namespace acc::ctl::top
