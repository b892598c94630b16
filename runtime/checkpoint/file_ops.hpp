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

/// All changes that a checkpoint makes to the disk, so that a test can end the process, or make the
/// disk fail, at each of them. Any thread may call.
/// @throws Error system, with the path and the reason.
class FileOps {
 public:
  virtual ~FileOps() = default;

  virtual UniqueFd create(const fs::path& path);  ///< a new file, else an error
  virtual void write(int fd, std::span<const std::byte> bytes, std::uint64_t at,
                     const fs::path& path);
  /// Afterwards the file's bytes and size survive a loss of power.
  virtual void sync(int fd, const fs::path& path);
  virtual void make_folder(const fs::path& path);  ///< its parent exists, it does not
  virtual void rename(const fs::path& from, const fs::path& to);
  /// Exchanges two existing paths atomically. @return false: unsupported by this file system.
  virtual bool exchange(const fs::path& one, const fs::path& other);
  virtual void remove(const fs::path& path);  ///< a file, a link or an empty folder
  /// Afterwards the names in it survive a loss of power.
  virtual void sync_folder(const fs::path& path);
  /// Locks the whole file exclusively, until the descriptor is closed; doesn't wait.
  /// @return 0, or errno: EWOULDBLOCK if another descriptor holds it
  [[nodiscard]] virtual int lock(int fd);

  /// The operations by system calls.
  static FileOps& real();
};

/// "write '/x/y': No space left on device"
[[noreturn]] void fail(std::string_view doing, const fs::path& path, int errnum);

/// Removes a folder with its contents.
void remove_tree(FileOps& files, const fs::path& path);

/// All bytes of a small file. @throws Error system; corrupt: longer than `limit`.
[[nodiscard]] std::string read_small(const fs::path& path, std::uint64_t limit);

/// Opens for reading. @param size  of the file, set.
[[nodiscard]] UniqueFd open_for_reading(const fs::path& path, std::uint64_t& size);
/// @throws Error system; corrupt: the file ends before.
void read_at(int fd, std::span<std::byte> into, std::uint64_t at, const fs::path& path);

}  // namespace acc::runtime::checkpoint
