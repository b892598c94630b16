#pragma once

#include "agent/daemon/jobs.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// The command line and the environment of a job's guardian (pure).
namespace acc::agent::daemon {

/// The submitted words behind the daemon's own: a report, and a log file for each rank. Each is
/// left out where the words name it, in whatever spelling, also where it may be meant for the
/// script: then a rank has no log of its own, but nothing is said twice.
[[nodiscard]] std::vector<std::string> guardian_words(const std::vector<std::string>& submitted,
                                                      const std::string& user_folder);

struct LoginUser {
  uid_t uid = 0;
  gid_t gid = 0;
  std::string name;
  std::string home;
  std::string shell;
  std::vector<gid_t> groups;  ///< supplementary
  bool has_account = true;    ///< false: the user data base doesn't know the uid
};

using GpuNumbers = std::vector<std::uint32_t>;

/// "NAME=value" each: what a login gives, then what was submitted, then the job's folder. Nothing
/// of the daemon's own.
/// @param gpus  that it may see; nothing: all
[[nodiscard]] std::vector<std::string> guardian_environment(const LoginUser& user,
                                                            const Submission& submission,
                                                            const std::string& user_folder,
                                                            const std::optional<GpuNumbers>& gpus,
                                                            const std::string& lang);

inline constexpr std::size_t kMostVariables = 4096;  ///< that a submission may add

/// What it holds in memory, about: characters, and what the library keeps for each word and
/// variable.
[[nodiscard]] std::size_t memory_of(const Submission& submission);

/// Names the first thing that makes a submission impossible; empty: it may be recorded.
[[nodiscard]] std::string submission_complaint(const Submission& submission);
inline constexpr std::size_t kLongestJobName = 64;
[[nodiscard]] bool is_job_name(std::string_view text);

}  // namespace acc::agent::daemon
