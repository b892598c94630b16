#pragma once

#include "agent/daemon/api_call.hpp"
#include "common/duration.hpp"

#include <memory>
#include <vector>

namespace acc::agent::daemon {

/// Tells the reader of a rank's log when a new attempt or run of the job begins, which has another
/// file for that rank.
class RankFolders {
 public:
  /// Watches what new attempts and runs show in. What was there before isn't reported: look for the
  /// rank's file after this call.
  void watch(ApiContext& api, const Principal& who, const JobId& id,
             const std::shared_ptr<BodyWriter>& to);
  /// How long the reader may wait at most: the rank's file arises a moment after its attempt's
  /// folder, which is the one that is reported.
  [[nodiscard]] Instant look_again_by() const;

 private:
  std::vector<FileGrowth::Watch> watches_;
  std::shared_ptr<bool> is_told_ = std::make_shared<bool>(true);
  bool is_watched_ = false;
  Instant changed_{};
};

}  // namespace acc::agent::daemon
