#include "launcher/completions.hpp"
#include "launcher/config_keys.hpp"
#include "launcher/man_page.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace acc::launcher;

namespace {

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string in_roff(std::string_view name) {
  std::string out;
  for (const char c : name) out += c == '-' ? "\\-" : c == '\'' ? "\\(aq" : std::string(1, c);
  return out;
}

}  // namespace

TEST_CASE("the manual page has every setting under its heading, and every exit code",
          "[launcher][docs]") {
  const auto page = launch_man_page();
  for (const auto& row : key_rows()) {
    INFO(row.name);
    CHECK(holds(page, row.is_flag ? "\\fB" + in_roff("--" + std::string{row.name}) + "\\fR"
                                  : "\\fB" + std::string{row.name} + "\\fR (config file only)"));
  }
  for (const auto& group : group_rows()) CHECK(holds(page, ".SS " + in_roff(group.title)));
  CHECK(holds(page, ".TH ACC-LAUNCH 1"));
  CHECK(holds(page, "\\fB127\\fR"));
}

TEST_CASE("a help text is shown in a manual page as it is printed", "[launcher][docs]") {
  const auto page =
      man_page_from_help("acc-test", "checks", "usage: acc-test [-b 8]\n.dot 'quoted' a\\b\n");
  CHECK(holds(page, "acc\\-test \\- checks\n"));
  CHECK(holds(page, "usage: acc\\-test [\\-b 8]\n\\&.dot \\(aqquoted\\(aq a\\eb\n.fi\n"));
}

TEST_CASE("each shell is offered every flag but those that are refused", "[launcher][docs]") {
  const auto bash = bash_completion();
  const auto zsh = zsh_completion();
  const auto fish = fish_completion();
  for (const auto& row : key_rows()) {
    if (!row.is_flag || row.group == Group::cloud) continue;
    INFO(row.name);
    CHECK(holds(bash, "--" + std::string{row.name}));
    CHECK(holds(zsh, "--" + std::string{row.name} + (row.type == Type::flag ? "[" : "=[")));
    CHECK(holds(fish, " -l " + std::string{row.name} + " "));
  }
  CHECK(!holds(bash, "--tpu"));
}
