#pragma once

#include <nlohmann/json.hpp>

#include <acc/process_group.hpp>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

/// What the recorded files are made of, and what it takes to hold ours against them.
namespace acc::golden {

using nlohmann::json;

/// A file or a row that isn't what its schema says: a fault of the file, not of ours.
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The numbers of `in` by the names that the note gives them. Flags are 0 or 1.
class Inputs {
 public:
  Inputs(const std::vector<std::string>& names, const json& values);
  /// From 0 to 10 million: what is greater is no test but a mistake.
  [[nodiscard]] std::size_t number(const std::string& name) const;
  [[nodiscard]] std::size_t positive(const std::string& name) const;
  [[nodiscard]] bool flag(const std::string& name) const;
  [[nodiscard]] std::string word(const std::string& name) const;

 private:
  [[nodiscard]] const json& at(const std::string& name) const;
  std::map<std::string, json> values_;
};

/// `row[key]`. @throws Malformed
[[nodiscard]] const json& field(const json& row, const std::string& key);

/// What is done on each rank of a world; what it returns, or the Error it ends with, is the rank's
/// outcome.
using OnRank = std::function<json(runtime::ProcessGroup&)>;

/// The outcome of one rank.
struct Outcome {
  json value;
  std::string error;  ///< of an Error: its words
};

/// How ranks are played: as threads of this process, or as processes of their own (the default).
void ranks_are_threads(bool threads);

/// Runs `work` on `world` ranks that really communicate, and waits for all.
[[nodiscard]] std::vector<Outcome> on_ranks(int world, const OnRank& work);

/// What differs between the recorded and ours, in words; empty: nothing.
using Differences = std::vector<std::string>;
void compare(const std::string& what, const json& recorded, const json& ours,
             Differences& differences);

Differences check_batch_sampler_shard(const Inputs& in, const json& row);
Differences check_iterable_dataset_shard(const Inputs& in, const json& row);
Differences check_gather_for_metrics(const Inputs& in, const json& row);
Differences check_split_between_processes(const Inputs& in, const json& row);
Differences check_skip_first_batches(const Inputs& in, const json& row);
Differences check_accumulate(const Inputs& in, const json& row);
Differences check_collective(const json& row);

}  // namespace acc::golden
