#include "common/text.hpp"

#include <catch2/catch.hpp>

#include <array>

using namespace acc;

TEST_CASE("numbers are read whole or not at all", "[common]") {
  CHECK(parse_number<int>("42") == 42);
  CHECK(parse_number<int>("-1") == -1);
  CHECK_FALSE(parse_number<int>("").has_value());
  CHECK_FALSE(parse_number<int>(" 1").has_value());
  CHECK_FALSE(parse_number<int>("1x").has_value());
  CHECK_FALSE(parse_number<std::uint16_t>("65536").has_value());
  CHECK_FALSE(parse_number<unsigned>("-1").has_value());
}

TEST_CASE("split keeps empty parts, join puts them back", "[common]") {
  CHECK(split("a,,b", ',') == std::vector<std::string>{"a", "", "b"});
  CHECK(split("", ',') == std::vector<std::string>{""});
  CHECK(join(split("a,,b", ','), ",") == "a,,b");
}

TEST_CASE("the nearest name is offered only when it may be meant", "[common]") {
  constexpr std::array<std::string_view, 3> kNames{"num_processes", "num_machines",
                                                   "mixed_precision"};
  CHECK(nearest("num_proceses", kNames) == "num_processes");
  CHECK(nearest("mixed_precison", kNames) == "mixed_precision");
  CHECK(nearest("zzz", kNames).empty());
  CHECK(nearest("um_processes", kNames) == "num_processes");
  constexpr std::string_view kVerbs[] = {"logs", "stop", "status"};
  CHECK(nearest("bogus", kVerbs).empty());  // "did you mean logs?"
  CHECK(nearest("stpo", kVerbs) == "stop");
  CHECK(nearest("", kNames).empty());
}

TEST_CASE("foreign bytes are made safe to print", "[common]") {
  CHECK(printable("a\x1b[31m\n") == "a\\x1b[31m\\x0a");
  CHECK(printable("abcdef", 3) == "abc…");
  CHECK(printable("ünï.py \xe2\x80\x94") == "ünï.py —");
  CHECK(printable("a\xe2\x80\xae \xc2\x9b \xff\xc3") ==
        "a\\xe2\\x80\\xae \\xc2\\x9b \\xff\\xc3");  // turned, a control, no UTF-8
}
