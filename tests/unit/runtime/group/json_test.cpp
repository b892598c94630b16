#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <acc/json.hpp>
#include <map>

using acc::runtime::ProcessGroup;
using acc::testing::on_ranks;
using nlohmann::json;

TEST_CASE("JSON objects go to all, to one, from one and in parts", "[json]") {
  on_ranks(3, [](ProcessGroup& group) {
    const int me = group.rank();
    const json mine{{"rank", me}, {"loss", 0.1 * me}, {"name", "r" + std::to_string(me)}};
    const auto all = acc::json::all_gather_object(group, mine);
    if (all.size() != 3 || all[2]["loss"] != 0.1 * 2 || all[1]["name"] != "r1")
      throw std::runtime_error{"all_gather_object"};
    const auto at_root = acc::json::gather_object(group, mine, 1);
    if (at_root.size() != (me == 1 ? 3 : 0)) throw std::runtime_error{"gather_object"};
    const std::map<std::string, int> roots{{"a", me}};
    if (acc::json::broadcast_object(group, roots, 2).at("a") != 2)
      throw std::runtime_error{"broadcast_object"};
    const auto parts =
        me == 0 ? std::vector<std::string>{"x", "", "zz"} : std::vector<std::string>{};
    if (acc::json::scatter_object(group, parts, 0) !=
        std::vector<std::string>{"x", "", "zz"}[static_cast<std::size_t>(me)])
      throw std::runtime_error{"scatter_object"};
  });
}

TEST_CASE("an object of another kind is told", "[json]") {
  on_ranks(1, [](ProcessGroup& group) {
    const auto text = acc::json::broadcast_object(group, std::string{"text"}, 0);
    if (text != "text") throw std::runtime_error{"broadcast_object"};
  });
  for (const auto& bytes : {std::string{"\x61x"}, std::string{}, std::string{"\xff\xff"}}) {
    try {
      (void)acc::json::detail::unpack<int>(bytes);
      FAIL("it was taken");
    } catch (const acc::runtime::Error& e) {
      CHECK(e.code() == acc::runtime::ErrorCode::corrupt);
    }
  }
}
