#include "launcher/job_spec.hpp"

#include "launcher/key_table.hpp"

#include <algorithm>

namespace acc::launcher {

JobSpec::JobSpec() : settings_(kKeyCount) {
  for (std::size_t i = 0; i < kKeyCount; ++i) settings_[i].value = default_value(kKeyRows[i]);
}

void JobSpec::set(Key key, Value value, Source source, std::string origin) {
  settings_[key.row] = {std::move(value), source, std::move(origin)};
}

bool JobSpec::is_given(Key key) const {
  const auto source = settings_[key.row].source;
  return source == Source::flag || source == Source::config || source == Source::scheduler;
}

void JobSpec::reject(Key key) { rejected_.push_back(key); }

bool JobSpec::can_judge(std::initializer_list<Key> keys) const {
  return std::ranges::none_of(
      keys, [&](Key key) { return std::ranges::find(rejected_, key) != rejected_.end(); });
}

std::optional<std::int64_t> JobSpec::integer(Key key) const {
  const auto* number = value(key).integer();
  return number == nullptr ? std::nullopt : std::optional{*number};
}

std::string JobSpec::name_for_complaint(Key key) const {
  const auto& setting = settings_[key.row];
  const std::string name{row_of(key).name};
  if (setting.source == Source::config) return setting.origin + ": " + name;
  if (setting.source == Source::environment) return setting.origin;
  if (setting.source == Source::scheduler) return setting.origin + ": " + name;
  return setting.source == Source::flag ? setting.origin : "--" + name;
}

}  // namespace acc::launcher
