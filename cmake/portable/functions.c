// Functions that newer C libraries have and 2.17 hasn't, for programs that are linked to run with older ones too
// (docs/decisions/0044-wheel.md). None is exported: other libraries of the process keep those of its C library.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

// ---- system calls that had no function, or whose structure the function's version stood for
HIDDEN int stat(const char* path, struct stat* to) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, to, 0);
}
HIDDEN int lstat(const char* path, struct stat* to) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
}
HIDDEN int fstat(int fd, struct stat* to) { return (int)syscall(SYS_fstat, fd, to); }
HIDDEN int fstatat(int folder, const char* path, struct stat* to, int flags) {
  return (int)syscall(SYS_newfstatat, folder, path, to, flags);
}
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one structure for both names");
HIDDEN int stat64(const char* path, struct stat64* to) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, to, 0);
}
HIDDEN int lstat64(const char* path, struct stat64* to) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
}
HIDDEN int fstat64(int fd, struct stat64* to) { return (int)syscall(SYS_fstat, fd, to); }
HIDDEN int fstatat64(int folder, const char* path, struct stat64* to, int flags) {
  return (int)syscall(SYS_newfstatat, folder, path, to, flags);
}
HIDDEN ssize_t getrandom(void* to, size_t size, unsigned flags) {
  return syscall(SYS_getrandom, to, size, flags);
}
HIDDEN int getentropy(void* to, size_t size) {
  if (size > 256) {
    errno = EIO;
    return -1;
  }
  for (size_t done = 0; done < size;) {
    const long n = syscall(SYS_getrandom, (char*)to + done, size - done, 0);
    if (n < 0 && errno != EINTR) return -1;
    if (n > 0) done += (size_t)n;
  }
  return 0;
}
HIDDEN int memfd_create(const char* name, unsigned flags) {
  return (int)syscall(SYS_memfd_create, name, flags);
}
HIDDEN int renameat2(int from, const char* old, int to, const char* now, unsigned flags) {
  return (int)syscall(SYS_renameat2, from, old, to, now, flags);
}
HIDDEN int close_range(unsigned first, unsigned last, int flags) {
  return (int)syscall(SYS_close_range, first, last, flags);
}

// ---- small ones
HIDDEN void explicit_bzero(void* bytes, size_t size) {
  memset(bytes, 0, size);
  __asm__ volatile("" ::"r"(bytes) : "memory");  // it is read here: the zeros are written
}

HIDDEN const char* sigabbrev_np(int signo) {
  static const char names[][8] = {
      [SIGHUP] = "HUP",   [SIGINT] = "INT",     [SIGQUIT] = "QUIT", [SIGILL] = "ILL",
      [SIGTRAP] = "TRAP", [SIGABRT] = "ABRT",   [SIGBUS] = "BUS",   [SIGFPE] = "FPE",
      [SIGKILL] = "KILL", [SIGUSR1] = "USR1",   [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2",
      [SIGPIPE] = "PIPE", [SIGALRM] = "ALRM",   [SIGTERM] = "TERM", [SIGSTKFLT] = "STKFLT",
      [SIGCHLD] = "CHLD", [SIGCONT] = "CONT",   [SIGSTOP] = "STOP", [SIGTSTP] = "TSTP",
      [SIGTTIN] = "TTIN", [SIGTTOU] = "TTOU",   [SIGURG] = "URG",   [SIGXCPU] = "XCPU",
      [SIGXFSZ] = "XFSZ", [SIGVTALRM] = "VTALRM", [SIGPROF] = "PROF", [SIGWINCH] = "WINCH",
      [SIGIO] = "POLL",   [SIGPWR] = "PWR",     [SIGSYS] = "SYS",
  };
  if (signo <= 0 || signo >= (int)(sizeof names / sizeof *names)) return NULL;
  return names[signo];
}

// Closing a descriptor that isn't open is no error of posix_spawn.
HIDDEN int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* files, int first) {
  DIR* open_ones = opendir("/proc/self/fd");
  if (open_ones == NULL) return errno;
  int failed = 0;
  for (struct dirent* one; failed == 0 && (one = readdir(open_ones)) != NULL;) {
    const int fd = one->d_name[0] == '.' ? -1 : atoi(one->d_name);
    if (fd >= first) failed = posix_spawn_file_actions_addclose(files, fd);
  }
  closedir(open_ones);
  return failed;
}

