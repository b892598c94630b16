#include "common/json_bounds.hpp"

#include <catch2/catch.hpp>

#include <string>

namespace acc {

TEST_CASE("brackets within brackets count, those in strings don't", "[common][json]") {
  CHECK_FALSE(is_json_beyond("[[[]]]", 3));
  CHECK(is_json_beyond("[[[]]]", 2));
  CHECK(is_json_beyond(R"({"a": [{"b": []}]})", 3));
  CHECK_FALSE(is_json_beyond(R"(["[[[[\"[[[", []])", 2));
  CHECK_FALSE(is_json_beyond("[][][][]", 1));
  CHECK(is_json_beyond(std::string(100'000, '['), 64));
  CHECK_FALSE(is_json_beyond("\"\\", 1));
}

TEST_CASE("values are counted at any depth", "[common][json]") {
  CHECK_FALSE(is_json_beyond("[1,2,3]", 1, 4));
  CHECK(is_json_beyond("[1,2,3,4]", 1, 4));
  CHECK(is_json_beyond("[[],[],[]]", 2, 4));
}

}  // namespace acc
