#pragma once

#include "runtime/checkpoint/folder.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace acc::runtime::checkpoint {

/// The numbered checkpoints of a folder that a run knows: those that it found there, and its own
/// since. The lock keeps two writers apart only while both save; one that ended in the meantime is
/// noticed by what it left.
class KnownCheckpoints {
 public:
  /// Knows what is in the folder now, and no more what was. Nothing if it can't be read, which the
  /// caller's own access reports.
  void look(const fs::path& folder);
  [[nodiscard]] bool has_looked() const noexcept { return marks_.has_value(); }
  /// This run wrote it, or tried to.
  void note(const fs::path& folder, std::uint64_t number);
  /// Written by another one since look(), ascending; none without a look().
  /// @throws Error system: the folder can't be read
  [[nodiscard]] std::vector<std::uint64_t> foreign(const fs::path& folder) const;

 private:
  /// Hash of a manifest's text, of an empty one if there is none. Unlike an inode or a time it is
  /// the same on every file system, after a `touch`, and in a copy that was put back. Nothing: it
  /// can't be read, which proves no other writer.
  using Mark = std::optional<std::size_t>;
  [[nodiscard]] static Mark mark_of(const fs::path& folder, std::uint64_t number);

  std::optional<std::map<std::uint64_t, Mark>> marks_;  ///< by number
};

}  // namespace acc::runtime::checkpoint
