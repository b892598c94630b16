#pragma once

#include <acc/error.hpp>
#include <acc/types.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Tensors in files that Hugging Face's safetensors package reads, and the other way round.
namespace acc::runtime {

struct NamedTensor {
  std::string name = {};
  ConstTensorView view = {};  ///< in host memory
};

/// Of a file as a whole; `{"format", "pt"}` is what Hugging Face's transformers asks for.
using TensorMetadata = std::map<std::string, std::string>;

/// A tensor as the header of its file tells of it.
struct SafetensorsEntry {
  std::string name;
  std::string type;  ///< in the file's words: "F32", "F8_E4M3"
  std::optional<DType>
      dtype;  ///< nothing: no type of ours (BOOL, I16, F8_E4M3 …); bytes can be read
  Shape shape;
  std::uint64_t begin = 0;  ///< of its first byte, in the file
  std::uint64_t bytes = 0;
};

/// One file, open for reading. Its header has been checked against all rules of the format, so each
/// entry lies within the file and shares no byte with another. Any thread may read.
///
/// @throws Error from all: system (not there, not readable), corrupt (says file, tensor and place),
///   invalid_argument (no such tensor; another type or shape than asked for).
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const noexcept;
  [[nodiscard]] const TensorMetadata& metadata() const noexcept;
  /// In the order of their bytes in the file.
  [[nodiscard]] std::span<const SafetensorsEntry> entries() const noexcept;
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const noexcept;

  [[nodiscard]] HostTensor read(std::string_view name) const;
  /// Into memory of the caller; same type and shape.
  void read(std::string_view name, const TensorView& into) const;
  /// Bytes `from` … of the tensor, as many as `into` holds.
  void read_bytes(const SafetensorsEntry& entry, std::uint64_t from,
                  std::span<std::byte> into) const;

 private:
  struct Contents;
  std::shared_ptr<const Contents> contents_;
};

/// Tensors in one file or in several that an index names, as Hugging Face's models are stored.
class SafetensorsModel {
 public:
  /// @param path  a .safetensors file, a .safetensors.index.json, or a folder that holds
  ///   model.safetensors or model.safetensors.index.json.
  explicit SafetensorsModel(const std::filesystem::path& path);

  [[nodiscard]] std::span<const SafetensorsFile> files() const noexcept { return files_; }
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool contains(std::string_view name) const noexcept;
  /// The one that holds it, by the index.
  [[nodiscard]] const SafetensorsFile& file_of(std::string_view name) const;
  [[nodiscard]] HostTensor read(std::string_view name) const;
  void read(std::string_view name, const TensorView& into) const;

 private:
  std::string name_;  ///< for messages
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> where_;  ///< name → files_
};

/// Writes one file, by way of a temporary one: under `path` is the old file or the whole new one. A
/// symbolic link stays, and the file that it leads to is replaced.
/// The tensors stand in it by falling size of their elements, then by name, so that each is
/// aligned.
/// @throws Error invalid_argument (a name twice, not UTF-8, no host memory; a shape of more bytes
/// than
///   can be counted; under `path` is a device, a pipe, a folder), system.
void save_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                      const TensorMetadata& metadata = {});

/// Writes model.safetensors or, where that would hold more than `max_shard_bytes` of tensors,
/// model-00001-of-00003.safetensors … and model.safetensors.index.json. A tensor that is larger
/// has a file for itself. Grouped in the given order, as huggingface_hub does. All files are
/// written before the first is put in its place; an older index, single file or numbered files of
/// the same stem go then.
/// @return the names of the files, the index last.
std::vector<std::string> save_safetensors_model(const std::filesystem::path& folder,
                                                std::span<const NamedTensor> tensors,
                                                std::uint64_t max_shard_bytes = 5'000'000'000,
                                                const TensorMetadata& metadata = {},
                                                std::string_view stem = "model");

}  // namespace acc::runtime
