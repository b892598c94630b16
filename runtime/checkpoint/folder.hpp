#pragma once

#include "runtime/checkpoint/file_ops.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

/// The folder that holds the checkpoints: names, left-overs of dead writers, pruning.
namespace acc::runtime::checkpoint {

using Tell = std::function<void(const std::string&)>;

/// Identity of a writer, by which its left-overs are recognised. Part of the name of the temporary
/// folder, which is created atomically.
struct Writer {
  std::uint32_t place = 0;  ///< of this boot and pid namespace
  std::int64_t pid = 0;
  std::uint64_t start = 0;  ///< of the process, in the kernel's ticks
  std::uint32_t job = 0;    ///< of ACC_JOB_ID; 0: not started by an agent
  std::uint64_t round = 0;  ///< ACC_ROUND
  std::uint64_t count = 0;  ///< number of the temporary folder of the process
  friend bool operator==(const Writer&, const Writer&) = default;
};
/// This process, with an unused count.
[[nodiscard]] Writer this_writer();
/// ".tmp-acc.<place>.<pid>.<start>.<job>.<round>.<count>.checkpoint_7"; a long target is cut.
[[nodiscard]] std::string temporary_name(const Writer& writer, std::string_view target);
[[nodiscard]] std::optional<Writer> writer_of(std::string_view temporary_name);
/// Is this writer certainly gone? In the same place if its process is, and where /proc hides it
/// (hidepid) if there is none of its number; elsewhere if this process is of a later round of its
/// job, as rounds never overlap.
[[nodiscard]] bool is_gone(const Writer& writer, const Writer& self);

/// Names like those of checkpoints, but with a number above kMaxCheckpointNumber.
[[nodiscard]] std::vector<std::string> names_above_all_numbers(const fs::path& folder);

/// Makes a folder and its missing parents, durably.
void make_folders(FileOps& files, const fs::path& path);
/// Removes the temporary folders of writers that are gone; reports what can't be removed.
void remove_leftovers(FileOps& files, const fs::path& folder, const Tell& tell);

/// Whose is the name of a checkpoint?
enum class Standing : std::uint8_t {
  numbered,  ///< ours: checkpoint_<number> in a folder of checkpoints
  by_itself  ///< the program's: what is there may be anything
};
/// Where a save to `target` puts its folder: where the link leads, if it is one that leads
/// somewhere.
[[nodiscard]] fs::path followed(const fs::path& target);
/// @throws Error invalid_argument: a save to `target` would remove what is no checkpoint: something
///   else than a folder, a folder with other files, or one that holds the working directory.
void require_replaceable(const fs::path& target, Standing standing);

/// For a model that is to be written to `folder`, under names that a checkpoint's files have too.
/// @throws Error invalid_argument: there is a checkpoint, which would no longer be whole
void refuse_folder_of_checkpoint(const fs::path& folder);

/// Moves `whole` to `target`, atomically and durably; what was there is removed, or reported.
void put_in_place(FileOps& files, const fs::path& whole, const fs::path& target, const Tell& tell);
/// Where the old folder is kept for a moment if the file system can't exchange two.
[[nodiscard]] fs::path aside_of(const fs::path& target);
/// `target`, or if it does not exist the folder kept aside.
[[nodiscard]] fs::path present(const fs::path& target);

/// Which checkpoints a save may remove.
struct Removal {
  int keep = 0;  ///< how many stay, including the one just saved; 0: all
  /// Found corrupt by load(): removed first, as are those without a valid manifest. A temporarily
  /// unreadable one is not bad.
  std::set<std::uint64_t> known_bad;
  /// Saved by this run; nothing: it has loaded, so all belong to it.
  std::optional<std::set<std::uint64_t>> own;
};
/// Removes the oldest below `newest` until `keep` are left; reports what can't be removed.
void keep_last(FileOps& files, const fs::path& folder, std::uint64_t newest, const Removal& removal,
               const Tell& tell);

}  // namespace acc::runtime::checkpoint
