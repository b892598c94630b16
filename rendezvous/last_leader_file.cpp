#include "rendezvous/last_leader_file.hpp"

#include "common/fnv.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <utility>

namespace acc::rendezvous {

namespace {

/// Milliseconds since boot, including sleep; the same for all processes.
std::int64_t boot_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

/// Identity of the network namespace. Its inode number is reused once free; the cookie, from Linux
/// 5.14 on, never.
std::uint64_t network_identity() {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  const UniqueFd any{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
#ifdef SO_NETNS_COOKIE
  if (any && ::getsockopt(any.get(), SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0)
    return cookie;
#endif
  struct stat net {};
  ::stat("/proc/self/ns/net", &net);
  return net.st_ino;
}

/// Whether nobody else can put a file in there.
bool is_private(const std::string& folder) {
  struct stat facts {};
  constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
  return ::lstat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) &&
         facts.st_uid == ::geteuid() && (facts.st_mode & kOthersWrite) == 0;
}

/// The user's own in a folder that all may write to; empty: there is none, or another user took the
/// name.
std::string own_folder(const std::string& shared, bool is_made) {
  const std::string own = shared + "/acc-launch-" + std::to_string(::geteuid());
  if (is_made) ::mkdir(own.c_str(), 0700);
  return is_private(own) ? own : std::string{};
}

/// Removes files of jobs that were killed and never restarted.
void sweep_old(const std::string& place, const std::string& prefix) {
  constexpr std::int64_t kOld = 3'600'000;
  std::error_code failed;
  for (std::filesystem::directory_iterator at{place, failed}, end; !failed && at != end;
       at.increment(failed)) {
    if (!at->path().filename().string().starts_with(prefix)) continue;
    struct stat facts {};
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const bool is_ours = ::lstat(at->path().c_str(), &facts) == 0 && facts.st_uid == ::getuid();
    if (is_ours && (now.tv_sec - facts.st_mtime) * 1000 > kOld) ::unlink(at->path().c_str());
  }
}

/// What is no file of ours is ignored (a FIFO would block us until its other end is opened). Empty:
/// there is none.
UniqueFd open_note(const std::string& path, int flags) {
  UniqueFd file{::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600)};
  struct stat facts {};
  const bool is_ours = file && ::fstat(file.get(), &facts) == 0 && S_ISREG(facts.st_mode) &&
                       facts.st_uid == ::getuid() && facts.st_nlink == 1;
  return is_ours ? std::move(file) : UniqueFd{};
}

}  // namespace

LastLeaderFile::LastLeaderFile(const std::string& job, std::uint16_t port,
                               const std::vector<std::string>& shared_folders) {
  std::vector<std::string> places;
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && is_private(runtime) && ::access(runtime, W_OK) == 0)
    places.emplace_back(runtime);
  for (const auto& shared : shared_folders) {
    if (::access(shared.c_str(), W_OK) != 0) continue;
    const auto own = own_folder(shared, places.empty());
    if (!own.empty()) {
      places.push_back(own);
    } else if (places.empty()) {
      is_kept_out_ = true;
    }
  }
  if (places.empty()) return;
  is_kept_out_ = false;
  const std::string prefix = "acc-launch-coordinator-";
  sweep_old(places.front(), prefix);
  for (const auto& place : places)
    paths_.push_back(place + "/" + prefix + std::to_string(network_identity()) + "-" +
                     std::to_string(port) + "-" + std::to_string(fnv1a(job)));
}

namespace {

std::optional<Millis> age_of(const std::string& path) {
  const UniqueFd file = open_note(path, O_RDONLY);
  if (!file) return std::nullopt;
  char text[32] = {};
  if (::read(file.get(), text, sizeof text - 1) <= 0) return std::nullopt;
  const auto noted = parse_number<std::int64_t>(trim(text));
  const auto now = boot_ms();
  if (!noted || *noted < 0 || *noted > now) return std::nullopt;  // from another boot
  return Millis{now - *noted};
}

}  // namespace

// In which folder the predecessor wrote may have been another user's choice.
std::optional<Millis> LastLeaderFile::age() const {
  if (is_kept_out_) return Millis{0};
  std::optional<Millis> youngest;
  for (const auto& path : paths_) {
    const auto age = age_of(path);
    if (age && (!youngest || *age < *youngest)) youngest = age;
  }
  return youngest;
}

void LastLeaderFile::renew() const {
  if (paths_.empty()) return;
  const UniqueFd file = open_note(paths_.front(), O_WRONLY | O_CREAT);
  if (!file || ::ftruncate(file.get(), 0) != 0) return;
  const auto text = std::to_string(boot_ms()) + "\n";
  [[maybe_unused]] const auto written = ::write(file.get(), text.data(), text.size());
}

void LastLeaderFile::remove() const {
  for (const auto& path : paths_) ::unlink(path.c_str());
}

}  // namespace acc::rendezvous
