#include "runtime/bootstrap/member.hpp"

#include "runtime/net/fields.hpp"

#include <catch2/catch.hpp>

using namespace acc::runtime;

TEST_CASE("a member is the same on the rank that reads it", "[bootstrap]") {
  Member member{3, 8, 11, 4711, {"host key", "node b", "network"}, "name", "cpu", "train", {}};
  for (const auto check : {std::optional<bool>{}, std::optional{false}, std::optional{true}}) {
    member.check = check;
    CHECK(parse_member(to_text(member)) == member);
  }
  CHECK(describe(member) == "3 (host node b, pid 4711)");
  CHECK_FALSE(parse_member(pack({"acc-member-0"})));
  CHECK_FALSE(parse_member("3 8"));
}

TEST_CASE("two processes of one machine have the same host key", "[bootstrap]") {
  const auto here = host_facts();
  CHECK(here == host_facts());
  CHECK_FALSE(here.name.empty());
  CHECK(here.key.size() > 36);
}
