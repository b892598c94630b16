#include "runtime/net/fields.hpp"

#include <catch2/catch.hpp>

using namespace acc::runtime;

TEST_CASE("fields of any bytes come back as they were", "[net]") {
  const std::vector<std::string> fields{"", "a", "1:2", std::string("\0\n", 2),
                                        std::string(300, 'x')};
  CHECK(unpack(pack(fields)) == fields);
  CHECK(unpack("") == std::vector<std::string>{});
}

TEST_CASE("what isn't fields is refused", "[net]") {
  for (const auto* text :
       {"x", "3", "3:ab", ":ab", "-1:a", "99999999999999999999:a", "1:ab", "1 :a"})
    CHECK_FALSE(unpack(text));
}
