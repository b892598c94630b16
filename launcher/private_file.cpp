#include "launcher/private_file.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "launcher/user_messages.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace acc::launcher {

namespace {

/// Empty: it may be written to.
std::string fault_of(const struct stat& info) {
  if (!S_ISREG(info.st_mode)) return "it is no regular file";
  if (info.st_uid != ::geteuid()) return "it belongs to uid " + std::to_string(info.st_uid);
  if (info.st_nlink > 1) return "it has another name elsewhere (a hard link)";
  return {};
}

}  // namespace

Result<void> append_private(const std::string& path, const std::string& text) {
  const auto attempted = "write " + in_quotes(path);
  const auto refused = [&](const std::string& why) {
    return Error{Errc::not_permitted,
                 attempted + ": " + why +
                     ", and would receive the values of your environment: remove it, or work in "
                     "a folder of your own"};
  };
  // Without waiting, where a pipe is in its place.
  const UniqueFd file{::open(
      path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600)};
  if (!file && errno == ELOOP) return refused("it is a symbolic link");
  if (!file && errno == ENXIO) return refused("it is no regular file");
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return system_error(errno, attempted);
  if (const auto fault = fault_of(info); !fault.empty()) return refused(fault);
  if (::fchmod(file.get(), 0600) != 0) return system_error(errno, attempted);
  if (const int failed = write_all(file.get(), text); failed != 0)
    return system_error(failed, attempted);
  return {};
}

}  // namespace acc::launcher
