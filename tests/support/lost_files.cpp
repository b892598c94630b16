// LD_PRELOAD=lost_files.so LOST_FILES=F: while there is a file F, openat2() of a path that ends
// with what F holds fails with EIO, as where a file server is away. Then there is a file F.asked,
// too.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <string_view>

static bool is_lost(const char* asked) {
  const char* const path = std::getenv("LOST_FILES");
  const int file = path != nullptr ? ::open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return false;
  char name[64];
  const auto n = ::read(file, name, sizeof name);
  ::close(file);
  if (n <= 0 || !std::string_view{asked}.ends_with({name, static_cast<std::size_t>(n)}))
    return false;
  ::close(::open((std::string{path} + ".asked").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  return true;
}

extern "C" long syscall(long number, ...) noexcept {
  static const auto kReal = reinterpret_cast<long (*)(long, ...)>(::dlsym(RTLD_NEXT, "syscall"));
  long words[6];
  va_list all;
  va_start(all, number);
  for (long& word : words) word = va_arg(all, long);
  va_end(all);
  if (number == SYS_openat2 && is_lost(reinterpret_cast<const char*>(words[1]))) {
    errno = EIO;
    return -1;
  }
  return kReal(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
