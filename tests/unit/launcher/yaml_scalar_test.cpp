#include "launcher/yaml_scalar.hpp"

#include <catch2/catch.hpp>

using namespace acc::launcher;

static std::string kind_and_text(std::string_view scalar) {
  const auto value = resolve_yaml_scalar(scalar);
  return std::string{kind_name(value)} + " " + python_text(value);
}

TEST_CASE("unquoted scalars have the type that YAML 1.1 gives them", "[launcher][yaml]") {
  const std::pair<std::string_view, std::string_view> rows[] = {
      {"yes", "a boolean True"},
      {"No", "a boolean False"},
      {"OFF", "a boolean False"},
      {"on", "a boolean True"},
      {"nO", "text nO"},
      {"y", "text y"},
      {"~", "null None"},
      {"NULL", "null None"},
      {"", "null None"},
      {"1", "a whole number 1"},
      {"+12", "a whole number 12"},
      {"-0", "a whole number 0"},
      {"1_000", "a whole number 1000"},
      {"017", "a whole number 15"},
      {"08", "text 08"},
      {"0o17", "text 0o17"},
      {"0x1F", "a whole number 31"},
      {"0b101", "a whole number 5"},
      {"1:30", "a whole number 90"},
      {"1:75", "text 1:75"},
      {"190:20:30", "a whole number 685230"},
      {"1:30.5", "a number 90.5"},
      {"1e8", "text 1e8"},
      {"1.0e8", "text 1.0e8"},
      {"1.0e+8", "a number 100000000.0"},
      {"1.5e-3", "a number 0.0015"},
      {"0.1", "a number 0.1"},
      {".5", "a number 0.5"},
      {"1.", "a number 1.0"},
      {"-.inf", "a number -inf"},
      {".NaN", "a number nan"},
      {"0,1", "text 0,1"},
      {"1.2.3", "text 1.2.3"},
      {"10.1.2.3", "text 10.1.2.3"},
      {"99999999999999999999", "text 99999999999999999999"},
      {"_1", "text _1"},
      {"-", "text -"},
      {".", "text ."},
      {"::1", "text ::1"},
  };
  for (const auto& [scalar, expected] : rows) {
    INFO(scalar);
    CHECK(kind_and_text(scalar) == expected);
  }
}
