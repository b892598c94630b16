#include "runtime/weights/estimate.hpp"

#include "runtime/checkpoint/safetensors_format.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

namespace acc::weights {
namespace {

constexpr std::array<std::string_view, 5> kDtypes{"float32", "float16", "bfloat16", "int8", "int4"};
constexpr std::array<std::string_view, 4> kDefault{"float32", "float16", "int8", "int4"};

bool is_integer(std::string_view type) {
  return type == "BOOL" || type.starts_with('I') || type.starts_with('U');
}

std::uint64_t elements_of(const Tensor& tensor) {
  const auto bits = runtime::safetensors::bits_of(tensor.type);
  return bits ? tensor.bytes * 8 / *bits : 0;
}

/// In a model that was made in float32: weights take four bytes, whatever type they are stored in;
/// whole numbers, which are no weights, keep theirs.
std::uint64_t float32_bytes_of(const Tensor& tensor) {
  return is_integer(tensor.type) ? tensor.bytes : elements_of(tensor) * 4;
}

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// "model.layers.0.mlp.up.weight" → "model.layers.0"; empty: in no numbered list, or a module of a
/// list by itself.
std::string block_of(std::string_view name) {
  for (std::size_t at = 0; at < name.size();) {
    const auto dot = std::min(name.find('.', at), name.size());
    if (at > 0 && dot < name.size() && is_number(name.substr(at, dot - at)))
      return std::string{name.substr(0, dot)};
    at = dot + 1;
  }
  return {};
}

/// The module that holds a tensor: its name up to the last dot; a tensor of the model itself stands
/// alone.
std::string module_of(const std::string& name) {
  const auto dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(0, dot);
}

/// Is it the beginning of another module's name, and so no layer but a group of layers?
bool has_children(const std::string& module, const std::set<std::string>& modules) {
  const auto after = modules.upper_bound(module + ".");
  return after != modules.end() && after->starts_with(module + ".");
}

double divisor_of(std::string_view dtype) {
  if (dtype == "float32") return 1;
  if (dtype == "int8") return 4;
  return dtype == "int4" ? 8 : 2;
}

/// Stages of a step: float32: model, gradients and twice the optimizer's state are there together,
/// four times the model. Half precision keeps float32 weights beside: the optimizer's stage, twice
/// the float32 model, is the largest.
std::optional<double> adam_bytes(std::string_view dtype, double float32_bytes) {
  if (dtype == "float32") return 4 * float32_bytes;
  if (dtype == "float16" || dtype == "bfloat16") return 2 * float32_bytes;
  return std::nullopt;
}

/// Columns of a terminal, not bytes.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string repeated(std::string_view text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

std::string centred(const std::string& text, std::size_t width) {
  const auto left = width > width_of(text) ? width - width_of(text) : 0;
  return std::string(left / 2, ' ') + text + std::string(left - left / 2, ' ');
}

using Row = std::vector<std::string>;

std::string line_of(std::string_view left, std::string_view middle, std::string_view right,
                    std::span<const std::size_t> widths) {
  std::string line{left};
  for (std::size_t i = 0; i < widths.size(); ++i)
    line += (i > 0 ? std::string{middle} : "") + repeated("─", widths[i]);
  return line + std::string{right} + "\n";
}

std::string cells_of(const Row& row, std::span<const std::size_t> widths) {
  std::string line = "│";
  for (std::size_t i = 0; i < row.size(); ++i) line += centred(row[i], widths[i]) + "│";
  return line + "\n";
}

}  // namespace

std::span<const std::string_view> estimate_dtypes() { return kDtypes; }
std::span<const std::string_view> default_dtypes() { return kDefault; }

Estimate estimate(std::span<const Tensor> tensors, bool by_block,
                  std::span<const std::string> dtypes) {
  Estimate made;
  made.is_by_block = by_block;
  std::map<std::string, std::uint64_t> layers;
  std::set<std::string> modules;
  for (const auto& tensor : tensors) modules.insert(module_of(tensor.name));
  for (const auto& tensor : tensors) {
    const auto bytes = float32_bytes_of(tensor);
    made.parameters += elements_of(tensor);
    made.float32_bytes += bytes;
    made.stored_bytes += tensor.bytes;
    if (is_integer(tensor.type)) made.integer_bytes += tensor.bytes;
    auto layer = module_of(tensor.name);
    if (const auto block = by_block ? block_of(tensor.name) : ""; !block.empty()) {
      layer = block;
    } else if (has_children(layer, modules)) {
      layer = tensor.name;  // beside the layers of a group
    }
    layers[layer] += bytes;
  }
  std::uint64_t largest = 0;
  for (const auto& [name, bytes] : layers) {
    if (bytes <= largest) continue;
    largest = bytes;
    made.largest_layer = name;
  }
  for (const auto& dtype : dtypes) {
    const auto by = divisor_of(dtype);
    made.rows.push_back({dtype, static_cast<double>(largest) / by,
                         static_cast<double>(made.float32_bytes) / by,
                         adam_bytes(dtype, static_cast<double>(made.float32_bytes))});
  }
  return made;
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 6> kUnits{"bytes", "KB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  char text[48];
  std::snprintf(text, sizeof text, "%.2f", bytes);
  std::string number = text;
  while (number.ends_with('0') && number[number.size() - 2] != '.') number.pop_back();
  if (unit == 0 && number.ends_with(".0")) number.resize(number.size() - 2);
  return number + " " + kUnits[unit];
}

std::string table_of(const Estimate& estimate, const std::string& title) {
  std::vector<Row> rows{{"dtype", "Largest Layer", "Total Size", "Training using Adam"}};
  for (const auto& row : estimate.rows)
    rows.push_back({row.dtype, bytes_text(row.largest_layer), bytes_text(row.total),
                    row.adam ? bytes_text(*row.adam) : "N/A"});
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::size_t inner = widths.size() - 1;
  for (const auto width : widths) inner += width;
  if (width_of(title) > inner) {  // the last column takes what the title needs
    widths.back() += width_of(title) - inner;
    inner = width_of(title);
  }
  auto text = line_of("┌", "─", "┐", widths) + "│" + centred(title, inner) + "│\n" +
              line_of("├", "┬", "┤", widths) + cells_of(rows.front(), widths) +
              line_of("├", "┼", "┤", widths);
  for (std::size_t i = 1; i < rows.size(); ++i) text += cells_of(rows[i], widths);
  return text + line_of("└", "┴", "┘", widths);
}

}  // namespace acc::weights
