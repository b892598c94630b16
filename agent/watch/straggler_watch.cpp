#include "agent/watch/straggler_watch.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

namespace {

// With 30 % jitter the mean of so many steps is 13 standard deviations away from twice the median,
// and that of a rank 2.5 times slower is beyond it.
constexpr std::uint64_t kWindowSteps = 16;
constexpr std::uint64_t kWindowNs = 2'000'000'000;  // of short steps more: a hiccup is no straggler
// A longer hiccup makes the mean as slow as it likes, and is in one look: most of them must be
// slow.
constexpr std::ptrdiff_t kWindowLooks = 5;
constexpr std::size_t kMostSamples = 256;
constexpr double kSlow = 2.0;
constexpr double kRecovered = 1.5;
constexpr std::uint64_t kRecoveredNs = 60'000'000'000;
// All with all others would take 0.4 s of each second with 256 workers.
constexpr double kSuspect = 1.25;
constexpr std::size_t kMostOthers = 32;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::uint64_t nanoseconds_of(Instant now) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds{now.time_since_epoch()}.count());
}

}  // namespace

void StragglerWatch::begin_round(std::uint32_t workers) { workers_.assign(workers, {}); }

void StragglerWatch::restart(Instant now) { compared_from_ns_ = nanoseconds_of(now); }

void StragglerWatch::take(Worker& worker, const heartbeat::Beat& beat) {
  auto& samples = worker.samples;
  // In a section no steps are done: what was before isn't compared with what comes after.
  if (beat.section_since_ns != 0) return samples.clear();
  if (beat.pid != worker.pid) samples.clear();  // another program of this rank
  worker.pid = beat.pid;
  if (beat.beats == 0) return;
  if (!samples.empty() && beat.step < samples.back().step) samples.clear();  // it began anew
  if (samples.empty() || beat.step > samples.back().step)
    samples.push_back({beat.step, beat.time_ns});
  if (samples.size() > kMostSamples) samples.pop_front();
}

std::uint64_t StragglerWatch::Window::time_ns() const {
  return last->time_ns > first->time_ns ? last->time_ns - first->time_ns : 0;
}

double StragglerWatch::Window::seconds_a_step() const {
  return static_cast<double>(time_ns()) / 1e9 / static_cast<double>(steps());
}

StragglerWatch::Window StragglerWatch::last_steps(const Worker& worker, std::ptrdiff_t looks) {
  Window window{worker.samples.end() - 1, worker.samples.end() - 1};
  while (window.first != worker.samples.begin() &&
         (window.steps() < kWindowSteps || window.time_ns() < kWindowNs ||
          window.last - window.first < looks))
    --window.first;
  return window;
}

std::optional<StragglerWatch::Window> StragglerWatch::compared(const Worker& worker) const {
  if (worker.samples.empty()) return std::nullopt;
  const auto window = last_steps(worker, kWindowLooks);
  const bool is_enough = window.steps() >= kWindowSteps && window.time_ns() >= kWindowNs &&
                         window.last - window.first >= kWindowLooks;
  if (!is_enough || window.first->time_ns < compared_from_ns_) return std::nullopt;
  return window;
}

double StragglerWatch::pace_meanwhile(const Worker& other, const Window& own,
                                      const Window& window) const {
  const auto& samples = other.samples;
  const auto after = std::ranges::find_if(
      samples, [&](const Sample& one) { return one.time_ns > window.first->time_ns; });
  if (after == samples.end()) return own.seconds_a_step();
  auto from_ns = static_cast<double>(after->time_ns);
  auto from_step = static_cast<double>(after->step);
  // The window begins between two looks at this one, or a pause does.
  if (after != samples.begin() && (after - 1)->time_ns >= compared_from_ns_) {
    const auto& before = *(after - 1);
    const auto between = static_cast<double>(after->time_ns - before.time_ns);
    const auto begin_ns = static_cast<double>(window.first->time_ns);
    from_step -= static_cast<double>(after->step - before.step) * (from_ns - begin_ns) / between;
    from_ns = begin_ns;
  }
  const auto& last = samples.back();
  const double steps = static_cast<double>(last.step) - from_step;
  // Of too few steps in that time it is the slower one of the two.
  if (steps < static_cast<double>(kWindowSteps) / 2) return own.seconds_a_step();
  const auto until_ns = static_cast<double>(std::max(last.time_ns, window.last->time_ns));
  return (until_ns - from_ns) / 1e9 / steps;
}

