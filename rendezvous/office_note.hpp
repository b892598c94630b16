#pragma once

#include "common/duration.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace acc::rendezvous {

/// A small file in memory by which a coordinator that is started again on the same host knows how
/// long ago the last one of this job was in office. Nodes may still hold leases of that one; it
/// kept nothing else. Gone with a reboot, which takes longer than a lease.
class OfficeNote {
 public:
  /// One for each user, network namespace, job and port. No folder that can be written to: nothing
  /// is noted.
  OfficeNote(const std::string& job, std::uint16_t port);

  /// Since the last renewal; nothing: no coordinator left without a word.
  [[nodiscard]] std::optional<Millis> age() const;
  void renew() const;
  /// The job ended properly.
  void remove() const;

 private:
  std::string path_;
};

}  // namespace acc::rendezvous
