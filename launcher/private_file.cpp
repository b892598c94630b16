#include "launcher/private_file.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "launcher/user_messages.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace acc::launcher {

namespace {

/// The owner that a server of files (NFS with root_squash, CIFS) gives to what this user makes
/// beside `path`.
uid_t owner_given_beside(const std::string& path) {
  std::string beside = path + ".XXXXXX";
  const UniqueFd made{::mkostemp(beside.data(), O_CLOEXEC)};
  if (!made) return ::geteuid();
  struct stat info {};
  const bool is_seen = ::fstat(made.get(), &info) == 0;
  ::unlink(beside.c_str());
  return is_seen ? info.st_uid : ::geteuid();
}

/// Of a file that was there before. Empty: it may be written to.
std::string fault_of(const struct stat& info, const std::string& path) {
  if (!S_ISREG(info.st_mode)) return "it is no regular file";
  if (info.st_uid != ::geteuid() && info.st_uid != owner_given_beside(path))
    return "it belongs to uid " + std::to_string(info.st_uid);
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
  constexpr int kFlags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  UniqueFd file{::open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0600)};
  const bool is_made = static_cast<bool>(file);  // ours, whatever its owner
  if (!file && errno == EEXIST) file.reset(::open(path.c_str(), kFlags));
  if (!file && errno == ELOOP) return refused("it is a symbolic link");
  if (!file && errno == ENXIO) return refused("it is no regular file");
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return system_error(errno, attempted);
  if (!is_made)
    if (const auto fault = fault_of(info, path); !fault.empty()) return refused(fault);
  constexpr mode_t kOfOthers = S_IRWXG | S_IRWXO;
  if (::fchmod(file.get(), 0600) != 0 && (info.st_mode & kOfOthers) != 0)
    return system_error(errno, attempted);
  if (const int failed = write_all(file.get(), text); failed != 0)
    return system_error(failed, attempted);
  return {};
}

}  // namespace acc::launcher
