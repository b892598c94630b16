#pragma once

#include <acc/safetensors.hpp>
#include <acc/types.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The format: 8 bytes length of the header (little endian), the header as JSON, padded with
/// spaces, then the tensors' bytes without a hole. As the README of huggingface/safetensors.
namespace acc::runtime::safetensors {

inline constexpr std::uint64_t kMaxHeader = 100'000'000;  ///< as the Rust package's
inline constexpr std::size_t kLengthBytes = 8;

[[nodiscard]] std::string_view type_of(DType dtype) noexcept;  ///< "F32"
/// nothing: not one of ours, or unknown.
[[nodiscard]] std::optional<DType> dtype_of_type(std::string_view type) noexcept;
/// Bits of an element; nothing: no type of the format.
[[nodiscard]] std::optional<unsigned> bits_of(std::string_view type) noexcept;
/// Place of a type in the package's order: the higher, the larger its elements.
[[nodiscard]] std::size_t order_of(std::string_view type) noexcept;

struct Header {
  TensorMetadata metadata;
  std::vector<SafetensorsEntry> entries;  ///< by their place in the file
};

/// @return the length of the header that the file's first bytes give, checked against `file_bytes`.
/// @throws Error corrupt, naming `file`.
[[nodiscard]] std::uint64_t header_length(std::span<const std::byte, kLengthBytes> first,
                                          std::uint64_t file_bytes, std::string_view file);
/// Total: any bytes give a header by which all tensors can be read, or an error.
/// @throws Error corrupt, naming `file`, the tensor and the place.
[[nodiscard]] Header parse_header(std::string_view text, std::uint64_t file_bytes,
                                  std::string_view file);

/// A tensor as a header describes it, of any type of the format. The strings and the shape outlive
/// it.
struct Described {
  std::string_view name;
  std::string_view type;  ///< "F32", "F8_E4M3"
  const Shape* shape = nullptr;
  std::uint64_t bytes = 0;
};
/// Metadata that transformers expects in a file of weights.
[[nodiscard]] inline TensorMetadata weights_metadata() { return {{"format", "pt"}}; }

/// The begin of a file that is to be written, and what follows.
struct Head {
  std::string text;                ///< length and header, padded to 8 bytes
  std::vector<std::size_t> order;  ///< of the tensors behind it, numbers of `tensors`
  std::uint64_t bytes = 0;         ///< of the whole file
};
/// By falling size of elements, then by name.
/// @throws Error invalid_argument: a name twice or not UTF-8; a header that is too long.
[[nodiscard]] Head head_of(std::span<const Described> tensors, const TensorMetadata& metadata);

/// A file that is to be written.
struct Layout {
  std::string head;                       ///< length and header, padded to 8 bytes
  std::vector<const NamedTensor*> order;  ///< after it, one behind the other
  std::uint64_t bytes = 0;                ///< of the whole file
};
/// @param tensors  outlive the layout.
/// @throws Error invalid_argument: a name twice or not UTF-8, a negative dimension, no memory
/// given.
[[nodiscard]] Layout lay_out(std::span<const NamedTensor> tensors, const TensorMetadata& metadata);

/// As split_by_size(), of tensors with these numbers of bytes: their places in `bytes`.
[[nodiscard]] std::vector<std::vector<std::size_t>> group_by_size(
    std::span<const std::uint64_t> bytes, std::uint64_t most);
/// Tensors of one file each, when none may hold more than `most` bytes unless it has but one
/// tensor. At least one group.
[[nodiscard]] std::vector<std::vector<NamedTensor>> split_by_size(
    std::span<const NamedTensor> tensors, std::uint64_t most);
/// "model.safetensors", "model-00002-of-00003.safetensors"; number from 0.
[[nodiscard]] std::string file_name(std::string_view stem, std::size_t number, std::size_t of);
/// Is it a numbered file as file_name() names them, of any number?
[[nodiscard]] bool is_shard_of(std::string_view name, std::string_view stem);
/// " has the shape …", where its bytes can't be counted; no dimension is below 0.
[[nodiscard]] std::optional<std::string> overflow(const ConstTensorView& view);
/// The index of several files, as huggingface_hub writes it: each tensor's file.
[[nodiscard]] std::string index_text(const std::map<std::string, std::string>& file_of_tensor,
                                     std::uint64_t tensor_bytes);
[[nodiscard]] std::string index_text(std::span<const std::vector<NamedTensor>> groups,
                                     std::string_view stem);

}  // namespace acc::runtime::safetensors
