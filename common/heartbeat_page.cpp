#include "common/heartbeat_page.hpp"

#include "common/text.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace acc::heartbeat {

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr int kTries = 64;  // of a reader that meets a section being changed

constexpr std::array<std::string_view, 14> kOperations{
    "none",           "all_reduce", "reduce",  "broadcast", "all_gather", "gather", "scatter",
    "reduce_scatter", "all_to_all", "barrier", "send",      "recv",       "split",  "allocate"};

std::string section_of(const Slot& slot) {
  std::array<char, kSectionName> bytes{};
  for (std::size_t i = 0; i < kSectionName; ++i) bytes[i] = slot.section[i].load(kRelaxed);
  const auto end = std::find(bytes.begin(), bytes.end(), '\0');
  return printable(std::string_view{bytes.data(), static_cast<std::size_t>(end - bytes.begin())},
                   kSectionName);
}

}  // namespace

std::string_view operation_name(std::uint8_t operation) {
  return operation < kOperations.size() ? kOperations[operation] : "unknown";
}

Beat read(const Slot& slot) {
  Beat beat;
  beat.pid = slot.pid.load(std::memory_order_acquire);  // first: what follows is not older
  beat.beats = slot.beats.load(std::memory_order_acquire);
  beat.time_ns = slot.time_ns.load(kRelaxed);
  beat.step = slot.step.load(kRelaxed);
  beat.checkpoints = slot.checkpoints.load(kRelaxed);
  beat.checkpoint_step = slot.checkpoint_step.load(kRelaxed);
  beat.collective = unpack(slot.collective.load(kRelaxed));
  beat.stacks_signal = slot.stacks_signal.load(kRelaxed);
  beat.stacks_fd = slot.stacks_fd.load(kRelaxed);
  beat.peer_failed = slot.peer_failed.load(kRelaxed) != 0;
  // A writer that was killed or stopped in the middle leaves an odd edition for ever.
  for (int i = 0; i < kTries; ++i) {
    const auto edition = slot.edition.load(std::memory_order_acquire);
    beat.section_since_ns = slot.section_since_ns.load(kRelaxed);
    beat.section_limit_ms = std::min(slot.section_limit_ms.load(kRelaxed), kLongestSectionMs);
    beat.section = beat.section_since_ns != 0 ? section_of(slot) : std::string{};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (edition % 2 == 0 && slot.edition.load(kRelaxed) == edition) break;
  }
  return beat;
}

std::uint64_t coarse_now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void write_checkpoint(Slot& slot, std::uint64_t step) noexcept {
  slot.checkpoint_step.store(step, kRelaxed);
  slot.checkpoints.store(slot.checkpoints.load(kRelaxed) + 1, std::memory_order_release);
}

