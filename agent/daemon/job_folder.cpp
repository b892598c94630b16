#include "agent/daemon/job_folder.hpp"

#include "agent/daemon/crash_point.hpp"
#include "agent/daemon/folder_tree.hpp"
#include "agent/daemon/same_mount.hpp"
#include "agent/daemon/state_mark.hpp"
#include "agent/daemon/user_file.hpp"
#include "common/foreign_file.hpp"
#include "common/foreign_folder.hpp"
#include "common/log.hpp"
#include "common/made_folder.hpp"
#include "common/random.hpp"
#include "common/text.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

namespace acc::agent::daemon {

namespace {

constexpr int kJobFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

Error failure_of(const std::string& what) { return system_error(errno, what); }

/// As the file of that path, in the words of the system.
Error unread(const Error& error, const std::string& path) {
  return system_error(error.errnum, "read '" + path + "'");
}

/// Of a job's record: it is none, now and later. Other errors of the system may be over soon.
bool is_damage(const Error& error) {
  const int why = error.errnum;
  return why == 0 || why == ENOENT || why == ENOTDIR || why == ELOOP;
}

Result<UniqueFd> make_folder(int parent, const std::string& name, mode_t mode) {
  if (::mkdirat(parent, name.c_str(), mode) != 0 && errno != EEXIST)
    return failure_of("create folder '" + name + "'");
  UniqueFd fd{::openat(parent, name.c_str(), kJobFolderFlags)};
  if (!fd) return failure_of("open folder '" + name + "'");
  if (::fchmod(fd.get(), mode) != 0) return failure_of("set the mode of folder '" + name + "'");
  return fd;
}

Result<void> write_new(int folder, const std::string& name, const std::string& text, mode_t mode,
                       uid_t uid = static_cast<uid_t>(-1), gid_t gid = static_cast<gid_t>(-1)) {
  const std::string what = "write '" + name + "'";
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  ::unlinkat(folder, name.c_str(), 0);  // left by a crash
  const UniqueFd fd{::openat(folder, name.c_str(), kFlags, mode)};
  if (!fd) return failure_of(what);
  std::string_view left{text};
  while (!left.empty()) {
    const ssize_t n = ::write(fd.get(), left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failure_of(what);
    left.remove_prefix(static_cast<std::size_t>(n));
  }
  if (uid != static_cast<uid_t>(-1) && ::geteuid() == 0 && ::fchown(fd.get(), uid, gid) != 0)
    return failure_of(what);
  if (::fsync(fd.get()) != 0) return failure_of(what);
  return {};
}

// Some network file systems have no sync of a folder: they have written the names already.
Result<void> sync_folder(int folder, const std::string& what) {
  while (::fsync(folder) != 0) {
    if (errno == EINVAL || errno == EOPNOTSUPP) break;
    if (errno != EINTR) return failure_of("sync " + what);
  }
  return {};
}

// To an id that is new, under the lock of the state folder: where NFS, Lustre or an older ZFS has
// no RENAME_NOREPLACE, a plain rename, which replaces no folder with contents either.
int name_job(int jobs, const std::string& from, const JobId& id) {
  if (::renameat2(jobs, from.c_str(), jobs, id.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) return -1;
  return ::renameat(jobs, from.c_str(), jobs, id.c_str());
}

// Of a job that is answered as failed: it must not run at the next start. Also after an error of
// the rename, which a file server may have done all the same. Another job's folder of that id
// stays: `beside` is there then, with contents.
Result<void> take_name_back(int jobs, const std::string& beside, const JobId& id) {
  if (::renameat(jobs, id.c_str(), jobs, beside.c_str()) == 0)
    return sync_folder(jobs, "the folder of jobs");
  if (errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR) return {};
  return failure_of("rename it");
}

// Whole or not at all, also for one who reads after a loss of power.
Result<void> replace(int folder, const std::string& name, const std::string& text, mode_t mode,
                     uid_t uid = static_cast<uid_t>(-1), gid_t gid = static_cast<gid_t>(-1)) {
  const std::string beside = name + ".new";
  if (auto written = write_new(folder, beside, text, mode, uid, gid); written.has_error()) {
    ::unlinkat(folder, beside.c_str(), 0);
    return written;
  }
  crash_point("record.written");
  if (::renameat(folder, beside.c_str(), folder, name.c_str()) != 0)
    return failure_of("replace '" + name + "'");
  return sync_folder(folder, "the folder of '" + name + "'");
}

// Its mode is about to be changed: /tmp would be closed to all other users.
Result<void> check_nobody_else_writes(int folder, const std::string& path) {
  const auto refused = [&](const std::string& why) {
    return Error{Errc::not_permitted, "the state folder '" + path + "' " + why};
  };
  struct stat info {};
  if (::fstat(folder, &info) != 0) return failure_of("look at '" + path + "'");
  if (info.st_uid != ::geteuid())
    return refused("belongs to uid " + std::to_string(info.st_uid) + ", this daemon runs as uid " +
                   std::to_string(::geteuid()));
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return refused(
        "is one that others may write to: name another with --state-dir, or chmod go-w it");
  return {};
}

Result<void> check_not_replaceable(const std::string& path) {
  const auto why = replaceable_by_others(path);
  if (why.empty()) return {};
  return Error{Errc::not_permitted, "the state folder '" + path +
                                        "' could be replaced by another user's: " + why +
                                        ": name one below /var/lib or your home with --state-dir"};
}

}  // namespace

Result<StateFolder> StateFolder::open(const std::string& path) {
  StateFolder folder;
  std::string link = path;  // a slash at its end would follow it
  while (link.size() > 1 && link.ends_with('/')) link.pop_back();
  if (file_behind_links(link).error == EACCES)
    return Error{Errc::not_permitted,
                 "the state folder '" + path +
                     "' is another user's link or pipe in a folder that all may "
                     "write to: remove it, or name another folder"};
  if (auto safe = check_not_replaceable(path); safe.has_error()) return safe.error();
  if (auto made = make_with_parents(path, ::geteuid() == 0 ? 0755 : 0700); made.has_error())
    return made.error();
  // What was missing may have been made by another user meanwhile. From here on nothing above the
  // folder changes but by root or this user.
  if (auto safe = check_not_replaceable(path); safe.has_error()) return safe.error();
  char resolved[PATH_MAX];  // it becomes a part of paths that other processes use
  if (::realpath(path.c_str(), resolved) == nullptr)
    return failure_of("find the state folder '" + path + "'");
  folder.path_ = resolved;
  folder.state_.reset(::open(resolved, kJobFolderFlags));
  if (!folder.state_) return failure_of("open the state folder '" + path + "'");
  if (auto alone = check_nobody_else_writes(folder.state_.get(), path); alone.has_error())
    return alone.error();
  auto lock = lock_state_folder(folder.state_.get(), path);
  if (lock.has_error()) return lock.error();
  folder.lock_ = std::move(*lock);
  constexpr mode_t kTraversed = 0711;  // users reach their own part through it
  if (::fchmod(folder.state_.get(), kTraversed) != 0)
    return failure_of("set the mode of '" + path + "'");
  auto jobs = make_folder(folder.state_.get(), "jobs", kTraversed);
  if (jobs.has_error()) return jobs.error();
  folder.jobs_ = std::move(*jobs);
  // Made while there is room: it is what makes room on a full disk.
  auto trash = make_folder(folder.state_.get(), "trash", 0700);
  if (trash.has_error()) log::warn("no_trash_folder", {{"why", trash.error().what}});
  return folder;
}

Result<void> StateFolder::set_aside(const std::string& name, std::string& moved_to) {
  auto damaged = make_folder(state_.get(), "damaged", 0700);
  if (damaged.has_error()) return damaged.error();
  moved_to = name + "." + random_name();
  if (::renameat(jobs_.get(), name.c_str(), damaged->get(), moved_to.c_str()) != 0)
    return failure_of("set '" + name + "' aside");
  moved_to = path_ + "/damaged/" + moved_to;
  return {};
}

Result<StoredJob> StateFolder::read_job(const std::string& name) const {
  const UniqueFd folder{::openat(jobs_.get(), name.c_str(), kJobFolderFlags)};
  if (!folder) return failure_of("open the folder");
  const auto text = read_user_file(folder.get(), kRecord, ::geteuid(), kMaxJobFile);
  if (text.has_error()) return text.error();
  auto decoded = decode_job(*text);
  if (decoded.has_value() && decoded->id != name)
    return Error{Errc::malformed, "job.json: it is of the job " + decoded->id};
  return decoded;
}

Result<StateFolder::Contents> StateFolder::read_jobs() {
  const auto files = entries_of(state_.get(), path_);
  if (files.has_error()) return files.error();
  const auto names = entries_of(jobs_.get(), path_ + "/jobs");
  if (names.has_error()) return names.error();
  Contents contents;
  for (const auto& name : *names) {
    if (name.starts_with(kHalfMade)) continue;
    auto job = read_job(name);
    if (job.has_value())
      contents.jobs.push_back(std::move(*job));
    else if (is_damage(job.error()))
      contents.damaged.push_back({name, job.error().what, ""});
    else
      return unread(job.error(), job_path(name) + '/' + kRecord);
  }
  for (const auto& name : *files) {  // of a check of a job file that was cut off
    if (is_check_file(name)) ::unlinkat(state_.get(), name.c_str(), 0);
  }
  for (const auto& name : *names) {
    if (name.starts_with(kHalfMade)) (void)remove_tree(jobs_.get(), name);  // or it is harmless
  }
  for (auto& damaged : contents.damaged) {
    if (const auto moved = set_aside(damaged.id, damaged.moved_to); moved.has_error())
      damaged.why += "; " + moved.error().what;
  }
  return contents;
}

Result<void> StateFolder::make_job(const StoredJob& job, const JobConfig* config) {
  const std::string beside = std::string{kHalfMade} + random_name();
  bool may_have_name = false;
  const auto fill = [&]() -> Result<void> {
    auto folder = make_folder(jobs_.get(), beside, 0711);
    if (folder.has_error()) return folder.error();
    auto user = make_folder(folder->get(), "user", 0700);
    if (user.has_error()) return user.error();
    if (::geteuid() == 0 && ::fchown(user->get(), job.uid, job.gid) != 0)
      return failure_of("give the job's folder to its user");
    if (config != nullptr) {
      auto written = write_new(folder->get(), config->name(), config->text, 0400, job.uid, job.gid);
      if (written.has_error()) return written;
    }
    if (auto written = write_new(folder->get(), kRecord, encode_job(job), 0600);
        written.has_error())
      return written;
    if (auto synced = sync_folder(folder->get(), "the job's folder"); synced.has_error())
      return synced;
    crash_point("submit.made");
    may_have_name = true;
    if (name_job(jobs_.get(), beside, job.id) != 0) return failure_of("name the job's folder");
    crash_point("submit.renamed");
    return sync_folder(jobs_.get(), "the folder of jobs");
  };
  auto made = fill();
  if (made.has_value()) return made;
  Error error = made.error();
  error.what = "make the job's folder in '" + path_ + "/jobs': " + error.what;
  if (may_have_name) {
    if (const auto taken = take_name_back(jobs_.get(), beside, job.id); taken.has_error())
      error.what += "; its removal failed, too (" + taken.error().what + "): if the folder '" +
                    job.id + "' is there, remove it, or the job runs when acc-agent is restarted";
  }
  (void)remove_tree(jobs_.get(), beside);
  return error;
}

Result<void> StateFolder::write_record(const JobId& id, const std::string& text) {
  const UniqueFd folder{::openat(jobs_.get(), id.c_str(), kJobFolderFlags)};
  if (!folder) return failure_of("open the folder of " + id);
  return replace(folder.get(), kRecord, text, 0600);
}

Result<void> StateFolder::write_config(const JobId& id, const JobConfig& config, uid_t uid,
                                       gid_t gid) {
  const UniqueFd folder{::openat(jobs_.get(), id.c_str(), kJobFolderFlags)};
  if (!folder) return failure_of("open the folder of " + id);
  return replace(folder.get(), config.name(), config.text, 0400, uid, gid);
}

Result<void> StateFolder::drop_job(const JobId& id) {
  auto trash = make_folder(state_.get(), "trash", 0700);
  if (trash.has_error()) return trash.error();
  if (::renameat(jobs_.get(), id.c_str(), trash->get(), (id + "." + random_name()).c_str()) != 0) {
    const int failed = errno;
    struct stat info {};
    const bool is_gone = failed == ENOENT &&
                         ::fstatat(jobs_.get(), id.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 &&
                         errno == ENOENT;
    if (is_gone) return {};  // by hand
    return system_error(failed, "remove the job's folder");
  }
  crash_point("prune.renamed");
  return sync_folder(jobs_.get(), "the folder of jobs");
}

Result<std::vector<StateFolder::Trash>> StateFolder::trash() const {
  std::vector<Trash> found;
  const UniqueFd trash{::openat(state_.get(), "trash", kJobFolderFlags)};
  if (!trash && errno == ENOENT) return found;
  if (!trash) return failure_of("open the folder of removed jobs");
  const auto names = entries_of(trash.get(), path_ + "/trash");
  if (names.has_error()) return names.error();
  for (const auto& name : *names) {
    struct stat info {};
    const auto user = name + "/user";
    const bool is_known = uncover_and_stat(trash.get(), user.c_str(), info);
    found.push_back({name, is_known ? info.st_uid : ::geteuid()});
  }
  return found;
}

Result<void> StateFolder::remove_trash(const std::string& name) {
  const UniqueFd trash{::openat(state_.get(), "trash", kJobFolderFlags)};
  if (!trash) return failure_of("open the folder of removed jobs");
  crash_point("prune.removing");
  return remove_tree(trash.get(), name);
}

Result<UniqueFd> StateFolder::open_user_folder(const JobId& id) const {
  UniqueFd fd = open_on_mount(jobs_.get(), (id + "/user").c_str(), kJobFolderFlags);
  if (!fd && errno == EXDEV)
    return Error{Errc::not_permitted, "a file system is mounted over the folder '" + user_path(id) +
                                          "' of job " + id + ": unmount it"};
  if (!fd) return failure_of("open the folder of " + id);
  return fd;
}

std::uint64_t StateFolder::bytes_of(const JobId& id) const {
  return bytes_of_tree(jobs_.get(), id);
}

Result<std::string> StateFolder::write_for_user(const std::string& name, const std::string& text,
                                                uid_t uid, gid_t gid) {
  if (auto written = write_new(state_.get(), name, text, 0400, uid, gid); written.has_error())
    return written.error();
  return path_ + '/' + name;
}

Result<std::string> StateFolder::read_note(const std::string& name) const {
  constexpr std::size_t kLongest = 4096;
  auto text = read_user_file(state_.get(), name, ::geteuid(), kLongest);
  if (text.has_value()) return text;
  const auto path = path_ + '/' + name;
  if (text.error().errnum == ENOENT) return std::string{};
  if (text.error().errnum != 0) return unread(text.error(), path);
  return Error{Errc::not_permitted, "'" + path +
                                        "' isn't as an acc-agent of this user writes it (a link, "
                                        "another user's file, or larger than 4096 bytes)"};
}

// Where a full disk has no room for a new file: over the bytes of the old one, which have theirs.
// One of the same length, so that a loss of power leaves either text, not half of one.
static bool overwrite_note(int folder, const std::string& name, const std::string& text) {
  const UniqueFd fd{::openat(folder, name.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC)};
  struct stat facts {};
  return fd && ::fstat(fd.get(), &facts) == 0 && facts.st_size == static_cast<off_t>(text.size()) &&
         ::pwrite(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
         ::fsync(fd.get()) == 0;
}

Result<void> StateFolder::write_note(const std::string& name, const std::string& text) {
  if (!text.empty()) {
    auto written = replace(state_.get(), name, text, 0600);
    if (written.has_error() && overwrite_note(state_.get(), name, text)) return {};
    return written;
  }
  if (::unlinkat(state_.get(), name.c_str(), 0) != 0 && errno != ENOENT)
    return failure_of("remove '" + name + "'");
  return sync_folder(state_.get(), "the state folder");
}

}  // namespace acc::agent::daemon
