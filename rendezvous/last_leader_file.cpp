#include "rendezvous/last_leader_file.hpp"

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

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
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

/// The user's own in a folder that all may write to; empty: another user took the name.
std::string own_folder(const std::string& shared) {
  const std::string own = shared + "/acc-launch-" + std::to_string(::geteuid());
  ::mkdir(own.c_str(), 0700);
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
  std::string place;
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && is_private(runtime) && ::access(runtime, W_OK) == 0) place = runtime;
  for (const auto& shared : shared_folders) {
    if (!place.empty()) break;
    if (::access(shared.c_str(), W_OK) != 0) continue;
    place = own_folder(shared);
    if (place.empty()) is_kept_out_ = true;
  }
  if (place.empty()) return;
  is_kept_out_ = false;
  const std::string prefix = "coordinator-";
  sweep_old(place, prefix);
  path_ = place + "/" + prefix + std::to_string(network_identity()) + "-" + std::to_string(port) +
          "-" + std::to_string(hash_of(job));
}

std::optional<Millis> LastLeaderFile::age() const {
  if (is_kept_out_) return Millis{0};
  if (path_.empty()) return std::nullopt;
  const UniqueFd file = open_note(path_, O_RDONLY);
  if (!file) return std::nullopt;
  char text[32] = {};
  if (::read(file.get(), text, sizeof text - 1) <= 0) return std::nullopt;
  const auto noted = parse_number<std::int64_t>(trim(text));
  const auto now = boot_ms();
  if (!noted || *noted < 0 || *noted > now) return std::nullopt;  // from another boot
  return Millis{now - *noted};
}

void LastLeaderFile::renew() const {
  if (path_.empty()) return;
  const UniqueFd file = open_note(path_, O_WRONLY | O_CREAT);
  if (!file || ::ftruncate(file.get(), 0) != 0) return;
  const auto text = std::to_string(boot_ms()) + "\n";
  [[maybe_unused]] const auto written = ::write(file.get(), text.data(), text.size());
}

void LastLeaderFile::remove() const {
  if (!path_.empty()) ::unlink(path_.c_str());
}

}  // namespace acc::rendezvous
