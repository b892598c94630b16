#pragma once

#include "runtime/checkpoint/file_ops.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

/// The folder that holds the checkpoints: names, what dead writers left, what is too old.
namespace acc::runtime::checkpoint {

using Tell = std::function<void(const std::string&)>;

/// Who writes, so that what it leaves can be known as left. In the name of the temporary folder,
/// as that is made in one step.
struct Writer {
  std::uint32_t place = 0;  ///< of this start of the machine and this space of process ids
  std::int64_t pid = 0;
  std::uint64_t start = 0;  ///< of the process, in the kernel's ticks
  std::uint32_t job = 0;    ///< of ACC_JOB_ID; 0: not started by an agent
  std::uint64_t round = 0;  ///< ACC_ROUND
  std::uint64_t count = 0;  ///< of the process's temporary folders
  friend bool operator==(const Writer&, const Writer&) = default;
};
/// This process, with a count that wasn't used yet.
[[nodiscard]] Writer this_writer();
/// ".tmp-acc.<place>.<pid>.<start>.<job>.<round>.<count>.checkpoint_7"
[[nodiscard]] std::string temporary_name(const Writer& writer, std::string_view target);
[[nodiscard]] std::optional<Writer> writer_of(std::string_view temporary_name);
/// Is it certain that this writer is gone? In its own place when its process is; elsewhere when we
/// are of a later round of its job, as rounds never overlap.
[[nodiscard]] bool is_gone(const Writer& writer, const Writer& self);

/// Makes a folder and those above it that aren't there, so that they last.
void make_folders(FileOps& files, const fs::path& path);
/// Removes the temporary folders of writers that are gone. What can't be removed is told.
void remove_leftovers(FileOps& files, const fs::path& folder, const Tell& tell);

/// Makes `whole` stand under `target`, at once and so that it lasts; what stood there is removed,
/// or told.
void put_in_place(FileOps& files, const fs::path& whole, const fs::path& target, const Tell& tell);
/// Where the file system can't exchange two folders, the old one stands here for a moment.
[[nodiscard]] fs::path aside_of(const fs::path& target);
/// `target`, or where that isn't there what stands aside.
[[nodiscard]] fs::path present(const fs::path& target);

/// Which checkpoints a save may remove.
struct Removal {
  int keep = 0;  ///< so many stay, with the one just saved; 0: all
  /// Found corrupt by load(): they go first, as do those without a sound manifest. One that can't
  /// be read just now is no bad one.
  std::set<std::uint64_t> known_bad;
  /// What this run saved; nothing: it has loaded, so all of them are its own.
  std::optional<std::set<std::uint64_t>> own;
};
/// Removes the oldest of those below `newest` until as many are left as are to stay. What can't be
/// removed is told.
void keep_last(FileOps& files, const fs::path& folder, std::uint64_t newest, const Removal& removal,
               const Tell& tell);

}  // namespace acc::runtime::checkpoint
