#include "common/json_bytes.hpp"

#include <catch2/catch.hpp>

namespace acc {

TEST_CASE("what is UTF-8 is told by Unicode's table 3-7", "[common][json]") {
  for (const auto* text : {"", "plain", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"})
    CHECK(is_utf8(text));
  for (const auto* text : {"\xE9", "\x80", "\xC0\xAF", "\xC3", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
                           "\xE2\x82", "a\xFFz"})
    CHECK_FALSE(is_utf8(text));
}

TEST_CASE("an argument that isn't UTF-8 reached the job as U+FFFD", "[common][json]") {
  std::string all;
  for (int c = 1; c < 256; ++c) all += static_cast<char>(c);
  for (const std::string& bytes : {std::string{"plain"}, std::string{"caf\xE9"}, std::string{"\x01mark"}, std::string{"\xC3\xA9"}, all}) {
    CHECK(is_utf8(json_text_of(bytes)));
    CHECK(bytes_of(json_text_of(bytes)) == bytes);
  }
  CHECK(json_text_of("caf\xC3\xA9") == "caf\xC3\xA9");
}

}  // namespace acc
