#pragma once

#include "agent/output/batch_queue.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace acc::agent {

/// Appends whole lines to a file (--events). It is opened by the writer thread, as a hung file
/// system must not hold up the loop. What the file does not take is counted as lost; after a line
/// that was cut the next one begins on a line of its own.
///
/// A file of `largest` bytes is renamed to PATH.1, in place of an older one. The next one begins
/// with a line that has the position of its first byte among all that was ever written
/// (event_file_line.hpp), so that a reader goes on where it was.
class EventFileQueue final : public BatchQueue {
 public:
  /// @param largest  0: any size
  EventFileQueue(std::string path, std::uint64_t largest, DropPolicy::Limits limits,
                 std::function<void()> wake)
      : BatchQueue{"events in " + path, limits, std::move(wake)},
        path_{std::move(path)},
        largest_{largest} {}

 private:
  // All of the writer thread.
  std::size_t write_once(std::string_view bytes) override;
  int open_file();  // errno or 0
  void look_at_end();
  int make_room(std::string_view& bytes);  // errno or 0
  int rotate();                            // errno or 0
  enum class Place : std::uint8_t { at_path, removed, moved };
  [[nodiscard]] Place place() const;  // of the open file
  void follow_path();
  int continue_file();  // errno or 0

  std::string path_;
  std::uint64_t largest_;
  UniqueFd fd_;
  std::uint64_t begins_at_ = 0;  // position of the file's first byte
  std::uint64_t size_ = 0;
  std::optional<std::uint64_t>
      continues_at_;          // the next file's begin: the last one was removed or moved
  bool is_rotating_ = false;  // it has a limit, and is a regular file
  bool is_in_line_ = false;  // the last write took a part of a line
  bool is_torn_ = false;      // the file ends in a line whose rest is lost
};

}  // namespace acc::agent
