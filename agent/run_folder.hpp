#pragma once

#include "agent/job_plan.hpp"

#include <string>

namespace acc::agent {

/// <run folder>/attempt_<round>: below it lies a folder for each local rank.
[[nodiscard]] std::string attempt_folder(const std::string& run_folder, Round round);

/// The folder of one run, as torchrun lays it out: <base>/<run id>_<random>/attempt_<K>/<local
/// rank>/; on several machines <run id>_<node>_<random>. The base is --log_dir, else the folder for
/// temporary files; a temporary one without logs in it is removed at the end.
class RunFolder {
 public:
  /// @param node  empty in a job on one machine
  RunFolder(const OutputPlan& output, const std::string& run_id, const std::string& node,
            const std::string& random);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Makes attempt_<round>/<0 … workers-1> for error files; where it lies, or empty if the disk
  /// refuses.
  [[nodiscard]] std::string make_attempt(Round round, std::uint32_t workers);
  /// Removes the attempts before this one, unless they hold logs.
  void forget_before(Round round);
  [[nodiscard]] bool holds_logs() const { return holds_logs_; }

 private:
  bool holds_logs_;
  std::string path_;
  bool made_ = false;
};

}  // namespace acc::agent
