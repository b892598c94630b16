#include "agent/watch/straggler_watch.hpp"

#include <algorithm>

namespace acc::agent {

namespace {

// With 30 % jitter the mean of so many steps is 13 standard deviations away from twice the median,
// and that of a rank 2.5 times slower is beyond it.
constexpr std::uint64_t kWindowSteps = 16;
constexpr std::uint64_t kWindowNs = 2'000'000'000;  // of short steps more: a hiccup is no straggler
constexpr std::size_t kMostSamples = 256;
constexpr double kSlow = 2.0;

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

void StragglerWatch::take(Worker& worker, const heartbeat::Beat& beat) const {
  auto& samples = worker.samples;
  // In a section no steps are done: what was before isn't compared with what comes after.
  if (beat.section_since_ns != 0) return samples.clear();
  if (beat.beats == 0) return;
  if (!samples.empty() && beat.step < samples.back().step) samples.clear();  // it began anew
  if (samples.empty() || beat.step > samples.back().step)
    samples.push_back({beat.step, beat.time_ns});
  const auto is_enough_without_first = [&] {
    const auto& second = samples[1];
    return samples.back().step - second.step >= kWindowSteps &&
           samples.back().time_ns - second.time_ns >= kWindowNs;
  };
  while (samples.size() > 2 && (samples.size() > kMostSamples || is_enough_without_first()))
    samples.pop_front();
}

std::optional<StragglerWatch::Pace> StragglerWatch::pace_of(const Worker& worker) const {
  const auto first = std::ranges::find_if(
      worker.samples, [this](const Sample& one) { return one.time_ns >= compared_from_ns_; });
  if (first == worker.samples.end()) return std::nullopt;
  const auto& last = worker.samples.back();
  const std::uint64_t steps = last.step - first->step;
  const std::uint64_t time = last.time_ns > first->time_ns ? last.time_ns - first->time_ns : 0;
  if (steps < kWindowSteps || time < kWindowNs) return std::nullopt;
  return Pace{static_cast<double>(time) / 1e9 / static_cast<double>(steps), first->time_ns};
}

std::optional<double> StragglerWatch::steps_per_second(LocalRank worker, Instant now) const {
  if (worker.value() >= workers_.size()) return std::nullopt;
  const auto& samples = workers_[worker.value()].samples;
  if (samples.size() < 2) return std::nullopt;
  const auto& first = samples.front();
  const auto& last = samples.back();
  const auto steps = static_cast<double>(last.step - first.step);
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
  if (std::ranges::any_of(beats, [](const auto& beat) { return beat.section_since_ns != 0; }))
    compared_from_ns_ = nanoseconds_of(now);
  std::vector<std::optional<Pace>> paces;
  for (std::size_t i = 0; i < std::min(beats.size(), workers_.size()); ++i) {
    take(workers_[i], beats[i]);
    paces.push_back(pace_of(workers_[i]));
  }
  std::vector<Straggler> found;
  for (std::size_t i = 0; i < paces.size(); ++i) {
    if (!paces[i]) continue;
    std::vector<double> others;
    for (std::size_t k = 0; k < paces.size(); ++k)
      if (k != i && paces[k]) others.push_back(paces[k]->seconds);
    if (others.empty()) continue;
    const double times = paces[i]->seconds / std::max(median_of(std::move(others)), 1e-9);
    auto& worker = workers_[i];
    if (times <= kSlow || worker.is_told) continue;
    worker.is_told = true;
    const Instant began{std::chrono::nanoseconds{paces[i]->since_ns}};
    found.push_back({LocalRank{static_cast<std::uint32_t>(i)}, times, 1 / paces[i]->seconds,
                     std::chrono::duration_cast<Millis>(now - began)});
  }
  return found;
}

}  // namespace acc::agent
