#include "rendezvous/office_note.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
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

std::string folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && ::access(runtime, W_OK) == 0) return runtime;
  for (const char* const shared : {"/dev/shm", "/run", "/tmp"}) {
    if (::access(shared, W_OK) == 0) return shared;
  }
  return {};
}

}  // namespace

OfficeNote::OfficeNote(const std::string& job, std::uint16_t port) {
  const auto place = folder();
  if (place.empty()) return;
  struct stat net {};
  ::stat("/proc/self/ns/net", &net);
  path_ = place + "/acc-launch-coordinator-" + std::to_string(::getuid()) + "-" +
          std::to_string(net.st_ino) + "-" + std::to_string(port) + "-" +
          std::to_string(hash_of(job));
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
  if (!noted || *noted > now) return std::nullopt;  // of another boot
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
