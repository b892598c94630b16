#include "common/text.hpp"
#include "runtime/checkpoint/safetensors_format.hpp"

#include <nlohmann/json.hpp>

#include <acc/error.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <unordered_set>
#include <utility>

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
  const auto who = "tensor " + in_quotes(tensor.name);
  if (std::ranges::any_of(tensor.view.shape, [](auto extent) { return extent < 0; })) {
    refuse(who + " has the shape " + to_string(tensor.view.shape));
  }
  if (const auto problem = overflow(tensor.view)) refuse(who + *problem);
  if (tensor.view.device.kind != Device::Kind::cpu) {
    refuse(who + " is on " + to_string(tensor.view.device) + ", not in host memory");
  }
  if (tensor.view.data == nullptr && tensor.view.bytes() > 0) refuse(who + " has no memory");
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

Head head_of(std::span<const Described> tensors, const TensorMetadata& metadata) {
  Head head;
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto name = tensors[i].name;
    if (name == "__metadata__")
      refuse("tensor " + in_quotes(name) + " has the name that the format keeps for itself");
    if (!names.insert(name).second) refuse("tensor " + in_quotes(name) + " is there twice");
    head.order.push_back(i);
  }
  std::ranges::sort(head.order, [&](std::size_t a, std::size_t b) {
    const auto left = order_of(tensors[a].type);
    const auto right = order_of(tensors[b].type);
    return left != right ? left > right : tensors[a].name < tensors[b].name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  // Entries are appended as text: to look for each key among those before takes quadratic time.
  auto text = text_of(header);
  text.pop_back();
  std::uint64_t at = 0;
  for (const auto index : head.order) {
    const auto& tensor = tensors[index];
    const auto end = at + tensor.bytes;
    const nlohmann::ordered_json facts{
        {"dtype", tensor.type}, {"shape", *tensor.shape}, {"data_offsets", {at, end}}};
    if (text.size() > 1) text += ',';
    text += text_of(json(tensor.name)) + ':' + facts.dump();
    at = end;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeader) {
    refuse("a header of " + std::to_string(text.size()) + " bytes, more than " +
           std::to_string(kMaxHeader));
  }
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    head.text += static_cast<char>(text.size() >> (8 * i) & 0xff);
  }
  head.text += text;
  head.bytes = head.text.size() + at;
  return head;
}

Layout lay_out(std::span<const NamedTensor> tensors, const TensorMetadata& metadata) {
  std::vector<Described> described;
  for (const auto& tensor : tensors) {
    check(tensor);
    described.push_back(
        {tensor.name, type_of(tensor.view.dtype), &tensor.view.shape, tensor.view.bytes()});
  }
  auto head = head_of(described, metadata);
  Layout layout{std::move(head.text), {}, head.bytes};
  for (const auto index : head.order) layout.order.push_back(&tensors[index]);
  return layout;
}

std::vector<std::vector<std::size_t>> group_by_size(std::span<const std::uint64_t> bytes,
                                                    std::uint64_t most) {
  std::vector<std::vector<std::size_t>> groups;
  std::vector<std::size_t> open;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > most) {
      groups.push_back({i});
      continue;
    }
    if (bytes[i] > most - sum) {
      groups.push_back(std::exchange(open, {}));
      sum = 0;
    }
    open.push_back(i);
    sum += bytes[i];
  }
  if (!open.empty() || groups.empty()) groups.push_back(std::move(open));
  return groups;
}

std::vector<std::vector<NamedTensor>> split_by_size(std::span<const NamedTensor> tensors,
                                                    std::uint64_t most) {
  std::vector<std::uint64_t> bytes;
  for (const auto& tensor : tensors) bytes.push_back(tensor.view.bytes());
  std::vector<std::vector<NamedTensor>> groups;
  for (const auto& group : group_by_size(bytes, most)) {
    groups.emplace_back();
    for (const auto index : group) groups.back().push_back(tensors[index]);
  }
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

std::string index_text(const std::map<std::string, std::string>& file_of_tensor,
                       std::uint64_t tensor_bytes) {
  const json index{{"metadata", {{"total_size", tensor_bytes}}}, {"weight_map", file_of_tensor}};
  return index.dump(2) + "\n";
}

std::string index_text(std::span<const std::vector<NamedTensor>> groups, std::string_view stem) {
  std::uint64_t total = 0;
  std::map<std::string, std::string> where;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto file = file_name(stem, i, groups.size());
    for (const auto& tensor : groups[i]) {
      where[tensor.name] = file;
      total += tensor.view.bytes();
    }
  }
  return index_text(where, total);
}

}  // namespace acc::runtime::safetensors
