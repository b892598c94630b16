#include "runtime/bootstrap/fields.hpp"

#include "runtime/bootstrap/member.hpp"

#include <catch2/catch.hpp>

using namespace acc::runtime;

TEST_CASE("fields of any bytes come back as they were", "[bootstrap]") {
  const std::vector<std::string> fields{"", "a", "1:2", std::string("\0\n", 2),
                                        std::string(300, 'x')};
  CHECK(unpack(pack(fields)) == fields);
  CHECK(unpack("") == std::vector<std::string>{});
}

TEST_CASE("what isn't fields is refused", "[bootstrap]") {
  for (const auto* text :
       {"x", "3", "3:ab", ":ab", "-1:a", "99999999999999999999:a", "1:ab", "1 :a"})
    CHECK_FALSE(unpack(text));
}

TEST_CASE("members and errors travel as text", "[bootstrap]") {
  const Member member{3, 8, 11, 4711, {"host key", "node b", "network"}, "name", "cpu"};
  CHECK(parse_member(to_text(member)) == member);
  CHECK(describe(member) == "3 (host node b, pid 4711)");
  CHECK_FALSE(parse_member(pack({"acc-member-0"})));
  CHECK_FALSE(parse_member("3 8"));

  const Error error{ErrorCode::peer_lost, "rank 2 is gone", {2, 5}, "all_reduce", 17};
  const auto back = parse_error(to_text(error));
  REQUIRE(back);
  CHECK(back->code() == error.code());
  CHECK(std::string{back->what()} == error.what());
  CHECK(back->ranks() == error.ranks());
  CHECK(back->operation() == "all_reduce");
  CHECK(back->sequence() == 17);
  CHECK_FALSE(parse_error(to_text(member)));
  CHECK_FALSE(parse_error(pack({"acc-error", "99", "", "", "", "0"})));
}

TEST_CASE("two processes of one machine have the same host key", "[bootstrap]") {
  const auto here = host_facts();
  CHECK(here == host_facts());
  CHECK_FALSE(here.name.empty());
  CHECK(here.key.size() > 36);
}