namespace {

void store_section(Slot& slot, std::string_view name, std::uint64_t since_ns,
                   std::uint64_t limit_ms) noexcept {
  const auto edition = slot.edition.load(kRelaxed);
  slot.edition.store(edition | 1U, kRelaxed);
  std::atomic_thread_fence(std::memory_order_release);
  const auto shown = name.substr(0, kSectionName - 1);
  for (std::size_t i = 0; i < kSectionName; ++i)
    slot.section[i].store(i < shown.size() ? shown[i] : '\0', kRelaxed);
  slot.section_limit_ms.store(limit_ms, kRelaxed);
  slot.section_since_ns.store(since_ns, kRelaxed);
  slot.edition.store((edition | 1U) + 1, std::memory_order_release);
}

void clear(Slot& slot) noexcept {
  store_section(slot, {}, 0, 0);
  slot.stacks_signal.store(0, kRelaxed);
  slot.stacks_fd.store(0, kRelaxed);
  slot.collective.store(0, kRelaxed);
  slot.step.store(0, kRelaxed);
  slot.time_ns.store(0, kRelaxed);
  slot.beats.store(0, kRelaxed);
}

// Our Python module makes such memory, and closes it at exec: then a program of this process wrote
// here already. A pid alone says less: by exec another program has it, and in a container any may.
bool is_of_this_process(const Slot& slot) {
  if (slot.pid.load(kRelaxed) != static_cast<std::uint32_t>(::getpid())) return false;
  std::array<char, 64> name{};
  const auto link = "/proc/self/fd/" + std::to_string(slot.stacks_fd.load(kRelaxed));
  const auto size = ::readlink(link.c_str(), name.data(), name.size());
  return size > 0 && std::string_view{name.data(), static_cast<std::size_t>(size)}.starts_with(
                         "/memfd:acc-stacks");
}

/// 0: it is gone, or of another user.
pid_t parent_of(pid_t process) {
  std::array<char, 512> text{};
  const UniqueFd file{
      ::open(("/proc/" + std::to_string(process) + "/stat").c_str(), O_RDONLY | O_CLOEXEC)};
  const auto size = file ? ::read(file.get(), text.data(), text.size() - 1) : 0;
  const std::string_view stat{text.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
  const auto name_end = stat.rfind(')');  // ") S 17 …"
  if (name_end == std::string_view::npos || name_end + 4 >= stat.size()) return 0;
  const auto parent = stat.substr(name_end + 4);
  return parse_number<pid_t>(parent.substr(0, parent.find(' '))).value_or(0);
}

// A rank that has sent heartbeats keeps its page, whatever programs it starts.
bool is_of_rank_above(const Slot& slot) {
  constexpr int kDeepest = 32;
  const auto holder = static_cast<pid_t>(slot.pid.load(kRelaxed));
  if (holder <= 1 || slot.beats.load(kRelaxed) == 0) return false;
  pid_t parent = ::getppid();
  for (int i = 0; i < kDeepest && parent > 1 && parent != holder; ++i) parent = parent_of(parent);
  return parent == holder;
}

}  // namespace

void write_section(Slot& slot, std::string_view name, std::uint64_t since_ns,
                   std::uint64_t limit_ms) noexcept {
  slot.time_ns.store(coarse_now_ns(), kRelaxed);
  store_section(slot, name, since_ns, limit_ms);
}

// peer_failed stays until then: a script around a program ends after it, for the same reason.
void claim(Slot& slot, std::uint32_t pid) noexcept {
  clear(slot);
  slot.peer_failed.store(0, kRelaxed);
  slot.pid.store(pid, std::memory_order_release);
}

// A claim in between loses what it wrote in these nanoseconds: its pid stays.
void release(Slot& slot, std::uint32_t pid) noexcept {
  if (slot.pid.load(kRelaxed) != pid) return;
  clear(slot);
  slot.pid.compare_exchange_strong(pid, 0, std::memory_order_release, kRelaxed);
}

// ---- mapping ----

Mapping::Mapping(Mapping&& other) noexcept
    : fd_{std::move(other.fd_)},
      memory_{std::exchange(other.memory_, nullptr)},
      bytes_{std::exchange(other.bytes_, 0)},
      slots_{std::exchange(other.slots_, 0)} {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(slots_, other.slots_);
  return *this;
}

Mapping::~Mapping() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

Result<Mapping> Mapping::make(std::uint32_t slots, std::uint64_t round) {
  Mapping page;
  const auto failed = [] { return system_error(errno, "make memory for heartbeats"); };
  page.fd_.reset(::memfd_create("acc-heartbeats", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  page.bytes_ = page_bytes(slots);
  if (!page.fd_ || ::ftruncate(page.fd(), static_cast<off_t>(page.bytes_)) != 0) return failed();
  // A worker that shortened it would end us with SIGBUS.
  ::fcntl(page.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  void* memory = ::mmap(nullptr, page.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, page.fd(), 0);
  if (memory == MAP_FAILED) return failed();
  page.memory_ = memory;
  page.slots_ = slots;
  Header header{};
  std::memcpy(header.magic, kMagic.data(), kMagic.size());
  header.version = kVersion;
  header.slots = slots;
  header.slot_bytes = sizeof(Slot);
  header.first_slot = sizeof(Header);
  header.round = round;
  std::memcpy(memory, &header, sizeof header);
  return page;
}

Result<Mapping> Mapping::open(int fd) {
  Mapping page;
  page.fd_.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  struct stat info {};
  if (!page.fd_ || ::fstat(page.fd(), &info) != 0)
    return system_error(errno, "open the page of heartbeats");
  const auto bytes = static_cast<std::size_t>(info.st_size);
  const Error foreign{Errc::malformed, "this is no page of heartbeats"};
  if (bytes < sizeof(Header)) return foreign;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, page.fd(), 0);
  if (memory == MAP_FAILED) return system_error(errno, "map the page of heartbeats");
  page.memory_ = memory;
  page.bytes_ = bytes;
  Header header{};
  std::memcpy(&header, memory, sizeof header);
  const bool is_known = std::string_view{header.magic, sizeof header.magic} == kMagic &&
                        header.version == kVersion && header.slot_bytes == sizeof(Slot) &&
                        header.first_slot == sizeof(Header);
  if (!is_known || bytes < page_bytes(header.slots)) return foreign;
  page.slots_ = header.slots;
  return page;
}

Slot& Mapping::slot(std::uint32_t index) const {
  return *std::launder(reinterpret_cast<Slot*>(static_cast<char*>(memory_) + slot_offset(index)));
}

// Never unmapped: threads may beat until the very end.
static void keep(Mapping page) {
  struct Kept {
    std::mutex mutex;
    std::vector<Mapping> pages;
  };
  static auto* const kept = new Kept;
  const std::lock_guard guard{kept->mutex};
  kept->pages.push_back(std::move(page));
}

Slot* map_slot(std::string_view variable) {
  const auto colon = variable.rfind(':');
  if (colon == std::string_view::npos) return nullptr;
  const auto offset = parse_number<std::size_t>(variable.substr(colon + 1));
  const UniqueFd fd{::open(std::string{variable.substr(0, colon)}.c_str(), O_RDWR | O_CLOEXEC)};
  if (!offset || !fd) return nullptr;
  auto page = Mapping::open(fd.get());
  const bool is_slot = page && *offset >= sizeof(Header) &&
                       (*offset - sizeof(Header)) % sizeof(Slot) == 0 &&
                       (*offset - sizeof(Header)) / sizeof(Slot) < page->slots();
  if (!is_slot) return nullptr;
  const auto index = static_cast<std::uint32_t>((*offset - sizeof(Header)) / sizeof(Slot));
  Slot& slot = page->slot(index);
  keep(std::move(*page));
  if (!is_of_this_process(slot) && !is_of_rank_above(slot))
    claim(slot, static_cast<std::uint32_t>(::getpid()));
  return &slot;
}

}  // namespace acc::heartbeat
