#include "launcher/configure/fsdp2.hpp"

#include "common/text.hpp"
#include "launcher/configure/config_map.hpp"
#include "launcher/mode.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace acc::configure {

namespace {

/// Empty: it is kept.
std::string_view why_dropped(std::string_view key) {
  if (key == "fsdp_forward_prefetch") return "is not implemented in FSDP 2";
  for (const std::string_view removed :
       {"fsdp_backward_prefetch", "fsdp_sync_module_states", "fsdp_use_orig_params"})
    if (key == removed) return "was removed in FSDP 2";
  return {};
}

/// Whether parameters are sharded again after the forward pass. 1 stays: as a strategy and as a
/// word for true it means the same.
Value reshard(const Value& value) {
  const auto* number = value.integer();
  if (number != nullptr && *number == 1) return value;
  if (value.text() == nullptr && number == nullptr) return value;
  const auto is_resharded = launcher::reshards_after_forward(python_text(value));
  return is_resharded ? Value{*is_resharded} : value;
}

/// What FSDP 2 does otherwise; empty: nothing.
std::string_view note_about(const Value& strategy) {
  const auto name = to_upper(python_text(strategy));
  if (name == "NO_SHARD" || name == "3")
    return "has no counterpart in FSDP 2, which always shards (DDP doesn't: distributed_type: "
           "MULTI_GPU)";
  if (name.starts_with("HYBRID_SHARD") || name == "4" || name == "5")
    return "shards within groups; in FSDP 2 these are a parallelism_config's (dp_replicate_size, "
           "dp_shard_size)";
  return {};
}

bool is_version_2(const Map& section) {
  const auto* version = value_of(section, "fsdp_version");
  if (version == nullptr) return false;
  const auto* real = std::get_if<double>(&version->data);
  return (version->integer() != nullptr && *version->integer() == 2) ||
         (real != nullptr && *real == 2.0);
}

}  // namespace

Fsdp2 to_fsdp2(Map map) {
  Fsdp2 done{std::move(map), {}};
  const auto section = std::ranges::find(done.map, "fsdp_config", &Entry::key);
  const auto* old = section == done.map.end() ? nullptr : section->value.map();
  if (old == nullptr || old->empty()) {
    done.notes.emplace_back("there is no fsdp_config: nothing was changed");
    return done;
  }
  if (is_version_2(*old)) {
    done.notes.emplace_back(
        "fsdp_version is 2 already: nothing was changed (if the other keys are those of FSDP 1, "
        "write fsdp_version: 1 and convert again)");
    return done;
  }
  Map converted;
  for (const auto& [key, value] : *old) {
    const auto dropped = why_dropped(key);
    if (!dropped.empty()) {
      done.notes.push_back(key + " " + std::string{dropped} + ": dropped");
      continue;
    }
    const bool is_strategy = key == "fsdp_sharding_strategy" || key == "fsdp_reshard_after_forward";
    const auto note = is_strategy ? note_about(value) : std::string_view{};
    if (!note.empty())
      done.notes.push_back(key + ": " + python_text(value) + " " + std::string{note});
    put(converted, is_strategy ? "fsdp_reshard_after_forward" : key,
        is_strategy ? reshard(value) : value);
  }
  put(converted, "fsdp_version", Value{std::int64_t{2}});
  section->value = Value{std::move(converted)};
  return done;
}

}  // namespace acc::configure
