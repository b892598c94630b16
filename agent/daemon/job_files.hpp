#pragma once

#include "common/error.hpp"

#include <sys/types.h>

#include <string>
#include <vector>

/// The jobs of /etc/acc/jobs.d: a file each, NAME.yaml, NAME.yml or NAME.json, run as its owner.
/// Only acc-launch reads what is in it. Of two with one NAME the first of these endings counts.
namespace acc::agent::daemon {

struct JobFile {
  std::string name;  ///< the stem, a job's name
  std::string path;
  uid_t uid = 0;
  gid_t gid = 0;
  std::string text;
  std::string digest;  ///< of the text, and of the language that it is in
  bool is_json = false;
};

struct RefusedFile {
  std::string name;  ///< with its ending
  std::string stem;
  std::string why;
};

struct JobFiles {
  std::vector<JobFile> files;
  std::vector<RefusedFile> refused;
  bool has_folder = true;
};

/// @param daemon  its uid: one that is not root runs files of its own user alone
/// @return an error if the folder can't be read; none and no file if there is no such folder
[[nodiscard]] Result<JobFiles> read_job_files(const std::string& folder, uid_t daemon);

}  // namespace acc::agent::daemon
