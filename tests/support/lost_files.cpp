// LD_PRELOAD=lost_files.so LOST_FILES=F: while there is a file F, what has a name that ends with
// what F holds is lost, as where a file server is away: openat2() and open() of such a path and
// readdir() of such a folder fail with EIO; pidfd_open() fails with EMFILE while F holds just that.
// Then there is a file F.asked, too.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <string_view>

template <class Function>
static Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

static int open_really(const char* path, int flags) {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600));
}

// errno is as before: a caller of readdir() may have set it to 0.
static bool is_lost(std::string_view asked) {
  const int before = errno;
  const char* const path = std::getenv("LOST_FILES");
  const int file = path != nullptr ? open_really(path, O_RDONLY) : -1;
  errno = before;
  if (file < 0) return false;
  char name[64];
  const auto n = ::read(file, name, sizeof name);
  ::close(file);
  if (n <= 0 || !asked.ends_with({name, static_cast<std::size_t>(n)})) return false;
  ::close(open_really((std::string{path} + ".asked").c_str(), O_WRONLY | O_CREAT));
  return true;
}

extern "C" long syscall(long number, ...) noexcept {
  static auto* const kReal = real<long(long, ...)>("syscall");
  long words[6];
  va_list all;
  va_start(all, number);
  for (long& word : words) word = va_arg(all, long);
  va_end(all);
  if (number == SYS_openat2 && is_lost(reinterpret_cast<const char*>(words[1]))) {
    errno = EIO;
    return -1;
  }
  if (number == SYS_pidfd_open && is_lost("pidfd_open")) {
    errno = EMFILE;
    return -1;
  }
  return kReal(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

extern "C" int open(const char* path, int flags, ...) {
  static auto* const kReal = real<int(const char*, int, ...)>("open");
  va_list all;
  va_start(all, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(all, int) : 0;
  va_end(all);
  if (is_lost(path)) {
    errno = EIO;
    return -1;
  }
  return kReal(path, flags, mode);
}

extern "C" dirent* readdir(DIR* entries) {
  static auto* const kReal = real<dirent*(DIR*)>("readdir");
  const auto link = "/proc/self/fd/" + std::to_string(::dirfd(entries));
  char path[4096];
  const auto n = ::readlink(link.c_str(), path, sizeof path);
  if (n > 0 && is_lost({path, static_cast<std::size_t>(n)})) {
    errno = EIO;
    return nullptr;
  }
  return kReal(entries);
}
