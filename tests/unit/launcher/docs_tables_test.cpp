#include "launcher/docs_tables.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::launcher;

TEST_CASE("a block between marks is written anew, the rest stays", "[launcher][docs]") {
  const auto page =
      with_fresh_blocks("before\n<!-- generated: exit-codes -->\nold\n<!-- end -->\nafter\n");
  REQUIRE(page.has_value());
  CHECK(page->starts_with("before\n<!-- generated: exit-codes -->\n| code |"));
  CHECK(page->ends_with("<!-- end -->\nafter\n"));
  CHECK(page->find("\nold\n") == std::string::npos);
  CHECK(with_fresh_blocks(*page).value() == *page);
}

TEST_CASE("marks that lead nowhere are errors", "[launcher][docs]") {
  CHECK(!with_fresh_blocks("<!-- generated: nothing -->\n<!-- end -->\n").has_value());
  CHECK(!with_fresh_blocks("<!-- generated: exit-codes -->\n").has_value());
}

TEST_CASE("every block has rows", "[launcher][docs]") {
  for (const auto* name :
       {"configuration", "worker-variables", "mode-variables", "exit-codes", "report-keys",
        "event-keys", "common-metrics", "launch-metrics", "daemon-metrics", "deviations"}) {
    CHECK(docs_block(name).find("|---|") != std::string::npos);
  }
}
