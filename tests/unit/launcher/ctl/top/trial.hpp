#pragma once

#include "launcher/ctl/top/model.hpp"
#include "launcher/ctl/top/view.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace acc::ctl::top::trial {

inline constexpr std::int64_t kNow = 1'000'000'000;

inline nlohmann::json worker(int rank, int local, double seconds = 10, double cpu_s = 5) {
  return {{"rank", rank},       {"local_rank", local},  {"pid", 1000 + rank},
          {"state", "running"}, {"exit_code", nullptr}, {"signal", nullptr},
          {"seconds", seconds}, {"rss_bytes", 1 << 20}, {"cpu_s", cpu_s},
          {"step", nullptr},    {"last_line", "line of rank " + std::to_string(rank)}};
}

/// An agent's answer with `count` ranks from `first` on.
inline nlohmann::json status(int count, int first = 0) {
  auto workers = nlohmann::json::array();
  for (int i = 0; i < count; ++i) workers.push_back(worker(first + i, i));
  return {{"job", "train"},    {"state", "running"}, {"round", 0}, {"restarts_used", 0},
          {"max_restarts", 3}, {"world_size", count}, {"node", "vm"}, {"nodes", 1},
          {"seconds", 12.0},   {"command", {"python3", "train.py"}}, {"workers", workers}};
}

inline PartAnswer answered(const nlohmann::json& live, std::string node = {}) {
  PartAnswer part{std::move(node), PartAnswer::How::answered};
  part.body = live.dump();
  return part;
}

inline JobRow known() {
  JobRow row;
  row.id = "train.77";
  row.name = "train";
  row.user = "alice";
  row.state = "running";
  row.socket = "/run/user/0/acc/jobs/train.77.sock";
  return row;
}

/// The page of one job, with an answer.
inline Model of_job(const std::vector<PartAnswer>& parts, Size size = {}) {
  Model model;
  model.host = "vm";
  model.page = Page::ranks;
  model.wanted = "train.77";
  (void)step(model, Resized{size}, kNow);
  (void)step(model, JobAnswer{"train.77", known(), parts, ""}, kNow);
  return model;
}

inline Outcome press(Model& model, Key key) { return step(model, KeyPress{key}, kNow); }
inline Outcome type(Model& model, const std::string& text) {
  Outcome last;
  for (const char c : text) last = step(model, KeyPress{Key::character, std::string{c}}, kNow);
  return last;
}

inline std::string text_of(const Line& line) {
  std::string text;
  for (const auto& span : line) text += span.text;
  return text;
}
inline std::string text_of(const Frame& frame) {
  std::string text;
  for (const auto& line : frame.lines) text += text_of(line) + "\n";
  return text;
}
inline std::string shown(const Model& model) { return text_of(frame_of(model)); }

}  // namespace acc::ctl::top::trial
