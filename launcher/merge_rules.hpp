#pragma once

#include "launcher/config.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/job_spec.hpp"

#include <string>
#include <string_view>

namespace acc::launcher {

/// Rules across keys. Each reads the spec as merged so far and sets or complains.
class MergeRules {
 public:
  /// All four outlive this object.
  MergeRules(JobSpec& spec, Complaints& complaints, HostFacts& facts,
             const Environment& environment)
      : spec_{spec}, complaints_{complaints}, facts_{facts}, environment_{environment} {}

  void distributed_type(const Value& value, const std::string& where);
  /// Without a config file, what is not given is guessed and told.
  void guess_without_config();
  /// With one, what is missing has a silent default.
  void defaults_with_config();
  /// What flags and file leave open and a scheduler says.
  void scheduler();
  /// --nproc_per_node × --nnodes is num_processes.
  void torchrun_counts();
  /// What counts and the machine's number can't be, and what contradicts --standalone.
  void counts();
  /// Flags that count workers beside a file that asks for one process: dropped, as by the original.
  void dropped_counts();
  /// What gpu_ids can't be, in any mode.
  void devices();
  void check_bf16_option();
  void threads();
  /// torchrun's time between SIGTERM and SIGKILL, for its lines; else ours.
  void grace();

  [[nodiscard]] std::string_view environment(std::string_view name) const {
    return variable(environment_, name);
  }

  [[nodiscard]] const Environment& all_environment() const { return environment_; }

 private:
  void complain(std::string what) { complaints_.push_back({Errc::bad_config, std::move(what)}); }
  void guess(Key key, Value value);
  /// As the original's get_int_from_env: the first of these that is set to 0 or more.
  std::int64_t number_from(std::initializer_list<std::string_view> names, std::int64_t otherwise);
  std::optional<std::int64_t> workers_per_node(const std::string& given);
  [[nodiscard]] bool is_flag(Key key) const {
    return spec_.is_given(key) && spec_[key].source == Source::flag;
  }
  void drop_beaten_counts();
  /// torchrun's counts can't be read, so how many workers there are isn't known.
  void reject_counts(bool machines_too);

  JobSpec& spec_;
  Complaints& complaints_;
  HostFacts& facts_;
  const Environment& environment_;
};

}  // namespace acc::launcher
