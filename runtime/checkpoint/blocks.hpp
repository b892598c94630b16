#pragma once

#include "runtime/checkpoint/file_ops.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Files written and read with a checksum for each MiB.
namespace acc::runtime::checkpoint {

inline constexpr std::size_t kBlock = std::size_t{1} << 20;

using Bytes = std::span<const std::byte>;

struct FileRecord {
  std::string name;  ///< in its folder
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> crc32;  ///< of each block, the last one may be shorter
};

/// Writes a new file of these pieces in order, and syncs it.
/// @throws Error system; a part of the file may remain.
[[nodiscard]] FileRecord write_file(FileOps& files, const fs::path& path,
                                    std::span<const Bytes> pieces, int threads);
[[nodiscard]] FileRecord write_file(FileOps& files, const fs::path& path, std::string_view text);

/// Text of a checksum: 8 digits.
[[nodiscard]] std::string hex(std::uint32_t checksum);
[[nodiscard]] std::size_t blocks_of(const FileRecord& file) noexcept;

/// Reads `count` blocks from block `first` on, and compares.
/// @throws Error corrupt: what differs, in which file, at which byte; system.
void check_blocks(const fs::path& folder, const FileRecord& file, std::size_t first,
                  std::size_t count, int threads);
/// Compares one block's bytes, which were read from `path`. @throws Error corrupt
void check_block(const fs::path& path, const FileRecord& file, std::size_t block, Bytes bytes);
/// A whole small file, compared.
[[nodiscard]] std::string read_checked(const fs::path& folder, const FileRecord& file);

}  // namespace acc::runtime::checkpoint
