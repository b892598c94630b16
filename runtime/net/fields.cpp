#include "runtime/net/fields.hpp"

#include "common/text.hpp"

namespace acc::runtime {

std::string pack(std::span<const std::string> fields) {
  std::string packed;
  for (const auto& field : fields)
    packed.append(std::to_string(field.size())).append(1, ':').append(field);
  return packed;
}

std::string pack(std::initializer_list<std::string> fields) {
  return pack(std::span<const std::string>{fields.begin(), fields.size()});
}

std::optional<std::vector<std::string>> unpack(std::string_view packed) {
  std::vector<std::string> fields;
  while (!packed.empty()) {
    const auto colon = packed.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    const auto size = parse_number<std::size_t>(packed.substr(0, colon));
    packed.remove_prefix(colon + 1);
    if (!size || *size > packed.size()) return std::nullopt;
    fields.emplace_back(packed.substr(0, *size));
    packed.remove_prefix(*size);
  }
  return fields;
}

}  // namespace acc::runtime
