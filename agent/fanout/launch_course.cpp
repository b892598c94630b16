#include "agent/fanout/launch_course.hpp"

#include "agent/status_text.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace acc::agent {

namespace {

using EventOfHost = nlohmann::json;

std::string event_word(const EventOfHost& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

std::uint64_t event_number(const EventOfHost& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

}  // namespace

LaunchCourse::LaunchCourse(std::vector<std::string> hosts) {
  for (auto& name : hosts) {
    hosts_.emplace_back();
    hosts_.back().name = std::move(name);
  }
}

void LaunchCourse::set(Host& host, Doing doing) {
  if (std::exchange(host.doing, doing) != doing) ++changes_;
}

void LaunchCourse::take(HostIndex index, std::string_view text) {
  const auto event = EventOfHost::parse(text, nullptr, false);
  if (!event.is_object() || index >= hosts_.size()) return;
  auto& host = hosts_[index];
  const auto what = event_word(event, "event");
  if (what == "round_started") {
    host.workers = host.alive = event_number(event, "workers");
    host.progress.reset();
    host.has_failed = false;
    set(host, Doing::running);
    reason_.clear();
  } else if (what == "worker_ended") {
    if (host.alive > 0) --host.alive;
    host.has_failed = host.has_failed || event.value("exit_code", EventOfHost{}) != 0;
    const bool is_done = !host.has_failed && host.doing == Doing::running;
    if (host.alive == 0 && host.doing != Doing::ended)
      set(host, is_done ? Doing::done : Doing::between);
  } else if (what == "failure" || what == "stopping" || what == "stop_ordered") {
    // A round's end may be told by several events, the last one behind its last worker.
    if (host.alive > 0) set(host, Doing::stopping);
    if (host.doing == Doing::done) set(host, Doing::between);
    if (reason_.empty()) reason_ = event_word(event, "reason");
  } else if (what == "restart") {
    reason_ = event_word(event, "reason");
  } else if (what == "progress") {
    Progress progress{event_number(event, "rank"), event_number(event, "step"), std::nullopt};
    const auto rate = event.find("steps_per_second");
    if (rate != event.end() && rate->is_number()) progress.steps_per_second = rate->get<double>();
    host.progress = progress;
  } else if (what == "job_ended") {
    set(host, Doing::ended);
  }
}

std::size_t LaunchCourse::count(Doing doing) const {
  return static_cast<std::size_t>(std::ranges::count(hosts_, doing, &Host::doing));
}

// The slowest rank of all, as on one node.
std::string LaunchCourse::progress_words() const {
  const Host* slowest = nullptr;
  const auto is_slower = [](const Progress& a, const Progress& b) { return a.step < b.step; };
  for (const auto& host : hosts_) {
    if (!host.progress || host.doing != Doing::running) continue;
    if (slowest == nullptr || is_slower(*host.progress, *slowest->progress)) slowest = &host;
  }
  if (slowest == nullptr) return {};
  const auto& progress = *slowest->progress;
  std::string text = "step " + std::to_string(progress.step);
  if (progress.steps_per_second) text += ", " + shown_rate(*progress.steps_per_second) + " steps/s";
  return text + ", slowest: rank " + std::to_string(progress.rank) + " on " + slowest->name;
}

// By the user's signal, whatever the hosts report of it.
std::string LaunchCourse::stopping_words(const FanOutState& state) const {
  std::uint64_t alive = 0;
  std::uint64_t workers = 0;
  for (const auto& host : hosts_) {
    alive += host.alive;
    workers += host.workers;
  }
  if (state.phase == FanOutPhase::running && alive > 0)
    return "stopping, " + std::to_string(alive) + " of " + plural(workers, "worker") + " left";
  const auto here = std::ranges::count_if(state.hosts, [](const FanOutHost& host) {
    return host.phase != HostPhase::waiting && host.phase != HostPhase::gone;
  });
  return "stopping, waiting for " + plural(static_cast<std::uint64_t>(here), "host") + " to end";
}

std::string LaunchCourse::waiting_words(const FanOutState& state) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].doing != Doing::ended && !state.hosts[i].exit_code &&
        state.hosts[i].phase != HostPhase::gone)
      names.push_back(hosts_[i].name);
  }
  const bool is_short = !names.empty() && names.size() <= 3;
  return "waiting for " + (is_short ? join(names, ", ") : std::string{"the other hosts"}) +
         " to end";
}

std::string LaunchCourse::status(const FanOutState& state, Millis in_phase, Instant now) const {
  const auto since = ", " + shown_seconds(in_phase);
  const bool is_over = state.phase == FanOutPhase::finished || state.is_detached;
  if (!is_over && (state.stop_signal != 0 || state.phase == FanOutPhase::leaving))
    return stopping_words(state) + since;
  if (state.phase == FanOutPhase::starting) {
    const auto ready = std::ranges::count(state.hosts, HostPhase::prepared, &FanOutHost::phase);
    return std::to_string(ready) + " of " + plural(state.hosts.size(), "host") + " are ready" +
           since;
  }
  if (state.phase != FanOutPhase::running) return {};
  // What such a host does is not known: neither its workers nor its end.
  const auto silent = std::ranges::find_if(state.hosts, [](const FanOutHost& host) {
    return host.phase == HostPhase::running && !host.exit_code && host.silence;
  });
  if (silent != state.hosts.end())
    return "waiting for " +
           silence_words(hosts_[static_cast<std::size_t>(silent - state.hosts.begin())].name,
                         *silent->silence, now);
  std::uint64_t alive = 0;
  std::uint64_t workers = 0;
  for (const auto& host : hosts_) {
    if (host.doing != Doing::stopping && host.doing != Doing::running) continue;
    alive += host.alive;
    workers += host.workers;
  }
  if (count(Doing::stopping) > 0)
    return "stopping, " + std::to_string(alive) + " of " + plural(workers, "worker") + " left";
  if (const auto words = progress_words(); !words.empty()) return words;
  if (count(Doing::ended) > 0) return waiting_words(state) + since;
  if (count(Doing::running) > 0) return {};
  return "waiting for the hosts to start workers" + since +
         (reason_.empty() ? "" : ", after: " + printable(reason_));
}

std::string silence_words(const std::string& host, const HostSilence& silence, Instant now) {
  const auto of = [](auto time) { return shown_seconds(std::chrono::duration_cast<Millis>(time)); };
  std::string text = host + ": no answer for " + of(now - silence.since);
  if (silence.until)
    text += ", given up after " +
            describe(std::chrono::duration_cast<Millis>(*silence.until - silence.since));
  return text;
}

}  // namespace acc::agent
