#pragma once

#include "runtime/weights/source.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The memory that a model takes, by the definitions of Accelerate's estimate-memory (pure).
namespace acc::weights {

/// Of a model loaded in one type. Fractions of a byte are kept, as the original's division keeps
/// them.
struct EstimateRow {
  std::string dtype;  ///< "float32"
  double largest_layer = 0;
  double total = 0;
  /// The largest of a training step's stages with Adam and a batch of one; nothing: no training in
  /// this type.
  std::optional<double> adam;
};

struct Estimate {
  std::uint64_t parameters = 0;     ///< elements of all tensors
  std::uint64_t float32_bytes = 0;  ///< of the model loaded in float32
  std::string largest_layer;        ///< its name; empty: there are no tensors
  bool is_by_block = false;         ///< a layer is a block that transformers doesn't split
  std::uint64_t integer_bytes = 0;  ///< counted as they are stored
  std::uint64_t stored_bytes = 0;   ///< in the files
  std::vector<EstimateRow> rows;
};

/// The types that can be asked for, in the order of the table.
[[nodiscard]] std::span<const std::string_view> estimate_dtypes();
[[nodiscard]] std::span<const std::string_view> default_dtypes();

/// @param by_block  elements of the outermost numbered list ("model.layers.0") count as one layer
/// @param dtypes  each one of estimate_dtypes()
[[nodiscard]] Estimate estimate(std::span<const Tensor> tensors, bool by_block,
                                std::span<const std::string> dtypes);

/// "84.95 MB": of 1024 each, as the original's.
[[nodiscard]] std::string bytes_text(double bytes);
/// The original's table.
[[nodiscard]] std::string table_of(const Estimate& estimate, const std::string& title);

}  // namespace acc::weights
