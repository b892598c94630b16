#pragma once

#include "launcher/config_keys.hpp"

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace acc::launcher {

enum class Source { by_default, config, flag, environment, scheduler, guessed };

struct Setting {
  Value value;
  Source source = Source::by_default;
  std::string origin;  ///< "cfg.yaml:3", "--num_processes", "OMP_NUM_THREADS", "Slurm step 42.0",
                       ///< "2 devices found"; empty for a default
};

/// What the user wants, merged from defaults, config file, flags and environment. Each value
/// remembers who set it.
class JobSpec {
 public:
  JobSpec();

  [[nodiscard]] const Setting& operator[](Key key) const { return settings_[key.row]; }
  void set(Key key, Value value, Source source, std::string origin);

  [[nodiscard]] const Value& value(Key key) const { return settings_[key.row].value; }
  [[nodiscard]] bool is_set(Key key) const { return !value(key).is_none(); }
  /// Set by a flag, the config file or a scheduler, not by default or a guess.
  [[nodiscard]] bool is_given(Key key) const;
  [[nodiscard]] bool flag(Key key) const { return truthy(value(key)); }
  [[nodiscard]] std::string text(Key key) const {
    return is_set(key) ? python_text(value(key)) : std::string{};
  }
  [[nodiscard]] std::optional<std::int64_t> integer(Key key) const;
  /// "--tee" or "cfg.yaml:3: tee", to begin a complaint with.
  [[nodiscard]] std::string name_for_complaint(Key key) const;

  /// Given, but with a bad value or misspelled, and complained about.
  void reject(Key key);
  /// None of these was rejected. What follows from one that was is not judged: it would be a guess.
  [[nodiscard]] bool can_judge(std::initializer_list<Key> keys) const;

  std::string config_path;  ///< empty: no config file
  std::string script;
  std::vector<std::string> script_args;
  /// "job.yaml:3: script: train.py", if the command line's program takes its place; else empty.
  std::string script_replaced;
  /// Keys of deepspeed_config in file order, and mixed_precision if it came from the file.
  std::vector<std::string> deepspeed_fields;
  /// fp8_* keys that are no option: each becomes a variable, as in the original.
  std::vector<std::pair<std::string, Value>> further_fp8;
  std::vector<std::pair<std::string, std::string>>
      defaulted;  ///< name and value of what had to be guessed
  bool multi_gpu_was_guessed = false;
  std::string scheduler;      ///< "Slurm step 42.0", if it placed us; else empty
  std::optional<bool> hosts;  ///< the coordinator is to run here; empty: the scheduler can't say
  std::vector<std::string> notes;  ///< one line each, for stderr

 private:
  std::vector<Setting> settings_;
  std::vector<Key> rejected_;
};

}  // namespace acc::launcher
