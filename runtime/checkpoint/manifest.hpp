#pragma once

#include "runtime/checkpoint/blocks.hpp"

#include <acc/checkpoint.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// manifest.json: what a checkpoint consists of. Written last, so its presence means completeness.
namespace acc::runtime::checkpoint {

inline constexpr std::string_view kManifest = "manifest.json";
inline constexpr std::uint64_t kMaxManifest = std::uint64_t{1} << 30;  ///< bytes
inline constexpr std::string_view kSharedState = "state.json";
/// "rank_3.json"
[[nodiscard]] std::string rank_state_name(int rank);

/// Rows of a tensor that lie in one file.
struct Piece {
  std::string file;
  std::int64_t rows = 0;  ///< along the first dimension; 1 for a scalar
};
struct TensorRecord {
  StoredTensor facts;
  std::vector<Piece> pieces;  ///< in the order of their rows
};
struct Manifest {
  std::uint64_t number = 0;
  int ranks = 1;
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;

  [[nodiscard]] const FileRecord* find(std::string_view file) const noexcept;
};

[[nodiscard]] std::string to_text(const Manifest& manifest);
/// Total. @throws Error corrupt, naming `file`.
[[nodiscard]] Manifest parse_manifest(std::string_view text, std::string_view file);

/// What one rank has written, or why it couldn't.
struct Report {
  std::optional<Error> failure;
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;  ///< each with one piece
};
[[nodiscard]] std::string to_text(const Report& report);
/// @throws Error corrupt.
[[nodiscard]] Report parse_report(std::string_view text);

/// Text of an error for the other ranks, with the first rank to blame; empty: none.
[[nodiscard]] std::string to_text(const std::optional<Error>& failure);
[[nodiscard]] std::optional<Error> parse_failure(std::string_view text);

/// {"name": value, …}. @throws Error invalid_argument: a value that is no JSON text.
[[nodiscard]] std::string join_texts(const StateTexts& texts);
/// @throws Error corrupt, naming `file`.
[[nodiscard]] StateTexts split_texts(std::string_view text, std::string_view file);

}  // namespace acc::runtime::checkpoint
