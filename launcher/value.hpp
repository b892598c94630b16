#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace acc::launcher {

struct Value;
struct Entry;
using List = std::vector<Value>;
using Map = std::vector<Entry>;  ///< in file order; keys are unique (the last one wins)

/// A value as Python would hold it: the original hands whatever its YAML parser made to str(), so
/// type and spelling both reach the workers (`1.0` stays "1.0", an unquoted `yes` becomes "True").
struct Value {
  std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Map> data;
  std::uint32_t line = 0;  ///< of the config file, from 1; 0: not from a file
  std::string spelled;     ///< as written in the file, for messages; empty for lists and maps
  bool is_json = false;    ///< written in JSON, where only true and false are booleans

  Value();  // all defined where Entry is complete
  Value(bool v);
  Value(std::int64_t v);
  Value(double v);
  Value(std::string v);
  Value(const char* v);
  Value(List v);
  Value(Map v);

  [[nodiscard]] bool is_none() const { return std::holds_alternative<std::monostate>(data); }
  [[nodiscard]] bool is_bool() const { return std::holds_alternative<bool>(data); }
  [[nodiscard]] const std::int64_t* integer() const { return std::get_if<std::int64_t>(&data); }
  [[nodiscard]] const std::string* text() const { return std::get_if<std::string>(&data); }
  [[nodiscard]] const List* list() const { return std::get_if<List>(&data); }
  [[nodiscard]] const Map* map() const { return std::get_if<Map>(&data); }
};

struct Entry {
  std::string key;
  Value value;
};

inline Value::Value() = default;
inline Value::Value(bool v) : data{v} {}
inline Value::Value(std::int64_t v) : data{v} {}
inline Value::Value(double v) : data{v} {}
inline Value::Value(std::string v) : data{std::move(v)} {}
inline Value::Value(const char* v) : data{std::string{v}} {}
inline Value::Value(List v) : data{std::move(v)} {}
inline Value::Value(Map v) : data{std::move(v)} {}

/// What Python's str() makes of it: True, None, 1.0, 1e-05, [False, 'x'].
[[nodiscard]] std::string python_text(const Value& value);
/// Python's bool(): empty, zero, None and False are false.
[[nodiscard]] bool truthy(const Value& value);
/// As repr(float): the shortest text that reads back as the same number.
[[nodiscard]] std::string python_float(double number);
/// "unquoted no is a boolean in YAML", "false is a boolean in JSON". @param value  from a file
[[nodiscard]] std::string as_read(const Value& value);
/// "text", "a whole number", "a boolean" …, for messages.
[[nodiscard]] std::string_view kind_name(const Value& value);

}  // namespace acc::launcher
