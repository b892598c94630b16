#include "common/plain_text.hpp"

#include <catch2/catch.hpp>

#include <string>

using acc::safe_json;
using acc::safe_text;
using acc::SafeText;
using acc::without_sequences;

namespace {

const std::string kReplaced = "\xEF\xBF\xBD";

std::string in_pieces(const std::string& text, std::size_t size) {
  SafeText safe;
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += size) out += safe.add(text.substr(at, size));
  return out + safe.end();
}

}  // namespace

TEST_CASE("JSON for a terminal means the same, and steers nothing", "[common]") {
  CHECK(safe_json("{\n\t\"a\": \"b\"}\r\n") == "{\n\t\"a\": \"b\"}\r\n");
  CHECK(safe_json("\"\x7f\xc2\x9b\x1b\"") == R"("\u007f\u009b\u001b")");
  CHECK(safe_json("\"\xe2\x80\xae\xf3\xa0\x81\x81\"") == R"("\u202e\udb40\udc41")");
  CHECK(safe_json("\"gr\xc3\xb6\xc3\x9f"
                  "e\xe2\x80\x8d\"") ==
        "\"gr\xc3\xb6\xc3\x9f"
        "e\xe2\x80\x8d\"");
  CHECK(safe_json("\"\x9b\xff\"") == "\"\xef\xbf\xbd\xef\xbf\xbd\"");
}

TEST_CASE("foreign text keeps its letters, and shows what a terminal would obey", "[common]") {
  CHECK(safe_text("ä\tb\n") == "ä\tb\n");
  CHECK(safe_text("\x1b[2J\r\a") == R"(\x1b[2J\x0d\x07)");
  CHECK(safe_text("\xc2\x9b"
                  "31m") == R"(\u009b31m)");
  CHECK(safe_text("a\xe2\x80\xae"
                  "b\xf3\xa0\x80\x81") == R"(a\u202eb\U000e0001)");
  CHECK(safe_text("\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac") ==
        "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac");  // a joiner is part of an emoji
}

TEST_CASE("colours leave a text, what else steers a terminal stays to be shown", "[common]") {
  CHECK(without_sequences("\x1b[1;35mKeyError\x1b[0m: \x1b[35m'a'\x1b[0m\n") == "KeyError: 'a'\n");
  CHECK(without_sequences("\x1b[2K\x1b[1Aa\x1b[38:2::1:2:3mb\x1b[?25l") == "ab");
  CHECK(without_sequences("\x1b]0;title\ax\x1b]8;;http://h\x1b\\link\x1b]8;;\x1b\\y") == "xlinky");
  // One without an end, or of another kind, takes nothing with it.
  CHECK(without_sequences("\x1b]0;title\nKeyError: 'a'\a") == "\x1b]0;title\nKeyError: 'a'\a");
  CHECK(without_sequences("\x1b[1;3\nx") == "\x1b[1;3\nx");
  CHECK(without_sequences("\x1b[1;3") == "\x1b[1;3");
  CHECK(without_sequences("\x1b[") == "\x1b[");
  CHECK(without_sequences("\x1b"
                          "7\x1b(B\xc2\x9b"
                          "31m\a\x1b") ==
        "\x1b"
        "7\x1b(B\xc2\x9b"
        "31m\a\x1b");
  CHECK(safe_text(without_sequences("\x1b\x1b[m[2J")) == R"(\x1b[2J)");  // two halves
  CHECK(without_sequences("").empty());
}

TEST_CASE("8-bit control characters don't pass as bytes that aren't UTF-8", "[common]") {
  CHECK(safe_text("\x9b"
                  "2J\x9d"
                  "0;title") == kReplaced + "2J" + kReplaced + "0;title");
  CHECK(safe_text("\xc0\x9b \xed\xa0\x80") ==
        kReplaced + kReplaced + ' ' + kReplaced + kReplaced + kReplaced);
}

TEST_CASE("a control character that two pieces of a log share doesn't pass", "[common]") {
  std::string text = "x";
  for (int i = 0; i < 50; ++i) text += "\xc2\x9b";
  text += "\xe2\x80\xae \xe2\x82\xac \xf0\x9f\x94\xac \xff\xe2\x80";
  for (std::size_t size = 1; size < 9; ++size) CHECK(in_pieces(text, size) == safe_text(text));
  CHECK(safe_text(text).find("\xc2\x9b") == std::string::npos);
}

TEST_CASE("half a character at the end of a log is shown as replaced", "[common]") {
  SafeText safe;
  CHECK(safe.add("a\xe2\x80") == "a");
  CHECK(safe.end() == kReplaced + kReplaced);
  CHECK(safe.end().empty());
}
