#include "launcher/configure/save.hpp"

#include "common/foreign_file.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "launcher/user_messages.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace acc::configure {

namespace fs = std::filesystem;

namespace {

Error cannot_write(int reason, const std::string& path) {
  return system_error(reason, "cannot write " + in_quotes(path));
}

Result<void> write_into(const std::string& path, std::string_view text) {
  const UniqueFd file{::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY)};
  const int failed = file ? launcher::write_all(file.get(), text) : errno;
  if (failed != 0) return cannot_write(failed, path);
  return {};
}

mode_t mode_of_new_files() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666U & ~mask;
}

/// The new file's way to its place; removed if it doesn't get there.
class Replacement {
 public:
  explicit Replacement(std::string target)
      : target_{std::move(target)},
        path_{target_ + ".XXXXXX"},
        file_{::mkostemp(path_.data(), O_CLOEXEC)} {
    if (!file_) failed_ = errno;
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  ~Replacement() {
    if (file_) ::unlink(path_.c_str());
  }

  /// 0, or why not.
  int put(std::string_view text, const struct stat* old) {
    if (failed_ != 0) return failed_;
    if (const int failed = launcher::write_all(file_.get(), text); failed != 0) return failed;
    // Only root can give a file away; for others it is theirs already.
    if (old != nullptr && ::fchown(file_.get(), old->st_uid, old->st_gid) != 0 && ::geteuid() == 0)
      return errno;
    const mode_t mode = old != nullptr ? old->st_mode & 07777U : mode_of_new_files();
    if (::fchmod(file_.get(), mode) != 0 || ::fsync(file_.get()) != 0) return errno;
    if (::rename(path_.c_str(), target_.c_str()) != 0) return errno;
    file_ = UniqueFd{};
    return 0;
  }

 private:
  std::string target_;
  std::string path_;
  UniqueFd file_;
  int failed_ = 0;
};

}  // namespace

Result<void> check_place(const std::string& path) {
  std::error_code failed;
  if (fs::is_directory(path, failed)) return cannot_write(EISDIR, path);
  if (fs::exists(path, failed) && ::access(path.c_str(), W_OK) != 0)
    return cannot_write(errno, path);
  if (fs::exists(path, failed) && !fs::is_regular_file(path, failed)) return {};
  const auto behind = file_behind_links(path);  // a link may lead to a file that isn't there yet
  if (behind.error != 0) return cannot_write(behind.error, path);
  auto folder = fs::absolute(behind.file, failed).parent_path();
  while (folder.has_relative_path() && !fs::exists(folder, failed)) folder = folder.parent_path();
  if (!fs::is_directory(folder, failed)) return cannot_write(ENOTDIR, path);
  if (::access(folder.c_str(), W_OK) != 0) return cannot_write(errno, path);
  return {};
}

Result<void> save_file(const std::string& path, std::string_view text) {
  if (path.empty()) return Error{Errc::bad_usage, "the path of the file is empty"};
  const auto behind = file_behind_links(path);
  if (behind.error != 0) return cannot_write(behind.error, path);
  std::error_code failed;
  auto target = behind.file;
  if (behind.is_open) target = fs::weakly_canonical(path, failed).string();
  if (failed) return cannot_write(failed.value(), path);
  const auto folder = fs::path{target}.parent_path();
  failed.clear();  // no such file yet
  if (!folder.empty()) fs::create_directories(folder, failed);
  if (failed) return cannot_write(failed.value(), path);
  struct stat old {};
  const bool is_there = ::stat(target.c_str(), &old) == 0;
  if (is_there && S_ISDIR(old.st_mode)) return cannot_write(EISDIR, path);
  if (is_there && !S_ISREG(old.st_mode)) return write_into(target, text);
  // Renaming asks nobody; a file that was closed to writers stays as it is.
  if (is_there && ::access(target.c_str(), W_OK) != 0) return cannot_write(errno, path);
  Replacement replacement{target};
  if (const int reason = replacement.put(text, is_there ? &old : nullptr); reason != 0)
    return cannot_write(reason, path);
  return {};
}

}  // namespace acc::configure
