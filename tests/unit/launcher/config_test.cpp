#include "launcher/config.hpp"

#include "launcher/config_keys.hpp"
#include "launcher/document.hpp"
#include "launcher/key_table.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::launcher;
using namespace acc::launcher::literals;

namespace {

std::string complaints_of(const std::string& yaml) {
  const auto config = parse_config(yaml, "cfg.yaml");
  if (!config) return config.error().what;
  std::string text;
  for (const auto& complaint : check_config_keys(*config).complaints) text += complaint.what + "\n";
  return text;
}

}  // namespace

TEST_CASE("values keep their line, their spelling and their quotes", "[launcher][config]") {
  const auto config = parse_config("a: 1\n\nb: 'no'\nc: no\nd: {e: [1, x]}\n", "cfg.yaml");
  REQUIRE(config.has_value());
  CHECK(config->find("a")->line == 1);
  CHECK(config->where(*config->find("b")) == "cfg.yaml:3");
  CHECK(*config->find("b")->text() == "no");
  CHECK(config->find("c")->is_bool());
  CHECK(config->find("c")->spelled == "no");
  CHECK(python_text(*config->find("d")) == "{'e': [1, 'x']}");
}

TEST_CASE("explicit tags, anchors and merge keys work as in PyYAML", "[launcher][config]") {
  const auto config =
      parse_config("a: &x {p: 1, q: 2}\nb: *x\nc: {<<: *x, q: 3}\nd: !!str 5\n", "cfg.yaml");
  REQUIRE(config.has_value());
  CHECK(python_text(*config->find("b")) == "{'p': 1, 'q': 2}");
  CHECK(python_text(*config->find("c")).find("'q': 3") != std::string::npos);
  CHECK(config->find("d")->text() != nullptr);
}

TEST_CASE("a file ending in .json is JSON, with lines", "[launcher][config]") {
  const auto config = parse_config("{\n \"a\": 1e8,\n \"b\": {\"c\": true}\n}", "cfg.json");
  REQUIRE(config.has_value());
  CHECK(config->find("a")->line == 2);
  CHECK(python_text(*config->find("a")) == "100000000.0");
  CHECK(parse_config("{\n\"a\": nope}", "cfg.json").error().what.find("cfg.json:2") == 0);
}

TEST_CASE("an empty JSON file was not valid JSON near nothing", "[launcher][config]") {
  for (const auto* text : {"", " \n"})
    CHECK(parse_config(text, "cfg.json").error().what ==
          "cfg.json: the file is empty; it needs at least distributed_type");
}

TEST_CASE("false in a JSON file was explained as YAML", "[launcher][config]") {
  const auto config =
      parse_config(R"({"main_process_ip": false, "distributed_type": "NO"})", "c.json");
  const auto refused = check_value(row_of("main_process_ip"_key), *config->find("main_process_ip"));
  REQUIRE(refused.has_error());
  CHECK(refused.error().what ==
        "false is a boolean in JSON, not ADDRESS: write \"false\" in quotes if the word is meant");
  CHECK(as_read(*parse_config("a: no\n", "c.yaml")->find("a")) ==
        "unquoted no is a boolean in YAML");
}

TEST_CASE("unknown keys are listed sorted, each with the nearest known one", "[launcher][config]") {
  const auto text = complaints_of("distributed_type: 'NO'\nzeta: 1\nnum_proceses: 2\n");
  CHECK(text.find("cfg.yaml:3: unknown key 'num_proceses' (did you mean num_processes?)") !=
        std::string::npos);
  CHECK(text.find("num_proceses") < text.find("zeta"));
}

TEST_CASE("a key of a section at the top level is told where it belongs", "[launcher][config]") {
  CHECK(complaints_of("distributed_type: FSDP\nfsdp_version: 2\n").find("section fsdp_config") !=
        std::string::npos);
  CHECK(complaints_of("distributed_type: 'NO'\ncpu: true\n").find("use_cpu") != std::string::npos);
  CHECK(complaints_of("distributed_type: FSDP\nfsdp_config: 3\n").find("must be a mapping") !=
        std::string::npos);
}

