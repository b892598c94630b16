#include "runtime/checkpoint/folder_lock.hpp"

#include "common/kept_fd.hpp"
#include "common/posix_acl.hpp"
#include "common/text.hpp"
#include "common/worker_env.hpp"
#include "runtime/fork.hpp"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <acc/error.hpp>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace acc::runtime::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view kLock = ".lock";
constexpr std::size_t kMostWords = 4096;
constexpr int kTries = 1000;  ///< others may create and remove the file concurrently
/// For another thread of this process that is releasing the lock: NFS removes a file slowly.
constexpr std::chrono::seconds kRelease{3};
constexpr std::chrono::milliseconds kPause{5};

/// Identity of a file, independent of its name.
using Identity = std::pair<dev_t, ino_t>;

std::optional<Identity> identity(const fs::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return std::nullopt;
  return Identity{facts.st_dev, facts.st_ino};
}
std::optional<Identity> identity(int fd) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) return std::nullopt;
  return Identity{facts.st_dev, facts.st_ino};
}

/// The holder of a lock, according to its file.
struct Holder {
  Writer writer;
  std::string host;
  std::string job;
};

Holder this_holder() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const char* job = std::getenv(std::string{worker_env::kAccJobId}.c_str());
  return {this_writer(), host.data(), job != nullptr ? job : ""};
}

std::string text_of(const Holder& holder) {
  const json words{{"host", holder.host},
                   {"pid", holder.writer.pid},
                   {"job", holder.job},
                   {"round", holder.writer.round},
                   {"place", holder.writer.place},
                   {"start", holder.writer.start},
                   {"job_digest", holder.writer.job}};
  return words.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

/// What a lock file says. Nothing: it can't be read, as where the server of NFS gave up the lock.
std::optional<std::string> read_text(int fd) {
  std::string text(kMostWords, '\0');
  const auto length = ::pread(fd, text.data(), text.size(), 0);
  if (length < 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(length));
  return text;
}

std::optional<Holder> read_holder(int fd) {
  const auto words = json::parse(read_text(fd).value_or(""), nullptr, false);
  try {
    Holder holder;
    holder.host = words.at("host").get<std::string>();
    holder.job = words.at("job").get<std::string>();
    holder.writer.pid = words.at("pid").get<std::int64_t>();
    holder.writer.round = words.at("round").get<std::uint64_t>();
    holder.writer.place = words.at("place").get<std::uint32_t>();
    holder.writer.start = words.at("start").get<std::uint64_t>();
    holder.writer.job = words.at("job_digest").get<std::uint32_t>();
    return holder;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

bool is_same_process(const Writer& one, const Writer& other) {
  return one.place == other.place && one.pid == other.pid && one.start == other.start;
}

[[noreturn]] void refuse(const fs::path& folder, const std::optional<Holder>& holder,
                         const Writer& self) {
  if (holder && is_same_process(holder->writer, self))
    throw Error{ErrorCode::invalid_argument,
                "another copy of the runtime in this process (" + std::to_string(self.pid) +
                    "), as libacc.so beside the C++ library, writes checkpoints to " +
                    in_quotes(folder.native()) +
                    ": give each a folder of its own, or save with one of them alone"};
  std::string who = "another job";
  if (holder) {
    const bool is_this_job =
        holder->writer.job == self.job && holder->writer.round == self.round && self.job != 0;
    if (is_this_job) who = "another group of this job";
    if (!is_this_job && !holder->job.empty()) who += " (" + in_quotes(holder->job) + ")";
    who +=
        ", process " + std::to_string(holder->writer.pid) + " on " + in_quotes(holder->host) + ",";
  }
  throw Error{
      ErrorCode::invalid_argument,
      who + " writes checkpoints to " + in_quotes(folder.native()) +
          ": give this one a folder of its own, or end that one. If it is gone for certain, "
          "remove " +
          in_quotes((folder / kLock).native())};
}

/// "a directory"; nothing: a regular file.
std::optional<std::string> other_kind(mode_t mode) {
  if (S_ISREG(mode)) return std::nullopt;
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISLNK(mode)) return "a symbolic link";
  return "no regular file";
}

/// @param errnum  why the file wasn't opened; 0: it was
[[noreturn]] void refuse_file(const fs::path& file, mode_t mode, int errnum) {
  constexpr auto* kPurpose = "which keeps two jobs from writing checkpoints into one folder";
  if (const auto kind = other_kind(mode))
    throw Error{ErrorCode::system, in_quotes(file.native()) + " is " + *kind +
                                       ", where the lock file belongs, " + kPurpose +
                                       ": remove it"};
  throw Error{ErrorCode::system, "open the lock file " + in_quotes(file.native()) + ", " +
                                     kPurpose + ": " + std::generic_category().message(errnum) +
                                     "; make it writable, or remove it"};
}

std::mutex registry_guard;
/// Of this process, by the identity of the folder. Guarded.
std::map<Identity, std::weak_ptr<FolderLock::Held>>& registry() {
  // Never destroyed: checkpoints may outlive main.
  static auto* const held = new std::map<Identity, std::weak_ptr<FolderLock::Held>>;
  return *held;
}

}  // namespace

struct FolderLock::Held {
  fs::path file;
  KeptFd fd;
  bool is_exclusive = true;  ///< false: this file system has no locks
  bool is_shared = false;    ///< has it had two users in this process?
  std::optional<std::string> signature{};  ///< as it is in the file
  std::uint64_t made_in = fork_generation();

  Held(fs::path its_file, UniqueFd its_fd) : file{std::move(its_file)}, fd{std::move(its_fd)} {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (made_in != fork_generation()) return;  // a forked child ends: its parent holds the folder
    // While locked, so that a file of another holder isn't removed.
    if (!is_current() || !is_signed() || ::unlink(file.c_str()) == 0) return;
    // It stays, as in a folder of others: no longer signed, or this process would count as holder.
    [[maybe_unused]] const auto done = ::ftruncate(fd.get(), 0);
  }
  [[nodiscard]] bool is_current() const { return identity(file) == identity(fd.get()); }
  /// Another holder (the lock was lost; a version before this one) would have signed the file.
  [[nodiscard]] bool is_signed() const { return signature && read_text(fd.get()) == signature; }
  void sign() {
    const std::string words = text_of(this_holder());
    // What can't be written (a full disk) is only missing in messages of others.
    if (::ftruncate(fd.get(), 0) == 0) [[maybe_unused]]
      const auto done = ::pwrite(fd.get(), words.data(), words.size(), 0);
    signature = read_text(fd.get());
  }
};

namespace {

/// May some read it who may not write to it? They could lock it for reading, which keeps out locks
/// for writing. With an ACL, as a folder's default ACL gives it, the mode doesn't say.
bool is_open_to_readers(int fd) {
  struct stat facts {};
  return ::fstat(fd, &facts) == 0 &&
         ((facts.st_mode & ~(facts.st_mode << 1) & 0044) != 0 || PosixAcl::of(fd));
}

/// Those who may write to the file may read it too (a group that shares the folder), nobody else.
void close_to_readers(int fd) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) return;
  // First: the mode's group bits are the mask of the ACL, and would open it to its readers.
  if (const auto acl = PosixAcl::of(fd)) [[maybe_unused]]
    const bool is_set = acl->close_to_readers(fd);
  const mode_t writers = facts.st_mode & 0022;
  // Another user's file keeps its mode.
  [[maybe_unused]] const auto done = ::fchmod(fd, 0600 | writers | (writers << 1));
}

