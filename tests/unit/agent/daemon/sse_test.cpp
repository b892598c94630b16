#include "agent/daemon/sse.hpp"

#include <catch2/catch.hpp>

#include <string>

using namespace acc::agent::daemon;

TEST_CASE("an event is its fields, one a line, and an empty line", "[agent][http]") {
  CHECK(to_text(ServerSentEvent{"7,9", "stdout", "\"a\""}) ==
        "event: stdout\nid: 7,9\ndata: \"a\"\n\n");
  CHECK(to_text(ServerSentEvent{"", "", "{}"}) == "data: {}\n\n");
}

TEST_CASE("offsets are read back, and nothing else is", "[agent][http]") {
  CHECK(parse_log_offsets(to_text(LogOffsets{12, 9'000'000'000})) == LogOffsets{12, 9'000'000'000});
  for (const char* wrong : {"", ",", "1", "1,", ",1", "1,2,3", "-1,2", "1 ,2", "a,b",
                            "18446744073709551615,0", "99999999999999999999,0"})
    CHECK_FALSE(parse_log_offsets(wrong).has_value());
}

TEST_CASE("offsets of a rank also say in which attempts", "[agent][http]") {
  const LogOffsets offsets{12, 0, LogPlace{1'700'000'000'000, 18'446'744'073'709'551'615U, 3},
                           LogPlace{1'700'000'000'000, 7, 2}};
  CHECK(to_text(offsets) == "12,0,1700000000000:18446744073709551615:3,1700000000000:7:2");
  CHECK(parse_log_offsets(to_text(offsets)) == offsets);
  const LogOffsets of_one{12, 0, LogPlace{5, 7, 3}, std::nullopt};
  CHECK(to_text(of_one) == "12,0,5:7:3,0:0:0");
  for (const char* wrong : {"1,2,3:4:5", "1,2,3:4:5,", "1,2,3:4:5,6:7", "1,2,3:4:5,6:7:8:9",
                            "1,2,3:4:5,-6:7:8", "1,2,3:4:5,6:run_a:8", "1,2,3:4:5,6:7:../8",
                            "1,2,3:4:5,6:7:4294967296", "1,2,3:4:5,6:7:8,9:10:11"})
    CHECK_FALSE(parse_log_offsets(wrong).has_value());
}

TEST_CASE("an event ends with a line, or at least with a character", "[agent][http]") {
  CHECK(whole_part("one\ntwo\nthr", false) == 8);
  CHECK(whole_part("thr", false) == 0);
  CHECK(whole_part("thr", true) == 3);
  CHECK(whole_part("caf\xc3", true) == 3);  // é is cut off
  CHECK(whole_part("caf\xc3\xa9", true) == 5);
  CHECK(whole_part("\xf0\x9f\x98", true) == 0);
  CHECK(whole_part("\xf0\x9f\x98\x80", true) == 4);
  CHECK(whole_part("\x80\x80\x80\x80", true) == 4);  // no UTF-8 at all: passed on
  CHECK(whole_part("", true) == 0);
}

TEST_CASE("lines that aren't UTF-8 leave others as they are", "[agent][http]") {
  CHECK(whole_part("good\nbad\xff\n\xfe\ngood\n", false) == 5);
  CHECK(whole_part("bad\xff\n\xfe\ngood\n", false) == 7);
  CHECK(whole_part("bad\xff\ngood\n\xfe\ngood\n", false) == 12);  // events are few
  CHECK(whole_part("good\n", false) == 5);
  CHECK(whole_part("good\nbad\xff", false) == 5);
}

TEST_CASE("any bytes become one line of JSON", "[agent][http]") {
  CHECK(json_string("a\r\"b\"\n") == R"("a\r\"b\"\n")");
  CHECK(json_string("gr\xc3\xb6\xc3\x9f") == "\"gr\xc3\xb6\xc3\x9f\"");
  CHECK(json_string("x\xff") == "\"\\u0001x\xc3\xbf\"");
  CHECK(json_string(std::string_view{"\0", 1}) == R"("\u0000")");
}
