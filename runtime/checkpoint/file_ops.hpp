#pragma once

#include "common/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace acc::runtime::checkpoint {

namespace fs = std::filesystem;

/// Every change that a checkpoint makes to the disk is one of these, so that a test can end the
/// process, or let the disk fail, at each of them. Any thread may call.
/// @throws Error system, with the path and the reason.
class FileOps {
 public:
  virtual ~FileOps() = default;

  virtual UniqueFd create(const fs::path& path);  ///< a new file, else an error
  virtual void write(int fd, std::span<const std::byte> bytes, std::uint64_t at,
                     const fs::path& path);
  /// The file's bytes and size survive a loss of power from here on.
  virtual void sync(int fd, const fs::path& path);
  virtual void make_folder(const fs::path& path);  ///< its parent is there, itself isn't
  virtual void rename(const fs::path& from, const fs::path& to);
  /// Both are there and change places at once. @return false: this file system can't.
  virtual bool exchange(const fs::path& one, const fs::path& other);
  virtual void remove(const fs::path& path);  ///< a file, a link or an empty folder
  /// The names in it survive a loss of power from here on.
  virtual void sync_folder(const fs::path& path);

  /// What the system calls make of them.
  static FileOps& real();
};

/// "write '/x/y': No space left on device"
[[noreturn]] void fail(std::string_view doing, const fs::path& path, int errnum);

/// A folder with all that is in it.
void remove_tree(FileOps& files, const fs::path& path);

/// All bytes of a small file. @throws Error system; corrupt: longer than `limit`.
[[nodiscard]] std::string read_small(const fs::path& path, std::uint64_t limit);

/// Opens for reading. @param size  of the file, set.
[[nodiscard]] UniqueFd open_for_reading(const fs::path& path, std::uint64_t& size);
/// @throws Error system; corrupt: the file ends before.
void read_at(int fd, std::span<std::byte> into, std::uint64_t at, const fs::path& path);

}  // namespace acc::runtime::checkpoint
