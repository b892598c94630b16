#pragma once

#include "runtime/checkpoint/blocks.hpp"
#include "runtime/checkpoint/file_ops.hpp"

#include <acc/safetensors.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime::checkpoint {

/// Files of one folder that are written under temporary names and then moved together: until
/// make_valid() the previous files remain. A symbolic link is followed to its file.
class StagedFiles {
 public:
  explicit StagedFiles(fs::path folder, FileOps& files = FileOps::real());
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;
  /// Removes the files not moved yet.
  ~StagedFiles();

  /// Writes and syncs. The one added last is the one that readers look for first.
  /// @throws Error invalid_argument: under this name is a device, a pipe, a folder; system.
  void add(const std::string& name, std::span<const Bytes> pieces);

  /// As add(), for a caller that writes the file and syncs it by itself.
  struct Open {
    UniqueFd fd;
    fs::path path;  ///< temporary
  };
  [[nodiscard]] Open create(const std::string& name);

  /// The one place where files, whose bytes are all on disk, become valid: in the order in which
  /// they were added; then `outdated` is removed. If several files replace existing ones, the old
  /// one of the last is removed first, so that no reader sees a mixture of old and new; and a list
  /// of the renames is written before, with which finish_renames() completes them after a crash.
  void make_valid(const std::vector<std::string>& outdated);

 private:
  struct Staged {
    fs::path beside;
    fs::path target;
  };
  void write_renames(const fs::path& list);
  fs::path folder_;
  FileOps& files_;
  std::vector<Staged> staged_;
};

/// Where a file of this name is written: through symbolic links, the last of which may dangle.
/// @throws Error invalid_argument: under this name is a device, a pipe, a folder; system.
[[nodiscard]] fs::path target_of(fs::path path);

/// As save_safetensors_model(), whose body this is.
std::vector<std::string> save_model_files(FileOps& ops, const fs::path& folder,
                                          std::span<const NamedTensor> tensors,
                                          std::uint64_t max_shard_bytes,
                                          const TensorMetadata& metadata, std::string_view stem);

/// Completes an interrupted make_valid(): `last` is the name that readers look for first.
void finish_renames(FileOps& files, const fs::path& folder, const std::string& last);

/// "10GB", "500MiB", "2.5 kB", "4096": bytes, as huggingface_hub reads them; a small b is for bits.
/// @throws Error invalid_argument
[[nodiscard]] std::uint64_t parse_size(std::string_view text);

}  // namespace acc::runtime::checkpoint
