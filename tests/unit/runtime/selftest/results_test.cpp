#include "runtime/selftest/results.hpp"

#include <catch2/catch.hpp>

using namespace acc::selftest;

TEST_CASE("a name with umlauts was unreadable in acc-test --json", "[runtime][selftest]") {
  CHECK(quoted("/tmp/größe 東京") == "\"/tmp/größe 東京\"");
  CHECK(quoted("a\"b\\c\n\x01") == R"("a\"b\\c\n\u0001")");
  CHECK(quoted("x\xff\xc3") == "\"x\xef\xbf\xbd\xef\xbf\xbd\"");
}
