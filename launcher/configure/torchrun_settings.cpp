#include "launcher/configure/torchrun_settings.hpp"

#include "common/text.hpp"
#include "launcher/config_keys.hpp"
#include "launcher/configure/config_map.hpp"
#include "launcher/configure/deepspeed_line.hpp"

#include <algorithm>

namespace acc::configure {

namespace {

using launcher::Environment;
using launcher::Group;
using launcher::KeyRow;

void put_grace(Map& map, const Environment& environment) {
  if (value_of(map, "grace") != nullptr) return;
  const auto asked = launcher::variable(environment, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  const auto number = parse_number<std::int64_t>(asked);
  // One that is wrong is refused at the start, whatever the file says.
  if (number && *number >= 0) return put(map, "grace", Value{*number});
  constexpr std::int64_t kOfTorchrun = 30;
  if (asked.empty()) put(map, "grace", Value{kOfTorchrun});
}

/// A word in any case, as Accelerate takes it.
Result<Value> read_value(const KeyRow& row, const std::string& text) {
  if (row.type != launcher::Type::text) return launcher::check_value(row, Value{text});
  const auto choices = split(row.choices, ' ');
  const bool is_one = std::ranges::any_of(
      choices, [&](const std::string& one) { return to_lower(one) == to_lower(text); });
  if (row.choices.empty() || is_one) return Value{text};
  return Error{Errc::bad_config, in_quotes(text, 60) + " is not one of " + join(choices, ", ")};
}

void put_setting(ForeignLine& line, const KeyRow& row, const Environment& environment) {
  const std::string name{row.variable};
  const std::string text{launcher::variable(environment, name)};
  if (text.empty() || value_of_key(line.map, row) != nullptr) return;
  auto value = read_value(row, text);
  if (!value) {
    line.notes.push_back("left out: " + name + ": " + value.error().what);
    return;
  }
  if (is_of_deepspeed_file(row.name) && has_deepspeed_file(line.map)) {
    line.flags.insert(line.flags.end(), {"--" + std::string{row.name}, text});
  } else {
    put_key(line.map, row, std::move(*value));
  }
  line.notes.push_back("the line leaves " + std::string{row.name} +
                       " to the environment: " + printable(text, 60) + " by " + name);
}

}  // namespace

bool counts_as_torchrun(const ForeignLine& line) {
  const auto counts = [&](const std::string& key) {
    return value_of(line.map, key) != nullptr ||
           std::ranges::find(line.flags, "--" + key) != line.flags.end();
  };
  return counts("nproc_per_node") || counts("nnodes");
}

void put_torchrun_settings(ForeignLine& line, const Environment& environment) {
  const bool is_set = !launcher::variable(environment, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT").empty();
  if (is_set || !counts_as_torchrun(line)) put_grace(line.map, environment);
  const auto put_group = [&](Group group) {
    for (const auto& row : launcher::key_rows())
      if (row.group == group && !row.variable.empty()) put_setting(line, row, environment);
  };
  put_group(Group::precision);
  const auto* precision = value_of(line.map, "mixed_precision");
  if (precision != nullptr && to_lower(python_text(*precision)) == "fp8") put_group(Group::fp8);
}

}  // namespace acc::configure
