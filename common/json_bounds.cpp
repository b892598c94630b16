#include "common/json_bounds.hpp"

namespace acc {

bool is_json_beyond(std::string_view text, int deepest, std::size_t most) {
  int depth = 0;
  std::size_t values = 1;
  bool in_string = false;  // one that never ends doesn't matter here
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > deepest || ++values > most) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ',' && ++values > most) {
      return true;
    }
  }
  return false;
}

}  // namespace acc