// Of 2.30. With an older library it is a wait by the wall clock, cut into short ones so that a
// clock that is set costs a second at most.
#ifndef ACC_CLOCKWAIT  // the test names one that isn't there
#define ACC_CLOCKWAIT "pthread_cond_clockwait"
#endif
HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const struct timespec* end) {
  typedef int Wait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  static Wait* known;
  Wait* wait = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (wait == NULL) {
    wait = (Wait*)dlsym(RTLD_DEFAULT, ACC_CLOCKWAIT);
    __atomic_store_n(&known, wait, __ATOMIC_RELAXED);
  }
  if (wait != NULL) return wait(condition, mutex, clock, end);

  const long long second = 1000000000;
  struct timespec now;
  clock_gettime(clock, &now);
  long long left = (end->tv_sec - now.tv_sec) * second + (end->tv_nsec - now.tv_nsec);
  if (left <= 0) return ETIMEDOUT;
  if (left > second) left = second;
  clock_gettime(CLOCK_REALTIME, &now);
  const long long until = now.tv_nsec + left;
  const struct timespec part = {now.tv_sec + (time_t)(until / second), (long)(until % second)};
  const int result = pthread_cond_timedwait(condition, mutex, &part);
  if (result != ETIMEDOUT) return result;
  clock_gettime(clock, &now);
  const int over = now.tv_sec > end->tv_sec || (now.tv_sec == end->tv_sec && now.tv_nsec >= end->tv_nsec);
  return over ? ETIMEDOUT : 0;  // 0: may be spurious, as any wait for a condition
}

// libstdc++ asks whether the process has one thread, to save atomic operations. No is right always.
HIDDEN char __libc_single_threaded = 0;

// ---- GCC's unwinder finds an object's table by its address; in a library before 2.35 by this list.
struct Search {
  uintptr_t address;
  struct dl_find_object* found;
};

static int look_at_object(struct dl_phdr_info* object, size_t size, void* data) {
  (void)size;
  struct Search* search = data;
  const ElfW(Phdr)* table = NULL;
  int is_here = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_LOAD && search->address - begin < part->p_memsz) {
      is_here = 1;
      search->found->dlfo_map_start = (void*)begin;
      search->found->dlfo_map_end = (void*)(begin + part->p_memsz);
    }
    if (part->p_type == PT_GNU_EH_FRAME) table = part;
  }
  if (!is_here) return 0;
  if (table == NULL) return -1;
  search->found->dlfo_eh_frame = (void*)(object->dlpi_addr + table->p_vaddr);
  return 1;
}

HIDDEN int _dl_find_object(void* address, struct dl_find_object* result) {
  memset(result, 0, sizeof *result);
  struct Search search = {(uintptr_t)address, result};
  return dl_iterate_phdr(look_at_object, &search) == 1 ? 0 : -1;
}

// ---- The start: before 2.34 a program's own start files ran its constructors, since then libc does.
typedef void Constructor(int, char**, char**);
extern Constructor* __init_array_start[] HIDDEN;
extern Constructor* __init_array_end[] HIDDEN;
extern void _init(void);

static void run_constructors(int argc, char** argv, char** environment) {
  _init();
  for (Constructor** one = __init_array_start; one != __init_array_end; ++one)
    (*one)(argc, argv, environment);
}

typedef int Main(int, char**, char**);
extern HIDDEN int acc_old_libc_start_main(Main*, int, char**, Constructor*, void (*)(void),
                                          void (*)(void), void*);

HIDDEN int __libc_start_main(Main* main, int argc, char** argv, Constructor* init, void (*end)(void),
                             void (*end_of_loader)(void), void* stack_end) {
  (void)init;
  return acc_old_libc_start_main(main, argc, argv, run_constructors, end, end_of_loader, stack_end);
}
