// LD_PRELOAD=paused_clock.so PAUSED_CLOCK_FILE=F: plays a machine whose clocks stood still while it was
// paused. F holds two whole numbers as text: by how many nanoseconds the monotonic clocks
// (CLOCK_MONOTONIC, CLOCK_BOOTTIME) are behind, and by how many the wall clock. Read at every call. The
// kernel's own timers can't be stopped so: timer_create is refused, as a paused machine's kernel ends
// nobody.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace {

struct Behind {
  long steady = 0;  ///< ns
  long wall = 0;
};

void set_back(timespec& now, long behind) {
  constexpr long kSecond = 1'000'000'000;
  const long whole = now.tv_sec * kSecond + now.tv_nsec - behind;
  now.tv_sec = whole / kSecond;
  now.tv_nsec = whole % kSecond;
}

Behind behind() {
  Behind found;
  const char* path = std::getenv("PAUSED_CLOCK_FILE");
  if (path == nullptr) return found;
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return found;
  char text[64] = {};
  if (::read(fd, static_cast<char*>(text), sizeof text - 1) > 0)
    std::sscanf(static_cast<const char*>(text), "%ld %ld", &found.steady, &found.wall);
  ::close(fd);
  return found;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  if (result != 0) return result;
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) set_back(*now, behind().wall);
  if (clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME || clock == CLOCK_MONOTONIC_RAW)
    set_back(*now, behind().steady);
  return 0;
}

int timer_create(clockid_t /*clock*/, sigevent* /*event*/, timer_t* /*timer*/) noexcept {
  errno = ENOTSUP;
  return -1;
}
}
