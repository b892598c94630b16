#include "runtime/shm/segment.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <system_error>
#include <type_traits>
#include <utility>

namespace acc::runtime::shm {
namespace {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
// The objects in a new segment are not constructed: zeroed memory is their initial state.
static_assert(std::is_trivially_destructible_v<RankState> &&
              std::is_trivially_destructible_v<Header>);

constexpr std::size_t chunk_of(int ranks) {
  if (ranks <= 8) return 128 << 10;  // what all ranks stage must fit into the second-level caches
  return ranks <= 32 ? 64 << 10 : 32 << 10;
}

using FileId = std::pair<std::uint64_t, std::uint64_t>;  ///< device and inode

/// Mappings of this process. Global, as ranks that share one have only the file in common.
struct Mapped {
  std::mutex mutex;
  std::map<FileId, std::weak_ptr<Mapping>> of;
};
Mapped& mapped() {
  static auto* const all = new Mapped;  // never destroyed: groups may outlive main
  return *all;
}

[[noreturn]] void fail(const char* attempted) {
  throw Error{ErrorCode::system, std::string{attempted} + " the memory of a group: " +
                                     std::generic_category().message(errno)};
}

}  // namespace

Layout::Layout(int number) noexcept
    : ranks{number}, chunk{chunk_of(number)}, small{32 << 10}, cell{number <= 16 ? 16384u : 4096u} {
  const auto n = static_cast<std::size_t>(number);
  states = page_up(sizeof(Header));
  smalls = states + page_up(n * sizeof(RankState));
  chunks = smalls + n * 2 * small;
  pairs = chunks + n * 2 * chunk;
  cells = pairs + page_up(n * n * sizeof(Pair));
  bytes = cells + n * n * kCells * cell;  // untouched pages take no memory
}

Layout Layout::with_staging(int number, std::size_t staging) noexcept {
  Layout made{number};
  made.staging = made.smalls;
  made.small = made.chunk = made.cell = 0;
  made.chunks = made.pairs = made.cells = made.bytes = made.staging + staging;
  return made;
}

std::shared_ptr<Mapping> Mapping::of(UniqueFd memory, std::size_t bytes) {
  struct stat facts {};
  if (::fstat(memory.get(), &facts) != 0) fail("examining");
  if (static_cast<std::size_t>(facts.st_size) < bytes)
    throw Error{ErrorCode::system, "the memory of a group has " + std::to_string(facts.st_size) +
                                       " bytes; " + std::to_string(bytes) + " are needed"};
  auto& all = mapped();
  const std::lock_guard lock{all.mutex};
  std::erase_if(all.of, [](const auto& one) { return one.second.expired(); });
  auto& known = all.of[FileId{facts.st_dev, facts.st_ino}];
  if (auto mapping = known.lock()) return mapping;
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
  if (data == MAP_FAILED) fail("mapping");
  auto mapping = std::make_shared<Mapping>(data, bytes);
  known = mapping;
  return mapping;
}

Mapping::~Mapping() { ::munmap(data_, bytes_); }

Segment::Segment(UniqueFd memory, const Layout& layout)
    : layout_{layout},
      mapping_{Mapping::of(std::move(memory), layout_.bytes)},
      base_{mapping_->data()} {}

}  // namespace acc::runtime::shm