/// Holders lock it for writing: one for reading is no job's.
bool is_held_by_reader(int fd) {
  struct flock asked {};
  asked.l_type = F_WRLCK;
  return ::fcntl(fd, F_OFD_GETLK, &asked) == 0 && asked.l_type == F_RDLCK;
}

/// Of the file from its creation: 0622 by the umask, and readable by those who may write, as
/// close_to_readers() leaves it. Between the two others of the group couldn't open it.
mode_t mode_of_new_lock() {
  std::ifstream status{"/proc/thread-self/status"};  // umask() can only be read by setting it
  for (std::string line; std::getline(status, line);) {
    constexpr std::string_view kMask = "Umask:";
    if (!line.starts_with(kMask)) continue;
    const auto mask = std::strtoul(line.c_str() + kMask.size(), nullptr, 8);
    return 0622 | ((0022 & ~static_cast<mode_t>(mask)) << 1);
  }
  return 0622;
}

/// @return nothing: the file can't be made; the save itself reports that better. (It first removes
///   left-overs of dead writers, which may free a full disk.)
UniqueFd open_lock(const fs::path& file) {
  UniqueFd fd{::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode_of_new_lock())};
  const int errnum = fd ? 0 : errno;
  struct stat facts {};
  const bool is_there = fd ? ::fstat(fd.get(), &facts) == 0 : ::lstat(file.c_str(), &facts) == 0;
  if (!is_there && (errnum == EMFILE || errnum == ENFILE || errnum == ENOMEM))
    fail("make the lock file", file, errnum);
  if (is_there && (!fd || other_kind(facts.st_mode))) refuse_file(file, facts.st_mode, errnum);
  return fd;
}

