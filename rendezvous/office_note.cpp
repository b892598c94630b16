#include "rendezvous/office_note.hpp"

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

namespace acc::rendezvous {

namespace {

/// Goes on while the machine sleeps, and is the same for all processes since boot.
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

/// Of the network namespace. Its inode is given to another one as soon as it is free; the cookie,
/// from Linux 5.14 on, never.
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

std::string folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && ::access(runtime, W_OK) == 0) return runtime;
  for (const char* const shared : {"/dev/shm", "/run", "/tmp"}) {
    if (::access(shared, W_OK) == 0) return shared;
  }
  return {};
}

/// Notes of jobs that were killed and never came back.
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

}  // namespace

OfficeNote::OfficeNote(const std::string& job, std::uint16_t port) {
  const auto place = folder();
  if (place.empty()) return;
  const std::string prefix = "acc-launch-coordinator-" + std::to_string(::getuid()) + "-";
  sweep_old(place, prefix);
  path_ = place + "/" + prefix + std::to_string(network_identity()) + "-" + std::to_string(port) +
          "-" + std::to_string(hash_of(job));
}

std::optional<Millis> OfficeNote::age() const {
  if (path_.empty()) return std::nullopt;
  const UniqueFd file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
  struct stat facts {};
  // Nobody else's word keeps us waiting.
  if (!file || ::fstat(file.get(), &facts) != 0 || facts.st_uid != ::getuid()) return std::nullopt;
  char text[32] = {};
  if (::read(file.get(), text, sizeof text - 1) <= 0) return std::nullopt;
  const auto noted = parse_number<std::int64_t>(trim(text));
  const auto now = boot_ms();
  if (!noted || *noted < 0 || *noted > now) return std::nullopt;  // of another boot
  return Millis{now - *noted};
}

void OfficeNote::renew() const {
  if (path_.empty()) return;
  const UniqueFd file{
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)};
  const auto text = std::to_string(boot_ms()) + "\n";
  if (file) [[maybe_unused]]
    const auto written = ::write(file.get(), text.data(), text.size());
}

void OfficeNote::remove() const {
  if (!path_.empty()) ::unlink(path_.c_str());
}

}  // namespace acc::rendezvous
