#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <cstdint>
#include <string>

/// Reads what a job's user may have put into the job's folder, as root: by descriptor, through no
/// link, and only what belongs to that user. `folder` is an open descriptor of jobs/ID/user.
namespace acc::agent::daemon {

/// A regular file of `owner`. `path` is relative, without "..", and none of its parts is followed
/// through a link. It never blocks: a pipe there is refused.
[[nodiscard]] Result<UniqueFd> open_user_file(int folder, const std::string& path, uid_t owner);
/// All of it, if it has at most `limit` bytes.
[[nodiscard]] Result<std::string> read_user_file(int folder, const std::string& path, uid_t owner,
                                                 std::size_t limit);
[[nodiscard]] bool has_user_file(int folder, const std::string& name);
/// The newest log file of a rank: logs/RUN/attempt_K/RANK/stdout.log. RUN is what logs/latest
/// names, if that is a name in there, else the newest folder.
[[nodiscard]] Result<UniqueFd> open_rank_log(int folder, std::uint32_t local_rank, bool is_stderr,
                                             uid_t owner);
/// A connection to a unix socket of that user, whose listener has its uid, too.
[[nodiscard]] Result<UniqueFd> connect_user_socket(int folder, const std::string& name,
                                                   uid_t owner);

}  // namespace acc::agent::daemon