TEST_CASE("SageMaker's keys were called unknown", "[launcher][config]") {
  const auto text = complaints_of("distributed_type: 'NO'\niam_role_name: r\nregion: eu\n");
  CHECK(text.find("cfg.yaml:2: 'iam_role_name' is for SageMaker, whose jobs this launcher doesn't "
                  "start") != std::string::npos);
  CHECK(text.find("cfg.yaml:3: 'region' is for SageMaker") != std::string::npos);
  CHECK(text.find("unknown") == std::string::npos);
  // One refusal says it all.
  CHECK(complaints_of("compute_environment: AMAZON_SAGEMAKER\ndistributed_type: 'NO'\n"
                      "iam_role_name: r\n")
            .find("iam_role_name") == std::string::npos);
}

TEST_CASE("a flag that is no key, and a key that is gone, say so", "[launcher][config]") {
  CHECK(
      complaints_of("distributed_type: 'NO'\nprint_plan: true\n").find("a flag only, not a key") !=
      std::string::npos);
  CHECK(complaints_of("distributed_type: 'NO'\nmulti_gpu: true\n").find("chooses the mode") !=
        std::string::npos);
}

TEST_CASE("a key of an older Accelerate gets a note, not a refusal", "[launcher][config]") {
  const auto config = parse_config("distributed_type: 'NO'\nipex_config: {}\n", "cfg.yaml");
  const auto check = check_config_keys(config.value());
  CHECK(check.complaints.empty());
  CHECK(check.notes == std::vector<std::string>{"cfg.yaml:2: 'ipex_config' has no effect: it was "
                                                "removed from Accelerate, delete it"});
}

TEST_CASE("distributed_type is required", "[launcher][config]") {
  CHECK(complaints_of("num_processes: 2\n").find("distributed_type is missing") !=
        std::string::npos);
}

TEST_CASE("keys of old versions are translated", "[launcher][config]") {
  CHECK(*parse_config("fp16: true\n", "c")->find("mixed_precision")->text() == "fp16");
  CHECK(
      *parse_config("fp16: true\nmixed_precision: bf16\n", "c")->find("mixed_precision")->text() ==
      "bf16");
  CHECK(parse_config("fp16: false\n", "c")->keys.empty());
  CHECK(python_text(*parse_config("dynamo_backend: INDUCTOR\n", "c")->find("dynamo_config")) ==
        "{'dynamo_backend': 'INDUCTOR'}");
  CHECK(parse_config("dynamo_backend: 'NO'\n", "c")->find("dynamo_config")->map()->empty());
}

TEST_CASE("broken files are refused with a line", "[launcher][config]") {
  CHECK(complaints_of("a: 1\nb: [x\n").find("cfg.yaml:") == 0);
  CHECK(complaints_of("").find("empty") != std::string::npos);
  CHECK(complaints_of("- a\n- b\n").find("a list") != std::string::npos);
  CHECK(complaints_of("a: 1\n---\nb: 2\n").find("second document") != std::string::npos);
  CHECK(complaints_of("a: !python/object:os.system x\n").find("unknown tag") != std::string::npos);
  for (const auto* what :
       {"!!python/object/apply:os.system [id]", "!!python/tuple [1]", "!own {b: 1}"})
    CHECK(complaints_of(std::string{"a: "} + what + "\n").find("unknown tag '") !=
          std::string::npos);
  for (const auto* what : {"!!seq [1]", "!!map {b: 1}", "! [1]"})
    CHECK(parse_config(std::string{"a: "} + what + "\n", "c").has_value());
  CHECK(complaints_of("a: &x [*x]\n").find("cfg.yaml:1") == 0);
}

TEST_CASE("a quote that was never closed swallowed the keys below it", "[launcher][config]") {
  CHECK(complaints_of("distributed_type: 'NO'\nrole: \"abc\nmax_restarts: 3\n") ==
        "cfg.yaml:2: the quote in column 7 is never closed");
  CHECK(complaints_of("distributed_type: 'NO'\nrole: &a 'it''s\nmax_restarts: 3\n") ==
        "cfg.yaml:2: the quote in column 7 is never closed");
  CHECK(complaints_of("role: \"abc\\\"\ndistributed_type: NO\n") ==
        "cfg.yaml:1: the quote in column 7 is never closed");
  for (const std::string closed : {R"("a\"b")", "'it''s'", "&a \"x\ny\"", "'a' # b's", "\"\""})
    CHECK(complaints_of("distributed_type: 'NO'\nrole: " + closed) == "");
}

