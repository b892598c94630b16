#include "launcher/config_keys.hpp"

#include "common/text.hpp"
#include "launcher/cli.hpp"
#include "launcher/help.hpp"
#include "launcher/job_spec.hpp"
#include "launcher/key_table.hpp"

#include <catch2/catch.hpp>

#include <set>

using namespace acc;
using namespace acc::launcher;

namespace {

/// A word that this row accepts.
std::string sample(const KeyRow& row) {
  if (!row.choices.empty()) return split(row.choices, ' ').front();
  switch (row.type) {
    case Type::integer:
      return "3";
    case Type::number:
      return "0.25";
    case Type::truth:
      return "true";
    case Type::truths:
      return "true,false,true";
    case Type::duration:
      return "5s";
    case Type::bytes:
      return "64M";
    case Type::signals:
      return "TERM,USR1";
    case Type::codes:
      return "2,64-78";
    case Type::streams:
      return "0:1,1:3";
    case Type::ranks:
      return "0,2";
    default:
      return "word";
  }
}

}  // namespace

TEST_CASE("no two settings share a name, a spelling or a letter", "[launcher][keys]") {
  std::set<std::string> seen;
  for (const auto& row : key_rows()) {
    std::vector<std::string> names =
        row.aliases.empty() ? std::vector<std::string>{} : split(row.aliases, ' ');
    names.emplace_back(row.name);
    if (row.letter != 0) names.emplace_back(1, row.letter);
    for (const auto& name : names) {
      INFO(name);
      CHECK(seen.insert(name).second);
    }
  }
}

TEST_CASE("every setting has help, and a default of its own type", "[launcher][keys]") {
  for (const auto& row : key_rows()) {
    INFO(row.name);
    CHECK(!row.help.empty());
    CHECK((row.initial != nullptr || default_value(row).is_none()));
    if (row.initial != nullptr && !row.choices.empty())
      CHECK(parse_value(row, row.initial).has_value());
  }
}

TEST_CASE("every flag goes from the command line into the spec and back", "[launcher][keys]") {
  for (const auto& row : key_rows()) {
    if (!row.is_flag || row.name == "help") continue;
    INFO(row.name);
    std::vector<std::string> words{"--" + std::string{row.name}};
    if (row.type != Type::flag) words.push_back(sample(row));
    words.emplace_back("s.py");
    const auto line = parse_command_line(words);
    REQUIRE(line.complaints.empty());
    const auto* given = line.given(key_of(row));
    REQUIRE(given != nullptr);
    JobSpec spec;
    spec.set(key_of(row), given->value, Source::flag, given->spelled);
    CHECK(config_text(spec).find(std::string{row.name} + " = " + python_text(given->value)) !=
          (row.group == Group::inspect ? 0 : std::string::npos));
  }
}

TEST_CASE("every top-level key takes from a file what its flag takes", "[launcher][keys]") {
  for (const auto& row : key_rows()) {
    if (row.place != Place::top || row.type == Type::list || row.type == Type::flag) continue;
    INFO(row.name);
    const auto from_file = check_value(row, Value{sample(row)});
    REQUIRE(from_file.has_value());
    CHECK(python_text(*from_file) == python_text(parse_value(row, sample(row)).value()));
  }
}

TEST_CASE("every group has a heading and every section a name", "[launcher][keys]") {
  for (const auto& row : key_rows()) {
    INFO(row.name);
    CHECK(!help_text("all").value().empty());
    const auto section = section_name(row.place);
    if (!section.empty()) CHECK(section_of(section) == row.place);
  }
  for (const auto& group : group_rows())
    CHECK(help_text(group.name).value().find(group.title) == 0);
}

TEST_CASE("the overview shows the groups and the most used flags", "[launcher][help]") {
  const auto text = help_text("").value();
  for (const auto& group : group_rows()) CHECK(text.find(group.name) != std::string::npos);
  CHECK(text.find("--num_processes") != std::string::npos);
  CHECK(text.find("--megatron_lm_tp_degree") == std::string::npos);
}

TEST_CASE("behind --help one flag is explained, and says so when there is no such topic", "[launcher]") {
  CHECK(help_text("max_restarts").value().find("--max_restarts") != std::string::npos);
  CHECK(help_text("--max-restarts") == help_text("max_restarts"));
  CHECK(help_text("node_rank") == help_text("machine_rank"));
  CHECK(help_text("restrat").error().what.find("no flag 'restrat' (did you mean restart?)") !=
        std::string::npos);
  CHECK(help_text("foo").error().what.find("the groups are job, processes") != std::string::npos);
}

TEST_CASE("behind a mode flag --help shows that mode's flags", "[launcher][help]") {
  constexpr Group kFsdp[] = {Group::fsdp};
  const auto text = help_for(kFsdp).value();
  CHECK(text.find("--fsdp_sharding_strategy") != std::string::npos);
  CHECK(text.find("--num_processes") != std::string::npos);
  CHECK(text.find("--zero_stage") == std::string::npos);
  CHECK(help_for({}) == help_text(""));
}
