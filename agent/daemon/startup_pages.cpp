#include "agent/daemon/startup_pages.hpp"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

namespace acc::agent::daemon {

namespace {

int release_segments(dl_phdr_info* object, size_t, void*) {
  const auto page = static_cast<ElfW(Addr)>(::sysconf(_SC_PAGESIZE));
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    // What may be written to would lose what was written.
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    const auto begin = (object->dlpi_addr + segment.p_vaddr) & ~(page - 1);
    const auto end = object->dlpi_addr + segment.p_vaddr + segment.p_memsz;
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  return 1;  // the first object is the program itself
}

}  // namespace

void release_startup_pages() { ::dl_iterate_phdr(release_segments, nullptr); }

}  // namespace acc::agent::daemon
