#pragma once

#include "agent/daemon/log_place.hpp"
#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Reads what a job's user may have put into the job's folder, as root: by descriptor, through no
/// link, into no file system that is mounted there, and only what belongs to that user. `folder` is
/// an open descriptor of jobs/ID/user.
namespace acc::agent::daemon {

/// A regular file of `owner`. `path` is relative, without "..", and none of its parts is followed
/// through a link. It never blocks: a pipe there is refused.
[[nodiscard]] Result<UniqueFd> open_user_file(int folder, const std::string& path, uid_t owner);
/// All of it, if it has at most `limit` bytes.
[[nodiscard]] Result<std::string> read_user_file(int folder, const std::string& path, uid_t owner,
                                                 std::size_t limit);
/// Whether there is something of that name; an error where that can't be seen now.
[[nodiscard]] Result<bool> has_user_file(int folder, const std::string& name);

/// The newest attempt_K in the folder of a run. It is remembered while the folder doesn't change:
/// of a job with thousands of attempts hundreds of readers may look for it at each line of output.
class NewestAttempts {
 public:
  /// Its number; nothing: there is none. In a folder that changes all the time an attempt may be
  /// found up to 50 ms late, unless its number is the one after the last.
  [[nodiscard]] std::optional<std::uint32_t> in(int run_folder);
  /// How often a folder was read.
  [[nodiscard]] std::size_t reads() const { return reads_; }

 private:
  struct Known {
    timespec changed{};       ///< the folder's time when it was read
    bool is_settled = false;  ///< a later change would have another time
    Instant read_at{};
    std::optional<std::uint32_t> attempt;
  };

  std::map<std::pair<dev_t, ino_t>, Known> known_;
  std::size_t reads_ = 0;
};

/// The newest log file of a rank: logs/RUN/attempt_K/RANK/stdout.log. RUN is what logs/latest
/// names, if that is a name in there, else the newest folder.
[[nodiscard]] Result<UniqueFd> open_rank_log(int folder, NewestAttempts& attempts,
                                             std::uint32_t local_rank, bool is_stderr, uid_t owner);
/// The first of a rank's log files from `choice.from` on that wasn't read, in the order in which
/// attempts and runs began; if each was read, the last one. Where `from`, or its run, is gone, that
/// is the oldest one after it. It may look at some only: then the place isn't that of `from`.
[[nodiscard]] Result<RankLog> find_rank_log(int folder, NewestAttempts& attempts,
                                            const RankLogChoice& choice, uid_t owner);
/// `logs`, and that of its newest run, as far as they are there.
[[nodiscard]] std::vector<UniqueFd> open_log_folders(int folder);
/// A connection to a unix socket of that user, whose listener has its uid, too.
[[nodiscard]] Result<UniqueFd> connect_user_socket(int folder, const std::string& name,
                                                   uid_t owner);

}  // namespace acc::agent::daemon
