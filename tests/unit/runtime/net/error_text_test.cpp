#include "runtime/net/error_text.hpp"

#include "runtime/net/fields.hpp"

#include <catch2/catch.hpp>

using namespace acc::runtime;

TEST_CASE("an error is the same on the rank that reads it", "[net]") {
  const Error error{ErrorCode::peer_lost, "rank 2 is gone", {2, 5}, "all_reduce", 17};
  const auto back = parse_error(to_text(error));
  REQUIRE(back);
  CHECK(back->code() == error.code());
  CHECK(std::string{back->what()} == error.what());
  CHECK(back->ranks() == error.ranks());
  CHECK(back->operation() == "all_reduce");
  CHECK(back->sequence() == 17);
}

TEST_CASE("what isn't an error's text is refused", "[net]") {
  CHECK_FALSE(parse_error(""));
  CHECK_FALSE(parse_error("\xff\x00"));
  CHECK_FALSE(parse_error(pack({"acc-member-1", "3"})));
  CHECK_FALSE(parse_error(pack({"acc-error", "99", "", "", "", "0"})));
  CHECK_FALSE(parse_error(pack({"acc-error", "-1", "", "", "", "0"})));
  CHECK_FALSE(parse_error(pack({"acc-error", "1", "", "a", "", "0"})));
}
