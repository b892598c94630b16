#include "launcher/check/marked_lines.hpp"

#include "launcher/check/machine_checks.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <vector>

namespace acc::check {

using Kind = MarkedLine::Kind;

TEST_CASE("what ranks tell acc-test is found behind a rank's prefix, too", "[check]") {
  CHECK(read_marked_line("acc-test-text: ok  ranks").content == "ok  ranks");
  CHECK(read_marked_line("[default0]:acc-test-json: {}").kind == Kind::result);
  CHECK(read_marked_line("acc-test-machine: {\"host\": \"acc-test-json: \"}").kind ==
        Kind::machine);
  CHECK(read_marked_line("acc-test-text:").kind == Kind::plain);
  const auto plain = read_marked_line("a warning of a library");
  CHECK(plain.kind == Kind::plain);
  CHECK(plain.content == "a warning of a library");
  CHECK(read_marked_line(std::string(1000, ' ') + "acc-test-json: {}").kind == Kind::plain);
}

TEST_CASE("a machine's check is the same after its way as JSON", "[check]") {
  const Check check{"cores", Verdict::warning, "2 for 8 workers", "start fewer"};
  const auto again = check_of(as_json(check));
  REQUIRE(again.has_value());
  CHECK(again->name == check.name);
  CHECK(again->verdict == check.verdict);
  CHECK(again->found == check.found);
  CHECK(again->remedy == check.remedy);
  for (const auto* text : {"[]", "{}", R"({"name":"x","verdict":"good"})", R"({"name":3})"})
    CHECK_FALSE(check_of(nlohmann::json::parse(text)).has_value());
}

TEST_CASE("standard output comes line by line, and is what it was afterwards", "[check]") {
  std::vector<std::string> lines;
  {
    OutputReader reader;
    reader.start([&](std::string_view line) { lines.emplace_back(line); });
    const std::string text = "one\ntw";
    REQUIRE(::write(STDOUT_FILENO, text.data(), text.size()) == 6);
    REQUIRE(::write(STDOUT_FILENO, "o\nthree", 7) == 7);
    reader.finish();
  }
  CHECK(lines == std::vector<std::string>{"one", "two", "three"});
  const int before = ::dup(STDOUT_FILENO);
  { const OutputReader never_started; }
  struct stat mine {};
  struct stat now {};
  REQUIRE(::fstat(before, &mine) == 0);
  REQUIRE(::fstat(STDOUT_FILENO, &now) == 0);
  CHECK(mine.st_ino == now.st_ino);
  ::close(before);
}

}  // namespace acc::check
