#include "launcher/configure/config_text.hpp"

#include "common/text.hpp"
#include "launcher/yaml_scalar.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace acc::configure {

using launcher::Entry;
using launcher::List;
using launcher::Map;
using launcher::Value;

namespace {

Map sorted(Map map) {
  std::ranges::sort(map, {}, &Entry::key);
  return map;
}

bool has_control(std::string_view text) {
  return std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

/// 2001-01-31 is a date in YAML 1.1, `=` and `<<` have meanings of their own.
bool is_special_word(std::string_view text) {
  const auto is_digit = [&](std::size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  const bool is_date = is_digit(0) && is_digit(1) && is_digit(2) && is_digit(3) &&
                       text.size() > 5 && text[4] == '-' && is_digit(5);
  return is_date || text == "=" || text == "<<" || text == "---" || text == "...";
}

bool needs_quotes(std::string_view text) {
  constexpr std::string_view kIndicators = "-?:,[]{}#&*!|>'\"%@`";
  if (text.empty() || text.front() == ' ' || text.back() == ' ') return true;
  if (kIndicators.find(text.front()) != std::string_view::npos || text.back() == ':') return true;
  if (text.find(": ") != std::string_view::npos || text.find(" #") != std::string_view::npos)
    return true;
  return is_special_word(text) || launcher::resolve_yaml_scalar(text).text() == nullptr;
}

std::string in_double_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      constexpr std::string_view kHex = "0123456789abcdef";
      out += "\\x";
      out += kHex[byte >> 4U];
      out += kHex[byte & 15U];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string word(std::string_view text) {
  if (has_control(text)) return in_double_quotes(text);
  if (!needs_quotes(text)) return std::string{text};
  std::string out = "'";
  for (const char c : text) out.append(c == '\'' ? 2 : 1, c);
  return out + "'";
}

std::string number(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value < 0 ? "-.inf" : ".inf";
  auto text = launcher::python_float(value);
  // 1e-05 has no dot, and without one YAML 1.1 reads text.
  if (text.find('.') == std::string::npos) text.insert(text.find('e'), ".0");
  return text;
}

std::string scalar(const Value& value) {
  if (value.is_none()) return "null";
  if (value.is_bool()) return truthy(value) ? "true" : "false";
  if (const auto* real = std::get_if<double>(&value.data)) return number(*real);
  if (value.text() != nullptr) return word(*value.text());
  return python_text(value);
}

/// A nested block, behind `key:` or `-`: "" for what stands on the same line.
class YamlWriter {
 public:
  std::string text(const Map& map) {
    if (map.empty()) return "{}\n";
    write_map(map, 0);
    return std::move(out_);
  }

 private:
  /// The first line continues what is written already.
  void write_map(const Map& map, std::size_t indent) {
    bool is_first = true;
    for (const auto& [key, value] : sorted(map)) {
      if (!is_first) out_.append(indent, ' ');
      is_first = false;
      out_ += word(key) + ":";
      write_behind_key(value, indent);
    }
  }

  void write_behind_key(const Value& value, std::size_t indent) {
    if (const auto* map = value.map(); map != nullptr && !map->empty()) {
      out_ += "\n" + std::string(indent + 2, ' ');
      return write_map(*map, indent + 2);
    }
    if (const auto* list = value.list(); list != nullptr && !list->empty()) {
      out_ += "\n" + std::string(indent, ' ');
      return write_list(*list, indent);
    }
    write_leaf(value, " ");
  }

  void write_list(const List& list, std::size_t indent) {
    bool is_first = true;
    for (const auto& item : list) {
      if (!is_first) out_.append(indent, ' ');
      is_first = false;
      out_ += "-";
      const bool nests_map = item.map() != nullptr && !item.map()->empty();
      const bool nests_list = item.list() != nullptr && !item.list()->empty();
      if (nests_map || nests_list) out_ += " ";
      if (nests_map) write_map(*item.map(), indent + 2);
      if (nests_list) write_list(*item.list(), indent + 2);
      if (!nests_map && !nests_list) write_leaf(item, " ");
    }
  }

  void write_leaf(const Value& value, std::string_view before) {
    out_ += before;
    out_ += value.map() != nullptr ? "{}" : value.list() != nullptr ? "[]" : scalar(value);
    out_ += "\n";
  }

  std::string out_;
};

nlohmann::json json_of(const Value& value) {
  if (const auto* map = value.map()) {
    auto object = nlohmann::json::object();
    for (const auto& [key, inner] : *map) object[key] = json_of(inner);
    return object;
  }
  if (const auto* list = value.list()) {
    auto array = nlohmann::json::array();
    for (const auto& inner : *list) array.push_back(json_of(inner));
    return array;
  }
  if (value.is_none()) return nullptr;
  if (value.is_bool()) return truthy(value);
  if (value.integer() != nullptr) return *value.integer();
  if (const auto* real = std::get_if<double>(&value.data)) return *real;
  return *value.text();
}

}  // namespace

std::string yaml_text(const Map& map) { return YamlWriter{}.text(map); }

std::string json_text(const Map& map) {
  constexpr int kIndent = 2;
  return json_of(Value{map}).dump(kIndent, ' ', true, nlohmann::json::error_handler_t::replace) +
         "\n";
}

std::string config_text_for(const std::string& path, const Map& map) {
  return path.ends_with(".json") ? json_text(map) : yaml_text(map);
}

}  // namespace acc::configure
