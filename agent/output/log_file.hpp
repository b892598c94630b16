#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace acc::agent {

struct Rotation {
  std::uint64_t bytes = 0;  ///< a file is renamed to .1 before it grows beyond this; 0: never
  std::uint32_t keep = 4;   ///< renamed files kept; the oldest goes
};

/// One log file of a worker's stream: exact bytes, over all parts of a rotation together.
class LogFile {
 public:
  /// @param is_private  its folder, where that is missing, is made for its owner alone
  LogFile(std::string path, Rotation rotation, bool is_private = false)
      : path_{std::move(path)}, rotation_{rotation}, is_private_{is_private} {}

  /// Creates it, empty, and its folder where that is missing. append() does it too, when this
  /// failed or was not called.
  Result<void> open();

  struct Written {
    std::size_t bytes = 0;  ///< the kernel has taken these, in order
    int error = 0;          ///< errno of what stopped it; 0: all was taken
  };
  Written append(std::string_view bytes);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// The file doesn't end in the middle of a line.
  [[nodiscard]] bool at_line_start() const { return at_line_start_; }

 private:
  int try_open();  // errno or 0
  int open_regular();
  Written write_all(std::string_view bytes);
  [[nodiscard]] std::size_t room_for(std::string_view bytes) const;
  void rotate();
  [[nodiscard]] bool is_removed() const;

  std::string path_;
  Rotation rotation_;
  bool is_private_;
  UniqueFd fd_;
  std::uint64_t size_ = 0;
  bool at_line_start_ = true;
  bool was_open_ = false;  // it has our bytes in it: never truncate it again
};

}  // namespace acc::agent
