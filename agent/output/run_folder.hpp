#pragma once

#include "agent/job_plan.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <string>

namespace acc::agent {

/// <run folder>/attempt_<round>: below it lies a folder for each local rank.
[[nodiscard]] std::string attempt_folder(const std::string& run_folder, Round round);

/// The folder of one run, as torchrun lays it out: <base>/<run id>_<random>/attempt_<K>/<local
/// rank>/; on several machines <run id>_<node>_<random>. The base is --log_dir, else the folder for
/// temporary files; a temporary one is its owner's alone, as torchrun's, and one without logs in it
/// is removed at the end.
class RunFolder {
 public:
  /// @param node  empty in a job on one machine
  RunFolder(const OutputPlan& output, const std::string& run_id, const std::string& node,
            const std::string& random);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Why the folder isn't in $TMPDIR, which was asked for; empty: it is, or wasn't.
  [[nodiscard]] const std::string& detour() const { return detour_; }
  /// Makes attempt_<round> for error files; where it lies, or empty if the disk refuses.
  [[nodiscard]] std::string make_attempt(Round round);
  /// The folder of one worker there. @return false if the disk refuses
  bool make_worker(Round round, LocalRank local) const;
  /// Removes the attempt before this one, unless it holds logs, for some milliseconds at most.
  /// @return whether that is done
  [[nodiscard]] bool forget_some(Round before);
  [[nodiscard]] bool holds_logs() const { return holds_logs_; }

 private:
  /// Where the folder lies; sets detour_.
  std::string base_folder(const OutputPlan& output);
  /// The folder that we made; empty if there is another one, or a link, in its place.
  [[nodiscard]] UniqueFd open_made() const;

  bool holds_logs_;
  bool is_private_;  ///< others that may write to its base mustn't read it
  std::string detour_;
  std::string path_;
  bool made_ = false;
  struct {
    dev_t dev = 0;
    ino_t ino = 0;
  } made_at_;
};

/// Makes <run folder>/attempt_<K>/<local rank>, and what is missing above it.
/// @param is_private  for their owner alone, whatever the umask is
/// @return EPERM: the run folder is another user's, or a link, in the place of one that was removed
Result<void> make_worker_folder(const std::string& path, bool is_private);

/// <log_dir>/latest leads to `folder`, which lies in log_dir; replaced in one step.
Result<void> link_latest(const std::string& log_dir, const std::string& folder);

}  // namespace acc::agent
