// LD_PRELOAD=wall_clock.so WALL_CLOCK_FILE=F: this process's wall clock is off by the seconds that
// stand as text in F, read at every call, so that it can jump. The monotonic clock and all timers
// are left alone (libfaketime moves absolute timerfds of the monotonic clock, too, and asio sets
// such).
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

namespace {

time_t offset() {
  const char* path = std::getenv("WALL_CLOCK_FILE");
  if (path == nullptr) return 0;
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[32] = {};
  const auto n = ::read(fd, static_cast<char*>(text), sizeof text - 1);
  ::close(fd);
  return n > 0 ? std::strtol(static_cast<const char*>(text), nullptr, 10) : 0;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += offset();
  return result;
}

int gettimeofday(timeval* now, void* /*zone*/) noexcept {
  timespec precise{};
  const int result = clock_gettime(CLOCK_REALTIME, &precise);
  if (now != nullptr) *now = {precise.tv_sec, precise.tv_nsec / 1000};
  return result;
}

time_t time(time_t* now) noexcept {
  timespec precise{};
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now != nullptr) *now = precise.tv_sec;
  return precise.tv_sec;
}
}
