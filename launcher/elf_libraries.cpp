#include "launcher/elf_libraries.hpp"

#include "common/unique_fd.hpp"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>

namespace acc::launcher {

namespace {

// No linker writes more; a file that claims so is not worth the memory.
constexpr std::size_t kMostHeaders = 256;
constexpr std::size_t kMostEntries = 4096;
constexpr std::size_t kLongestName = 256;

class ElfFile {
 public:
  explicit ElfFile(const std::string& path)
      : file_{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)} {}

  std::vector<std::string> needed() {
    Elf64_Ehdr header{};
    if (!read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != kByteOrder)
      return {};
    for (std::size_t i = 0; i < header.e_phnum && i < kMostHeaders; ++i) {
      Elf64_Phdr segment{};
      if (!read(header.e_phoff + i * sizeof segment, segment)) return {};
      if (segment.p_type == PT_LOAD) loads_.push_back(segment);
      if (segment.p_type == PT_DYNAMIC) dynamic_ = segment;
    }
    return dynamic_ ? names() : std::vector<std::string>{};
  }

 private:
  static constexpr unsigned char kByteOrder =
      __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;

  template <class T>
  bool read(std::uint64_t offset, T& into) const {
    return ::pread(file_.get(), &into, sizeof into, static_cast<off_t>(offset)) == sizeof into;
  }

  std::vector<std::string> names() const {
    std::vector<std::uint64_t> offsets;  // into the string table
    std::uint64_t table = 0;
    for (std::size_t i = 0; i < kMostEntries; ++i) {
      Elf64_Dyn entry{};
      if (!read(dynamic_->p_offset + i * sizeof entry, entry) || entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_NEEDED) offsets.push_back(entry.d_un.d_val);
      if (entry.d_tag == DT_STRTAB) table = entry.d_un.d_ptr;
    }
    const auto start = offset_of(table);
    std::vector<std::string> found;
    for (const auto offset : offsets) {
      if (!start) break;
      char name[kLongestName]{};
      if (::pread(file_.get(), name, sizeof name - 1, static_cast<off_t>(*start + offset)) > 0)
        found.emplace_back(name);
    }
    return found;
  }

  [[nodiscard]] std::optional<std::uint64_t> offset_of(std::uint64_t address) const {
    for (const auto& load : loads_) {
      if (address >= load.p_vaddr && address - load.p_vaddr < load.p_filesz)
        return address - load.p_vaddr + load.p_offset;
    }
    return std::nullopt;
  }

  UniqueFd file_;
  std::vector<Elf64_Phdr> loads_;
  std::optional<Elf64_Phdr> dynamic_;
};

}  // namespace

std::vector<std::string> linked_libraries(const std::string& path) {
  return ElfFile{path}.needed();
}

MpiLibrary mpi_library(const std::vector<std::string>& libraries) {
  for (const auto& name : libraries) {
    if (name.starts_with("libmpich") || name == "libmpi.so.12") return MpiLibrary::mpich;
    if (name == "libmpi.so.20" || name == "libmpi.so.40") return MpiLibrary::open_mpi;
  }
  return MpiLibrary::none;
}

}  // namespace acc::launcher
