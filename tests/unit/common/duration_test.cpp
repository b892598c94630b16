#include "common/duration.hpp"

#include <catch2/catch.hpp>

using acc::describe;
using acc::Millis;
using acc::parse_duration;

TEST_CASE("a duration is seconds unless it names its unit", "[common]") {
  CHECK(parse_duration("15").value() == Millis{15'000});
  CHECK(parse_duration("0.5").value() == Millis{500});
  CHECK(parse_duration(".25s").value() == Millis{250});
  CHECK(parse_duration("250ms").value() == Millis{250});
  CHECK(parse_duration("2m").value() == Millis{120'000});
  CHECK(parse_duration("1h").value() == Millis{3'600'000});
  CHECK(parse_duration("0").value() == Millis{0});
  CHECK(parse_duration("0.0001").value() == Millis{1});  // it was 0, which is no limit
}

TEST_CASE("what is no duration is refused with the text and the forms that work", "[common]") {
  for (const char* text :
       {"", "-1", "+1", " 5", "5 ", "5 s", "five", "0x10", "nan", "inf", "1e300h", "1d", "s"}) {
    INFO(text);
    const auto result = parse_duration(text);
    REQUIRE(result.has_error());
    CHECK(result.error().what.find("is not a duration") != std::string::npos);
  }
}

TEST_CASE("durations are told as people say them", "[common]") {
  CHECK(describe(Millis{0}) == "0 ms");
  CHECK(describe(Millis{999}) == "999 ms");
  CHECK(describe(Millis{1500}) == "1.5 s");
  CHECK(describe(Millis{15'000}) == "15 s");
  CHECK(describe(Millis{120'000}) == "2 min");
  CHECK(describe(Millis{125'000}) == "2 min 5 s");
  CHECK(describe(Millis{3'900'000}) == "1 h 5 min");
}
