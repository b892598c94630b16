#include "common/text.hpp"
#include "runtime/checkpoint/safetensors_format.hpp"

#include <nlohmann/json.hpp>

#include <acc/error.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <unordered_set>

namespace acc::runtime::safetensors {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& what) {
  throw Error{ErrorCode::invalid_argument, "safetensors: " + what};
}

}  // namespace

std::optional<std::string> overflow(const ConstTensorView& view) {
  std::uint64_t bytes = size_of(view.dtype);
  for (const auto extent : view.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes))
      return " has the shape " + to_string(view.shape) + ": more bytes than can be counted";
  }
  return std::nullopt;
}

bool is_shard_of(std::string_view name, std::string_view stem) {
  constexpr std::string_view kPattern = "-00000-of-00000.safetensors";  // 0: any digit
  if (!name.starts_with(stem)) return false;
  name.remove_prefix(stem.size());
  return name.size() == kPattern.size() &&
         std::ranges::equal(name, kPattern, [](char c, char pattern) {
           return pattern == '0' ? c >= '0' && c <= '9' : c == pattern;
         });
}

namespace {

void check(const NamedTensor& tensor) {
  const auto who = "tensor '" + printable(tensor.name) + "'";
  if (tensor.name == "__metadata__") refuse(who + " has the name that the format keeps for itself");
  if (std::ranges::any_of(tensor.view.shape, [](auto extent) { return extent < 0; })) {
    refuse(who + " has the shape " + to_string(tensor.view.shape));
  }
  if (const auto problem = overflow(tensor.view)) refuse(who + *problem);
  if (tensor.view.device.kind != Device::Kind::cpu) {
    refuse(who + " is on " + to_string(tensor.view.device) + ", not in host memory");
  }
  if (tensor.view.data == nullptr && tensor.view.bytes() > 0) refuse(who + " has no memory");
}

/// Where a type stands in the package's order: the higher, the larger its elements.
int order_of(DType dtype) noexcept {
  constexpr std::array kRising{DType::u8,  DType::i8,  DType::f16, DType::bf16, DType::i32,
                               DType::u32, DType::f32, DType::f64, DType::i64,  DType::u64};
  return static_cast<int>(std::ranges::find(kRising, dtype) - kRising.begin());
}

/// JSON text, which can't express strings that aren't UTF-8.
template <class Json>
std::string text_of(const Json& value) {
  try {
    return value.dump();
  } catch (const json::type_error&) {
    refuse("a name or the metadata isn't UTF-8");
  }
}

}  // namespace

Layout lay_out(std::span<const NamedTensor> tensors, const TensorMetadata& metadata) {
  Layout layout;
  std::unordered_set<std::string_view> names;
  for (const auto& tensor : tensors) {
    check(tensor);
    if (!names.insert(tensor.name).second) {
      refuse("tensor '" + printable(tensor.name) + "' is there twice");
    }
    layout.order.push_back(&tensor);
  }
  std::ranges::sort(layout.order, [](const auto* a, const auto* b) {
    const auto left = order_of(a->view.dtype);
    const auto right = order_of(b->view.dtype);
    return left != right ? left > right : a->name < b->name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  // Entries are appended as text: to look for each key among those before takes quadratic time.
  auto text = text_of(header);
  text.pop_back();
  std::uint64_t at = 0;
  for (const auto* tensor : layout.order) {
    const auto end = at + tensor->view.bytes();
    const nlohmann::ordered_json facts{{"dtype", type_of(tensor->view.dtype)},
                                       {"shape", tensor->view.shape},
                                       {"data_offsets", {at, end}}};
    if (text.size() > 1) text += ',';
    text += text_of(json(tensor->name)) + ':' + facts.dump();
    at = end;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeader) {
    refuse("a header of " + std::to_string(text.size()) + " bytes, more than " +
           std::to_string(kMaxHeader));
  }
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    layout.head += static_cast<char>(text.size() >> (8 * i) & 0xff);
  }
  layout.head += text;
  layout.bytes = layout.head.size() + at;
  return layout;
}

std::vector<std::vector<NamedTensor>> split_by_size(std::span<const NamedTensor> tensors,
                                                    std::uint64_t most) {
  std::vector<std::vector<NamedTensor>> groups;
  std::vector<NamedTensor> open;
  std::uint64_t bytes = 0;
  for (const auto& tensor : tensors) {
    const auto more = tensor.view.bytes();
    if (more > most) {
      groups.push_back({tensor});
      continue;
    }
    if (bytes + more > most) {
      groups.push_back(std::exchange(open, {}));
      bytes = 0;
    }
    open.push_back(tensor);
    bytes += more;
  }
  if (!open.empty() || groups.empty()) groups.push_back(std::move(open));
  return groups;
}

std::string file_name(std::string_view stem, std::size_t number, std::size_t of) {
  std::string name{stem};
  if (of > 1) {
    std::array<char, 48> suffix{};
    std::snprintf(suffix.data(), suffix.size(), "-%05zu-of-%05zu", number + 1, of);
    name += suffix.data();
  }
  return name + ".safetensors";
}

std::string index_text(std::span<const std::vector<NamedTensor>> groups, std::string_view stem) {
  std::uint64_t total = 0;
  auto where = json::object();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto file = file_name(stem, i, groups.size());
    for (const auto& tensor : groups[i]) {
      where[tensor.name] = file;
      total += tensor.view.bytes();
    }
  }
  const json index{{"metadata", {{"total_size", total}}}, {"weight_map", std::move(where)}};
  return index.dump(2) + "\n";
}

}  // namespace acc::runtime::safetensors
