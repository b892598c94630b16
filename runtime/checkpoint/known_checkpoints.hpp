#pragma once

#include "runtime/checkpoint/folder.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace acc::runtime::checkpoint {

/// The numbered checkpoints of a folder that a run knows: those that it found there, and its own
/// since. The lock keeps two writers apart only while both save; one that ended in the meantime is
/// noticed by what it left.
class KnownCheckpoints {
 public:
  using Clock = std::function<std::chrono::system_clock::time_point()>;
  explicit KnownCheckpoints(Clock now = std::chrono::system_clock::now) : now_{std::move(now)} {}

  /// Knows what is in the folder now, and no more what was. Nothing if it can't be read, which the
  /// caller's own access reports.
  void look(const fs::path& folder);
  [[nodiscard]] bool has_looked() const noexcept { return marks_.has_value(); }
  /// This run wrote it, or tried to.
  void note(const fs::path& folder, std::uint64_t number);
  /// Written by another one since look(), ascending; none without a look().
  /// Reads only manifests that look changed.
  /// @throws Error system: the folder can't be read
  [[nodiscard]] std::vector<std::uint64_t> foreign(const fs::path& folder);

 private:
  /// Of a file's inode, as the kernel keeps it: the same ones prove the same text.
  struct Facts {
    std::uint64_t device = 0, inode = 0;
    std::int64_t size = 0, written_ns = 0, changed_ns = 0;  ///< since the epoch
    friend bool operator==(const Facts&, const Facts&) = default;
  };
  struct Mark {
    /// Of a manifest's text, of an empty one if there is none. Unlike the facts it is the same on
    /// every file system, after a `touch`, and in a copy that was put back. Nothing: it can't be
    /// read, which proves no other writer.
    std::optional<std::size_t> hash;
    /// Nothing: unknown, or so fresh that a later change may have the same ones.
    std::optional<Facts> facts;
  };
  [[nodiscard]] std::optional<Facts> settled_facts(const fs::path& manifest) const;
  [[nodiscard]] Mark mark_of(const fs::path& folder, std::uint64_t number) const;
  /// Is it another one's by now? A mark of the same text is brought up to date.
  [[nodiscard]] bool has_changed(const fs::path& folder, std::uint64_t number, Mark& known) const;

  Clock now_;
  std::optional<std::map<std::uint64_t, Mark>> marks_;  ///< by number
};

}  // namespace acc::runtime::checkpoint
