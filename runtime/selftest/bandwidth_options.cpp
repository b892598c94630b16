#include "runtime/selftest/bandwidth.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>

namespace acc::selftest {

using namespace runtime;

namespace {

std::optional<std::size_t> number(const std::string& text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "8", "64K", "1M", "2G": binary, as nccl-tests reads them.
std::optional<std::size_t> size_of_text(std::string text) {
  std::size_t unit = 1;
  constexpr std::string_view kUnits = "KMG";
  if (!text.empty()) {
    const auto found = kUnits.find(static_cast<char>(text.back() & ~0x20));
    if (found != std::string_view::npos && text.back() > '9') {
      unit = std::size_t{1} << (10 * (found + 1));
      text.pop_back();
    }
  }
  const auto value = number(text);
  if (!value || *value > SIZE_MAX / unit) return std::nullopt;
  return *value * unit;
}

template <class T, std::size_t N>
bool read_named(const std::string& text, const std::array<std::pair<std::string_view, T>, N>& names,
                std::vector<T>& into) {
  into.clear();
  for (const auto& [name, value] : names)
    if (text == "all" || text == name) into.push_back(value);
  std::ranges::sort(into);
  into.erase(std::unique(into.begin(), into.end()), into.end());
  return !into.empty();
}

constexpr std::array<std::pair<std::string_view, ReduceOp>, 5> kReductionNames{
    {{"sum", ReduceOp::sum},
     {"prod", ReduceOp::prod},
     {"min", ReduceOp::min},
     {"max", ReduceOp::max},
     {"avg", ReduceOp::avg}}};
// nccl-tests' names and ours.
constexpr std::array<std::pair<std::string_view, DType>, 20> kTypeNames{
    {{"int8", DType::i8},       {"uint8", DType::u8},  {"int32", DType::i32},
     {"uint32", DType::u32},    {"int64", DType::i64}, {"uint64", DType::u64},
     {"half", DType::f16},      {"float", DType::f32}, {"double", DType::f64},
     {"bfloat16", DType::bf16}, {"i8", DType::i8},     {"u8", DType::u8},
     {"i32", DType::i32},       {"u32", DType::u32},   {"i64", DType::i64},
     {"u64", DType::u64},       {"f16", DType::f16},   {"f32", DType::f32},
     {"f64", DType::f64},       {"bf16", DType::bf16}}};
constexpr std::array<std::string_view, 8> kOperations{"all_reduce", "reduce",         "broadcast",
                                                      "all_gather", "reduce_scatter", "all_to_all",
                                                      "gather",     "scatter"};

template <class T>
bool put(std::optional<std::size_t> value, T& into) {
  if (!value) return false;
  into = static_cast<T>(*value);
  return true;
}

bool read_operations(const std::string& text, std::vector<std::string>& into) {
  std::istringstream words{text};
  for (std::string word; std::getline(words, word, ',');) {
    if (std::ranges::find(kOperations, word) == kOperations.end()) return false;
    into.push_back(word);
  }
  return !into.empty();
}

bool read_one(char letter, const std::string& value, BandwidthOptions& o) {
  switch (letter) {
    case 'b':
      return put(size_of_text(value), o.min_bytes) && o.min_bytes > 0;
    case 'e':
      return put(size_of_text(value), o.max_bytes);
    case 'i':
      return put(size_of_text(value), o.step_bytes) && o.step_bytes > 0;
    case 'f':
      return put(number(value), o.factor) && o.factor > 1;
    case 'n':
      return put(number(value), o.iterations) && o.iterations > 0;
    case 'w':
      return put(number(value), o.warm_up);
    case 'm':
      return put(number(value), o.aggregated) && o.aggregated > 0;
    case 'c':
      return put(number(value), o.checked);
    case 'a':
      return put(number(value), o.average) && o.average <= 3;
    case 'u':
      return put(number(value), o.misalign);
    case 'R':
      return put(number(value), o.registered);
    case 'o':
      return read_named(value, kReductionNames, o.reductions);
    case 'd':
      return read_named(value, kTypeNames, o.types);
    case 'r':
      return value == "all" ? (o.root = -1, true) : put(number(value), o.root);
    case 'T': {
      std::size_t seconds = 0;
      if (!put(number(value), seconds)) return false;
      o.timeout = std::chrono::seconds{seconds};
      return true;
    }
    default:
      return false;
  }
}

/// What a value of this option may be, in words.
std::string expected(const std::string& option) {
  const auto list = [](const auto& names, const auto& name_of) {
    std::string text;
    for (const auto& one : names) text += (text.empty() ? "" : ", ") + std::string{name_of(one)};
    return text;
  };
  const auto first = [](const auto& pair) { return pair.first; };
  if (option == "--only")
    return "one or more of " + list(kOperations, [](std::string_view name) { return name; }) +
           ", comma-separated";
  switch (option.size() == 2 ? option[1] : ' ') {
    case 'b':
    case 'e':
    case 'i':
      return "a size from 1 byte on: 8, 64K, 1M or 2G";
    case 'f':
      return "a whole number from 2 on";
    case 'n':
    case 'm':
      return "a whole number from 1 on";
    case 'a':
      return "0, 1, 2 or 3";
    case 'o':
      return "one of " + list(kReductionNames, first) + ", all";
    case 'd':
      return "one of " + list(kTypeNames, first) + ", all";
    case 'r':
      return "a rank or all";
    default:
      return "a whole number from 0 on";
  }
}

}  // namespace

std::string read_bandwidth_options(const std::vector<std::string>& words,
                                   BandwidthOptions& options) {
  for (std::size_t at = 0; at < words.size(); ++at) {
    const auto& word = words[at];
    constexpr std::string_view kOthers[] = {"--silent", "--only_options", "--marked", "--network"};
    if (std::ranges::find(kOthers, word) != std::end(kOthers)) continue;
    if (word == "--bandwidth") {
      options.wanted = true;
      continue;
    }
    if (at + 1 == words.size()) return word + " needs a value";
    const auto& value = words[++at];
    const bool good = word == "--only"   ? read_operations(value, options.operations)
                      : word.size() == 2 ? read_one(word[1], value, options)
                                         : false;
    if (!good) return word + " '" + value + "' is not " + expected(word);
  }
  if (options.operations.empty())
    options.operations = {"all_reduce", "all_gather", "reduce_scatter", "broadcast"};
  if (options.max_bytes < options.min_bytes)
    return "-e is smaller than -b: " + std::to_string(options.max_bytes) + " bytes against " +
           std::to_string(options.min_bytes);
  return {};
}

}  // namespace acc::selftest
