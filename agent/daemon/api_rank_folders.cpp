#include "agent/daemon/api_rank_folders.hpp"

namespace acc::agent::daemon {

namespace {

/// After a change the reader looks for the rank's file at this pace, for this time.
constexpr Millis kLookSoon{200};
constexpr Millis kNewFor{1'000};
/// Where the kernel has no watch left.
constexpr Millis kLookUnwatched{500};

}  // namespace

void RankFolders::watch(ApiContext& api, const Principal& who, const JobId& id,
                        const std::shared_ptr<BodyWriter>& to) {
  if (!*is_told_) return;
  if (!watches_.empty()) changed_ = clock_now();
  watches_.clear();
  *is_told_ = false;
  const auto folders = api.jobs.open_log_folders(who, id);
  is_watched_ = !folders.empty();
  for (const auto& folder : folders) {
    watches_.push_back(api.growth.watch(folder.get(), [to, is_told = is_told_] {
      *is_told = true;
      to->notify();
    }));
    is_watched_ = is_watched_ && watches_.back();
  }
  if (!is_watched_) *is_told_ = true;  // tried again at the next look
}

Instant RankFolders::look_again_by() const {
  const auto now = clock_now();
  if (!is_watched_) return now + kLookUnwatched;
  return now < changed_ + kNewFor ? now + kLookSoon : Instant::max();
}

}  // namespace acc::agent::daemon
