#include "launcher/value.hpp"

#include <catch2/catch.hpp>

#include <limits>

using namespace acc::launcher;

TEST_CASE("numbers print as Python prints them", "[launcher][value]") {
  CHECK(python_float(1) == "1.0");
  CHECK(python_float(0.1) == "0.1");
  CHECK(python_float(-0.5) == "-0.5");
  CHECK(python_float(1e-5) == "1e-05");
  CHECK(python_float(0.0001) == "0.0001");
  CHECK(python_float(1e15) == "1000000000000000.0");
  CHECK(python_float(1e16) == "1e+16");
  CHECK(python_float(123.25) == "123.25");
  CHECK(python_float(1.5e300) == "1.5e+300");
  CHECK(python_float(std::numeric_limits<double>::infinity()) == "inf");
}

TEST_CASE("the rest prints as Python's str()", "[launcher][value]") {
  CHECK(python_text(Value{}) == "None");
  CHECK(python_text(Value{true}) == "True");
  CHECK(python_text(Value{List{Value{false}, Value{"x"}, Value{std::int64_t{1}}}}) ==
        "[False, 'x', 1]");
  CHECK(python_text(Value{Map{{"a", Value{1.5}}}}) == "{'a': 1.5}");
}

TEST_CASE("truth is Python's", "[launcher][value]") {
  CHECK(truthy(Value{"false"}));
  CHECK(!truthy(Value{""}));
  CHECK(!truthy(Value{}));
  CHECK(!truthy(Value{std::int64_t{0}}));
  CHECK(!truthy(Value{List{}}));
}
