#pragma once

#include "common/duration.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace acc::rendezvous {

/// Small file in memory by which a coordinator restarted on the same host knows how long ago the
/// job's previous coordinator was active: nodes may still hold leases of it, and it kept nothing
/// else. A reboot deletes the file, and takes longer than a lease.
class LastLeaderFile {
 public:
  /// One file per user, network namespace, job and port. Without a writable folder nothing is
  /// recorded.
  LastLeaderFile(const std::string& job, std::uint16_t port);

  /// Time since the last renewal; nothing: no coordinator ended without removing the file.
  [[nodiscard]] std::optional<Millis> age() const;
  void renew() const;
  /// The job ended properly.
  void remove() const;

 private:
  std::string path_;
};

}  // namespace acc::rendezvous