TEST_CASE("bombs are refused, in bounded memory", "[launcher][config]") {
  std::string aliases = "a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'z'; ++c) {
    const std::string before(1, static_cast<char>(c - 1));
    aliases += std::string(1, c) + ": &" + c + " [*" + before + ",*" + before + ",*" + before +
               ",*" + before + ",*" + before + "]\n";
  }
  CHECK(complaints_of(aliases).find("values: not a config file") != std::string::npos);
  CHECK(complaints_of("a: " + std::string(100'000, '[')).find("too deep") != std::string::npos);
  std::string nested;
  for (int i = 0; i < 300; ++i) nested += std::string(static_cast<std::size_t>(i), ' ') + "k:\n";
  CHECK(complaints_of(nested).find("cfg.yaml") == 0);
  CHECK(complaints_of(std::string(kMaxConfigBytes + 1, ' ')).find("1 MiB") != std::string::npos);
  CHECK(parse_config(std::string(100'000, '['), "c.json").error().what.find("nested deeper") !=
        std::string::npos);
}

TEST_CASE("the default file is looked for where the original looks", "[launcher][config]") {
  CHECK(default_config_path({{"HOME", "/h"}}) ==
        "/h/.cache/huggingface/accelerate/default_config.yaml");
  CHECK(default_config_path({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}) ==
        "/x/huggingface/accelerate/default_config.yaml");
  CHECK(default_config_path({{"HOME", "/h"}, {"HF_HOME", "~/hf"}, {"XDG_CACHE_HOME", "/x"}}) ==
        "/h/hf/accelerate/default_config.yaml");
}

TEST_CASE("a key beside YAML's merge key was told as standing there already",
          "[launcher][config]") {
  const auto config =
      parse_config("a: &a {num_processes: 2, q: 1}\n<<: *a\nnum_processes: 4\n", "cfg.yaml");
  REQUIRE(config.has_value());
  CHECK(config->notes.empty());
  CHECK(python_text(*config->find("num_processes")) == "4");
  const auto twice = parse_config(
      "a: &a {num_processes: 2}\n<<: *a\nnum_processes: 4\nnum_processes: 5\n", "cfg.yaml");
  REQUIRE(twice.has_value());
  CHECK(python_text(*twice->find("num_processes")) == "5");
  REQUIRE(twice->notes.size() == 1);
  CHECK(twice->notes[0] ==
        "cfg.yaml:4: 'num_processes' stands in line 3 already: the last one counts");
}

TEST_CASE("of two merge keys the first won, and in Python the last does", "[launcher][config]") {
  const auto config = parse_config(
      "own: 1\n<<: {p: 1, q: 1, own: 2}\n<<: [{p: 2, own: 3}, {p: 3, r: 3}]\n", "cfg.yaml");
  REQUIRE(config.has_value());
  for (const auto& [key, text] :
       {std::pair{"own", "1"}, std::pair{"p", "2"}, std::pair{"q", "1"}, std::pair{"r", "3"}})
    CHECK(python_text(*config->find(key)) == text);
}

TEST_CASE("a merge key with a list of mappings was an unknown key", "[launcher][config]") {
  const auto config =
      parse_config("a: &a {p: 1}\nb: &b {p: 2, q: 2, r: 2}\n<<: [*a, *b]\nr: 3\n", "cfg.yaml");
  REQUIRE(config.has_value());
  CHECK(config->find("<<") == nullptr);
  for (const auto& [key, text] :
       {std::pair{"p", "1"}, std::pair{"q", "2"}, std::pair{"r", "3"}})  // as PyYAML
    CHECK(python_text(*config->find(key)) == text);
  CHECK(parse_config("<<: [1]\n", "cfg.yaml")->find("<<") != nullptr);
}