/// Versions before this one lock the file by flock(), which doesn't keep out our lock, nor ours
/// theirs: with ours taken, does the file still name a living process of this machine?
void refuse_other_locks(int fd, const fs::path& folder, const Writer& self) {
  const auto holder = read_holder(fd);
  if (!holder || holder->writer.place != self.place || is_gone(holder->writer, self)) return;
  if (!is_same_process(holder->writer, self)) refuse(folder, holder, self);
}

/// Locks and signs a file again that is no longer signed by this process.
/// @return false: it can't be, by this descriptor
/// @throws Error: another holds it
bool renew(FolderLock::Held& held, const fs::path& folder, FileOps& files) {
  const auto self = this_writer();
  const int fd = held.fd.get();
  const int failed = files.lock(fd);
  if (failed == EWOULDBLOCK) refuse(folder, read_holder(fd), self);
  if (failed != 0) return false;
  refuse_other_locks(fd, folder, self);
  held.sign();
  return held.signature.has_value();
}

/// Another thread holds a busy file for a moment: it is about to sign it, or has emptied it to
/// release it.
bool is_between_holders(int fd) { return read_text(fd) == ""; }

std::shared_ptr<FolderLock::Held> acquire(const fs::path& folder, const Tell& tell,
                                          FileOps& files) {
  const auto file = folder / kLock;
  const auto self = this_writer();
  std::optional<Holder> last;
  std::optional<std::chrono::steady_clock::time_point> deadline;
  for (int i = 0; i < kTries; ++i) {
    UniqueFd fd = open_lock(file);
    if (!fd) return nullptr;
    const int failed = files.lock(fd.get());
    const bool is_busy = failed == EWOULDBLOCK;
    if (failed != 0) {
      const auto holder = read_holder(fd.get());
      // Rounds of a job never overlap; and a process that is gone may have left the lock to a
      // child.
      const bool gone = holder && is_gone(holder->writer, self);
      const bool is_reader = is_busy && is_open_to_readers(fd.get()) && is_held_by_reader(fd.get());
      const bool is_passing =
          holder ? is_same_process(holder->writer, self) : is_between_holders(fd.get());
      if (is_busy && !is_reader && is_passing) {
        last = holder;
        const auto now = std::chrono::steady_clock::now();
        if (!deadline) deadline = now + kRelease;
        if (now > *deadline) break;
        std::this_thread::sleep_for(kPause);  // another thread is about to release it
        continue;
      }
      const bool alive = holder && !gone && holder->writer.place == self.place;
      if (is_busy && !gone && !is_reader) refuse(folder, holder, self);
      if (!is_busy && alive && holder->writer.pid != self.pid) refuse(folder, holder, self);
      if (is_busy) {
        ::unlink(file.c_str());
        continue;
      }
    }
    if (identity(file) != identity(fd.get())) continue;  // removed by its holder meanwhile
    if (failed == 0) refuse_other_locks(fd.get(), folder, self);
    auto held = std::make_shared<FolderLock::Held>(file, std::move(fd));
    close_to_readers(held->fd.get());
    held->sign();
    held->is_exclusive = failed == 0;
    if (failed != 0)
      tell(in_quotes(file.native()) + " can't be locked on this file system (" +
           std::generic_category().message(failed) +
           "): another job that saves here is noticed only on the same machine; make sure that "
           "there is none");
    return held;
  }
  refuse(folder, last, self);
}

}  // namespace

bool FolderLock::take(const fs::path& folder, const Tell& tell, FileOps& files) {
  const std::lock_guard guard{registry_guard};
  if (held_ && held_->is_current() && held_->file.parent_path() == folder) {
    if (held_->is_signed()) return held_->is_shared || !held_->is_exclusive;
    if (renew(*held_, folder, files)) return true;
  }
  held_.reset();
  const auto which = identity(folder);
  if (!which) return true;
  auto& known = registry()[*which];
  held_ = known.lock();
  if (held_ && held_->is_current()) {
    held_->is_shared = true;
    if (held_->is_signed() || renew(*held_, folder, files)) return true;
  }
  held_.reset();  // before the file is locked by another descriptor
  held_ = acquire(folder, tell, files);
  known = held_;
  return true;
}

}  // namespace acc::runtime::checkpoint