double StragglerWatch::usual_pace(const Worker& worker, const Window& own,
                                  const Window& window) const {
  const auto paces_since = [&](std::uint64_t since_ns) {
    std::vector<double> paces;
    for (std::size_t i = 1; i < worker.samples.size(); ++i) {
      const auto& one = worker.samples[i - 1];
      const auto& next = worker.samples[i];
      if (next.time_ns <= since_ns || one.time_ns < compared_from_ns_) continue;
      if (next.time_ns > one.time_ns)
        paces.push_back(static_cast<double>(next.time_ns - one.time_ns) / 1e9 /
                        static_cast<double>(next.step - one.step));
    }
    return paces;
  };
  auto paces = paces_since(window.first->time_ns);
  if (paces.size() < static_cast<std::size_t>(kWindowLooks))
    paces = paces_since(own.first->time_ns);
  return paces.empty() ? own.seconds_a_step() : median_of(std::move(paces));
}

double StragglerWatch::suspect_pace(const Windows& windows) {
  std::vector<double> paces;
  for (const auto& window : windows)
    if (window) paces.push_back(window->seconds_a_step());
  if (paces.empty()) return 0;
  const auto middle = paces.begin() + static_cast<std::ptrdiff_t>((paces.size() - 1) / 2);
  std::nth_element(paces.begin(), middle, paces.end());
  return *middle * kSuspect;
}

std::optional<double> StragglerWatch::times_slower(std::size_t worker,
                                                   const Windows& windows) const {
  const auto& window = *windows[worker];
  std::vector<double> means;
  std::vector<double> usual;
  const std::size_t stride = (windows.size() + kMostOthers - 1) / kMostOthers;
  for (std::size_t k = (worker + 1) % stride; k < windows.size(); k += stride) {
    if (k == worker || !windows[k]) continue;
    means.push_back(pace_meanwhile(workers_[k], *windows[k], window));
    usual.push_back(usual_pace(workers_[k], *windows[k], window));
  }
  if (means.empty()) return std::nullopt;
  const auto times = [](double own, std::vector<double> others) {
    return own / std::max(median_of(std::move(others)), 1e-9);
  };
  return std::min(times(window.seconds_a_step(), std::move(means)),
                  times(usual_pace(workers_[worker], window, window), std::move(usual)));
}

bool StragglerWatch::is_news(Worker& worker, double times, std::uint64_t now_ns) {
  if (times > kRecovered)
    worker.fast_since_ns = 0;
  else if (worker.fast_since_ns == 0)
    worker.fast_since_ns = now_ns;
  if (worker.fast_since_ns != 0 && now_ns - worker.fast_since_ns >= kRecoveredNs)
    worker.is_told = false;
  return times > kSlow && !std::exchange(worker.is_told, true);
}

std::optional<double> StragglerWatch::steps_per_second(LocalRank worker, Instant now) const {
  if (worker.value() >= workers_.size()) return std::nullopt;
  const auto& samples = workers_[worker.value()].samples;
  if (samples.size() < 2) return std::nullopt;
  const auto window = last_steps(workers_[worker.value()]);
  const auto& first = *window.first;
  const auto& last = *window.last;
  const auto steps = static_cast<double>(window.steps());
  const auto now_ns = nanoseconds_of(now);
  const auto ns_since = [](std::uint64_t from, std::uint64_t to) {
    return to > from ? static_cast<double>(to - from) : 0;
  };
  double time = ns_since(first.time_ns, last.time_ns);
  // Between two looks a step may have been done that isn't among the samples yet.
  constexpr double kLook = 1e9;
  if (ns_since(last.time_ns, now_ns) > time / steps + kLook) time = ns_since(first.time_ns, now_ns);
  if (time < static_cast<double>(kWindowNs)) return std::nullopt;
  return steps * 1e9 / time;
}

std::vector<StragglerWatch::Straggler> StragglerWatch::look(
    const std::vector<heartbeat::Beat>& beats, Instant now) {
  bool did_any_pause =
      std::ranges::any_of(beats, [](const auto& beat) { return beat.section_since_ns != 0; });
  for (std::size_t i = 0; i < std::min(beats.size(), workers_.size()); ++i)
    did_any_pause = did_any_pause || beats[i].pid != workers_[i].pid;
  if (did_any_pause) compared_from_ns_ = nanoseconds_of(now);
  Windows windows;
  for (std::size_t i = 0; i < std::min(beats.size(), workers_.size()); ++i) {
    take(workers_[i], beats[i]);
    windows.push_back(compared(workers_[i]));
  }
  const double suspect = suspect_pace(windows);
  std::vector<Straggler> found;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (windows[i] && !workers_[i].is_told && windows[i]->seconds_a_step() <= suspect) continue;
    const auto times = windows[i] ? times_slower(i, windows) : std::nullopt;
    if (!times) workers_[i].fast_since_ns = 0;
    if (!times || !is_news(workers_[i], *times, nanoseconds_of(now))) continue;
    const auto& window = *windows[i];
    const Instant began{std::chrono::nanoseconds{window.first->time_ns}};
    found.push_back({LocalRank{static_cast<std::uint32_t>(i)}, *times, 1 / window.seconds_a_step(),
                     std::chrono::duration_cast<Millis>(now - began)});
  }
  return found;
}

}  // namespace acc::agent
