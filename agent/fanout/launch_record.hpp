#pragma once

#include "common/error.hpp"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// A job on several hosts that daemons run, as the user's own files remember it: for acc-ctl, also
/// when acc-launch is gone.
namespace acc::agent {

struct LaunchPart {
  std::string host;  ///< for people
  std::string node;  ///< in the API of that daemon (/v1/nodes/NODE/…); empty: its own node
  std::string job;   ///< empty: not known yet
};

struct LaunchRecord {
  std::string id;
  std::string socket;  ///< of the daemon that it was started through
  std::string folder;
  std::int64_t started_ms = 0;  ///< wall clock; for printing only
  bool is_detached = false;     ///< no acc-launch follows it
  std::vector<LaunchPart> parts;
  /// Where that daemon is, as a home may be shared by many nodes; empty: an older acc-launch's.
  std::string node{};
  /// Whose record it is, and so whose its jobs are: not written, but read from the file's owner,
  /// who is the one that asks.
  std::string user{};
  std::size_t min_hosts = 0;  ///< fewer can't run the job; 0: not known, an older acc-launch's

  /// Whether so many hosts may still run the job; those that nothing is known of count.
  [[nodiscard]] bool can_go_on_with(std::size_t hosts) const { return hosts >= min_hosts; }
};

/// $XDG_STATE_HOME/acc/launches, else ~/.local/state/acc/launches; empty: there is no home.
[[nodiscard]] std::string launches_folder();

[[nodiscard]] std::string encode_record(const LaunchRecord& record);
/// Total: nothing for what is no record, or has another id.
[[nodiscard]] Result<LaunchRecord> decode_record(std::string_view text);

/// For this user alone; whole or not at all.
Result<void> write_record(const LaunchRecord& record);
void remove_record(const std::string& id);
/// The owner of a record whose file has the owner `file`, as `self` reads it. A file system that
/// squashes users says "nobody" of all files: the reader's own, as the folder is the reader's.
[[nodiscard]] uid_t owner_of_record(uid_t file, uid_t self);
/// This user's own, the oldest first. Another user's, as of a HOME that is that user's (sudo -E),
/// are left out: a record says which daemon is asked, and which jobs are meant.
[[nodiscard]] std::vector<LaunchRecord> read_records();

}  // namespace acc::agent
