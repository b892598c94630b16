#include "launcher/node_list.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::launcher;
using Names = std::vector<std::string>;

TEST_CASE("Slurm's short lists of hosts become names", "[launcher][scheduler]") {
  const auto names = [](std::string_view text) { return expand_node_list(text).value(); };
  CHECK(names("node1") == Names{"node1"});
  CHECK(names("node[1-3,07-09],gpu-a") ==
        Names{"node1", "node2", "node3", "node07", "node08", "node09", "gpu-a"});
  CHECK(names("n[9-11]") == Names{"n9", "n10", "n11"});
  CHECK(names("n[099-101]") == Names{"n099", "n100", "n101"});
  CHECK(names("b,a") == Names{"b", "a"});  // the order is Slurm's
  CHECK(names("rack[1-2]n[0-1]-ib") ==
        Names{"rack1n0-ib", "rack1n1-ib", "rack2n0-ib", "rack2n1-ib"});
  CHECK(names("[1-2]") == Names{"1", "2"});
  CHECK(names("n[1-5000]").size() == 5000);
}

TEST_CASE("a list that Slurm doesn't write is refused", "[launcher][scheduler]") {
  for (const std::string_view text : {"",
                                      ",",
                                      "a,,b",
                                      "a,",
                                      "n[",
                                      "n[]",
                                      "n[1",
                                      "n[1-]",
                                      "n[-1]",
                                      "n[2-1]",
                                      "n[1,]",
                                      "n[a-b]",
                                      "n[1-2-3]",
                                      "n[1[2]]",
                                      "n 1",
                                      "n;rm",
                                      "n[1-100001]",
                                      "n[1-1000][1-1000]",
                                      "n[1-99999999999999999999]",
                                      "a[1-60000],b[1-60000]"}) {
    INFO(text);
    CHECK(!expand_node_list(text).has_value());
  }
}

TEST_CASE("Slurm's counts are read with their repetitions", "[launcher][scheduler]") {
  CHECK(expand_counts("2(x3),1").value() == std::vector<std::uint32_t>{2, 2, 2, 1});
  CHECK(expand_counts("4").value() == std::vector<std::uint32_t>{4});
  for (const std::string_view text : {"", "x", "2(x", "2(x0)", "2(x)", "2()", "2(x200000)", "-1"}) {
    INFO(text);
    CHECK(!expand_counts(text).has_value());
  }
}
