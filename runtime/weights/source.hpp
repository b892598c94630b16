#pragma once

#include "runtime/checkpoint/blocks.hpp"
#include "runtime/checkpoint/safetensors_format.hpp"

#include <acc/safetensors.hpp>
#include <acc/types.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

/// What `acc merge-weights` and `acc estimate-memory` read: a checkpoint of ours, or a model in
/// safetensors files. Only headers are read here.
namespace acc::weights {

namespace fs = std::filesystem;

/// Bytes of a file.
struct Extent {
  std::size_t file = 0;  ///< in Source::files
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

struct Tensor {
  std::string name;
  std::string type;  ///< in the file's words: "F32", "F8_E4M3"
  runtime::Shape shape;
  std::uint64_t bytes = 0;
  std::vector<Extent> extents;  ///< its bytes, in order
};

struct SourceFile {
  fs::path path;
  /// With the checksums of its blocks; nothing: the format has none.
  std::optional<runtime::checkpoint::FileRecord> record;
};

struct Source {
  fs::path path;               ///< the folder or file that was opened
  bool is_checkpoint = false;  ///< of ours; false: safetensors files
  std::vector<SourceFile> files;
  std::vector<Tensor> tensors;     ///< in the order in which they were saved
  /// For the output's headers: what those of the source's files hold, and "format" in any case.
  runtime::TensorMetadata metadata = runtime::safetensors::weights_metadata();
  std::vector<std::string> notes;  ///< what else is there, for the user
  /// A tensor in these files that is none of `tensors`, for messages; empty: there is none.
  std::string unread;
};

/// The part of a checkpoint that is read unless another is asked for.
inline constexpr const char* kModelPart = "model";

/// @param path  a checkpoint's folder, a folder with model.safetensors or its index, or such a
///   file.
/// @param part  of a checkpoint: "model" (with its buffers), "model_1", "optimizer" …
/// @throws Error system: it isn't there, or can't be read; corrupt; invalid_argument: it is
///   something else, says what and which tool reads it, or it has no such part.
[[nodiscard]] Source open_source(const fs::path& path, const std::string& part = kModelPart);

/// What a path holds that isn't ours to read, and which tool reads it: PyTorch's sharded
/// checkpoints, DeepSpeed's, pickles, a folder of checkpoints. Empty: none of these.
[[nodiscard]] std::string foreign_words(const fs::path& path);

}  // namespace acc::weights
