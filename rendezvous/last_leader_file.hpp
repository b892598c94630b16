#pragma once

#include "common/duration.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace acc::rendezvous {

/// Small file in memory by which a coordinator restarted on the same host knows how long ago the
/// job's previous coordinator was active: nodes may still hold leases of it, and it kept nothing
/// else. A reboot deletes the file, and takes longer than a lease.
class LastLeaderFile {
 public:
  /// One file per user, network namespace, job and port, in $XDG_RUNTIME_DIR or a folder of the
  /// user's own in the first of the others that can be written to. Without one nothing is recorded.
  LastLeaderFile(const std::string& job, std::uint16_t port,
                 const std::vector<std::string>& shared_folders = {"/dev/shm", "/run", "/tmp"});

  /// Time since the last renewal; nothing: no coordinator ended without removing the file. 0 where
  /// other users took the names of our folders: a coordinator may have been active until now.
  [[nodiscard]] std::optional<Millis> age() const;
  void renew() const;
  /// The job ended properly.
  void remove() const;

 private:
  std::vector<std::string> paths_;  ///< the first is written, all are read
  bool is_kept_out_ = false;
};

}  // namespace acc::rendezvous
