#include "launcher/configure/config_text.hpp"

#include "launcher/configure/config_map.hpp"
#include "launcher/configure/fsdp2.hpp"
#include "launcher/configure/line_changes.hpp"
#include "launcher/document.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace acc::configure;

namespace {

/// What a reader of YAML 1.1 makes of the text.
Map read_back(const std::string& text) {
  return *acc::launcher::read_yaml(text, "x.yaml").value().root.map();
}

acc::launcher::Config config(const std::string& text) {
  return acc::launcher::parse_config(text, "old.yaml").value();
}

}  // namespace

TEST_CASE("YAML is laid out as PyYAML does it", "[configure]") {
  const Map map{{"b", Value{"no"}},
                {"a", Value{List{}}},
                {"c", Value{Map{{"z", Value{List{Value{true}, Value{"x"}}}}, {"y", Value{1e-5}}}}},
                {"d", Value{}}};
  CHECK(yaml_text(map) == "a: []\nb: 'no'\nc:\n  y: 1.0e-05\n  z:\n  - true\n  - x\nd: null\n");
  CHECK(json_text({{"b", Value{std::int64_t{1}}}, {"a", Value{"ä"}}}) ==
        "{\n  \"a\": \"\\u00e4\",\n  \"b\": 1\n}\n");
}

TEST_CASE("text stays text", "[configure]") {
  for (const auto* text :
       {"",          "no",          "On",  "null", "~",    "1",     "1.5",  "0x1f", "1:30", "1e8",
        "1_000",     "2001-01-31",  "=",   "- a",  "a: b", "a #b",  "'",    "\"",   "a:",   " a",
        "a ",        "[x]",         "{x}", "&a",   "*a",   "!a",    "%a",   "@a",   "`a",   "?",
        "tab\there", "line\nbreak", "ä",   "---",  "<<",   "'a' b", "\x7f", "#x",   ","}) {
    INFO(text);
    const Map map{{"key", Value{text}}, {"list", Value{List{Value{text}}}}};
    const auto back = read_back(yaml_text(map));
    REQUIRE(value_of(back, "key")->text() != nullptr);
    CHECK(*value_of(back, "key")->text() == text);
    CHECK(*value_of(back, "list")->list()->front().text() == text);
  }
}

TEST_CASE("lists and mappings inside each other come back", "[configure]") {
  const Map map{{"k", Value{List{Value{Map{{"a", Value{std::int64_t{1}}}, {"b", Value{Map{}}}}},
                                 Value{List{Value{List{Value{2.5}}}, Value{List{}}}}}}}};
  CHECK(python_text(Value{read_back(yaml_text(map))}) == python_text(Value{map}));
}

TEST_CASE("an old file gets today's keys and keeps its own", "[configure]") {
  const auto map =
      updated_config(config("distributed_type: FSDP\nfp16: true\nmax_restarts: 3\nipex_config: {}\n"
                            "fsdp_config: {a: {}}\nmpirun_config: {}\n"))
          .value();
  CHECK(python_text(*value_of(map, "num_processes")) == "-1");
  CHECK(python_text(*value_of(map, "mixed_precision")) == "fp16");
  CHECK(python_text(*value_of(map, "max_restarts")) == "3");
  CHECK(python_text(*value_of(map, "fsdp_config")) == "{'a': None}");
  CHECK(value_of(map, "mpirun_config") == nullptr);
  CHECK(value_of(map, "ipex_config") == nullptr);
  for (const auto* wrong :
       {"num_processes: 2\n", "distributed_type: NO\n", "distributed_type: TPU\n",
        "distributed_type: 'NO'\nfoo: 1\n", "distributed_type: 'NO'\ncompute_environment: MOON\n",
        "distributed_type: 'NO'\ncompute_environment: AMAZON_SAGEMAKER\n"})
    CHECK_FALSE(updated_config(config(wrong)).has_value());
}

TEST_CASE("an unquoted NO as dynamo backend was completed to a file that is refused",
          "[configure]") {
  for (const auto* old : {"dynamo_backend: NO\n", "dynamo_config: {dynamo_backend: no}\n",
                          "dynamo_config: {backend: off}\n"}) {
    const auto map = updated_config(config(std::string{"distributed_type: 'NO'\n"} + old)).value();
    CHECK_THAT(yaml_text(map), Catch::Contains("backend: 'NO'\n"));
  }
}

TEST_CASE("a basic file follows the devices", "[configure]") {
  CHECK(python_text(*value_of(basic_config("no", "cuda", 1), "distributed_type")) == "NO");
  CHECK(python_text(*value_of(basic_config("no", "neuron", 8), "distributed_type")) ==
        "MULTI_NEURON");
  const auto none = basic_config("bf16", "cuda", 0);
  CHECK(python_text(*value_of(none, "use_cpu")) == "True");
  CHECK(python_text(*value_of(none, "num_processes")) == "1");
}

TEST_CASE("FSDP 1 becomes FSDP 2, with a note for each key that is dropped", "[configure]") {
  const auto done =
      to_fsdp2({{"fsdp_config", Value{Map{{"fsdp_sharding_strategy", Value{"SHARD_GRAD_OP"}},
                                          {"fsdp_use_orig_params", Value{true}},
                                          {"fsdp_forward_prefetch", Value{true}},
                                          {"own", Value{"kept"}}}}}});
  CHECK(python_text(*value_of(done.map, "fsdp_config")) ==
        "{'fsdp_reshard_after_forward': False, 'own': 'kept', 'fsdp_version': 2}");
  CHECK(done.notes.size() == 2);
  CHECK(to_fsdp2({{"fsdp_config", Value{}}}).notes.size() == 1);
  const Map already{{"fsdp_config", Value{Map{{"fsdp_version", Value{std::int64_t{2}}}}}}};
  CHECK(python_text(Value{to_fsdp2(already).map}) == python_text(Value{already}));
}

TEST_CASE("a strategy as a number or in lower case became an FSDP 2 file that no worker could read",
          "[configure]") {
  const auto reshard = [](Value strategy) {
    const auto done =
        to_fsdp2({{"fsdp_config", Value{Map{{"fsdp_sharding_strategy", std::move(strategy)}}}}});
    return python_text(
               *value_of(*value_of(done.map, "fsdp_config")->map(), "fsdp_reshard_after_forward")) +
           (done.notes.empty() ? "" : " and a note");
  };
  CHECK(reshard(Value{std::int64_t{1}}) == "1");  // a word for true, too
  CHECK(reshard(Value{std::int64_t{2}}) == "False");
  CHECK(reshard(Value{"2"}) == "False");
  CHECK(reshard(Value{std::int64_t{3}}) == "False and a note");
  CHECK(reshard(Value{std::int64_t{4}}) == "True and a note");
  CHECK(reshard(Value{std::int64_t{5}}) == "False and a note");
  CHECK(reshard(Value{"full_shard"}) == "True");
  CHECK(reshard(Value{"no_shard"}) == "False and a note");
  CHECK(reshard(Value{"own"}) == "own");
}

TEST_CASE("what changes in a file is shown line by line", "[configure]") {
  CHECK(line_changes("a\nb\nc\n", "a\nc\nd\n") == "- b\n+ d\n");
  CHECK(line_changes("a\n", "a\n").empty());
  CHECK(line_changes("", "a\n") == "+ a\n");
}
