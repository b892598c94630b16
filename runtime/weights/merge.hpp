#pragma once

#include "runtime/checkpoint/file_ops.hpp"
#include "runtime/weights/source.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace acc::weights {

struct MergeOptions {
  fs::path folder;  ///< of the output; made where it is missing
  /// Tensors of one file; more make model-00001-of-0000N.safetensors … and an index.
  std::uint64_t max_shard_bytes = std::numeric_limits<std::uint64_t>::max();
  bool overwrites = false;      ///< replaces a model that is there
  bool removes_source = false;  ///< afterwards
};

struct Merged {
  std::vector<std::string> files;  ///< the index last
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;  ///< of the tensors
};

/// Thrown by `stop` in merge(): a signal came.
struct Stopped {
  int signo = 0;
};

/// Copies the tensors into model.safetensors, as Accelerate's save_model names its files, with
/// memory for a block or two and each header: bytes go from file to file, and those of a checkpoint
/// are compared with its checksums on the way. Until all are on disk the folder holds what it held;
/// a failure leaves it so.
/// @param stop  called for each block
/// @throws Error invalid_argument: a model is there already, or the folder is the source; system;
///   corrupt
[[nodiscard]] Merged merge(
    const Source& source, const MergeOptions& options, const std::function<void()>& stop,
    runtime::checkpoint::FileOps& ops = runtime::checkpoint::FileOps::real());

}  // namespace acc::weights
