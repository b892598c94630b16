#include "launcher/env/fact_table.hpp"

#include "launcher/env/command.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace acc::env {

TEST_CASE("a bug report showed no secret", "[env]") {
  CHECK(shown_value("HF_TOKEN", "hf_abc") == "(set, not shown)");
  CHECK(shown_value("ACC_SECRET", "x") == "(set, not shown)");
  CHECK(shown_value("AWS_SECRET_ACCESS_KEY", "x") == "(set, not shown)");
  CHECK(shown_value("wandb_api_key", "x") == "(set, not shown)");
  CHECK(shown_value("ACC_ETCD_USER", "me:password") == "(set, not shown)");
  CHECK(shown_value("SLURM_JWT", "x") == "(set, not shown)");
  CHECK(shown_value("MKL_PASSWORD", "") == "");
  CHECK(shown_value("ACC_SECRET_FILE", "/etc/acc/secret") == "/etc/acc/secret");
  CHECK(shown_value("MASTER_ADDR", "node1") == "node1");
  CHECK(shown_value("PIP_INDEX_URL", "https://bob:pw@host/simple http://eve:x@b") ==
        "https://bob:***@host/simple http://eve:***@b");
  CHECK(shown_value("X", "https://host:80/a@b:c") == "https://host:80/a@b:c");
  CHECK(shown_value("X", "://") == "://");
}

TEST_CASE("a config file is shown with its layout, and without its secrets", "[env]") {
  CHECK(shown_config("a: 1\nfsdp_config:\n  x: y\nhub_token: abc\n# the last\ndebug: "
                     "true\nsecret_file: /s\n") ==
        "a: 1\nfsdp_config:\n  x: y\nhub_token: (set, not shown)\ndebug: true\nsecret_file: /s\n");
  const std::string plain =
      "log_dir: 's3://x'\nscript_args: []\ngpu_ids: '0,1'\nfp8_config: {margin: 0}\n";
  CHECK(shown_config(plain) == plain);
  const std::string unset = "commands: null\ntpu_env: []  # none\nscript_args: ~\n";
  CHECK(shown_config(unset) == unset);
}

TEST_CASE("acc-env showed secrets in a script's arguments, tpu_env and comments of the config file",
          "[env]") {
  for (const char* text :
       {"script_args: [\"--hub_token\",\"hf_abc\",\"--api-key=hf_abc\"]\ndebug: true\n",
        "script_args:\n- --hub_token\n- hf_abc\ndebug: true\n",
        "script_args:\n  - --x\n\n  - hf_abc\ndebug: true\n",
        "script_args: [--x,\n  hf_abc,\nhf_abc]\ndebug: true\n",
        "tpu_env:\n- WANDB_API_KEY=hf_abc\ndebug: true\n",
        "commands: [export A=hf_abc]\ndebug: true\n",
        "#aws_secret_access_key: hf_abc\ndebug: true\n", "  #  hub-token : hf_abc\ndebug: true\n",
        "hub_token: |\n  hf_abc\n  hf_abc\ndebug: true\n",
        "health_check: probe --api-key hf_abc\ndebug: true\n",
        "health_check: env WANDB_API_KEY=hf_abc probe\ndebug: true\n",
        "{\n  \"script_args\": [\n    \"hf_abc\"\n  ],\n  \"debug: true\": 1\n}\n"}) {
    const auto shown = shown_config(text);
    INFO(text << "is shown as\n" << shown);
    CHECK(shown.find("hf_abc") == std::string::npos);
    CHECK(shown.find("(set, not shown)\n") != std::string::npos);
    CHECK(shown.find("debug: true") != std::string::npos);
  }
  CHECK(shown_config("{\"debug\": true, \"hub_token\": \"hf_abc\"}") ==
        "{\"debug\": true, \"hub_token\": (set, not shown)\n");
}

TEST_CASE("variables of launchers and schedulers are wanted, others aren't", "[env]") {
  for (const char* name :
       {"SLURM_JOB_ID", "ACCELERATE_USE_CPU", "NCCL_DEBUG", "RANK", "LD_PRELOAD"})
    CHECK(is_wanted_variable(name));
  for (const char* name : {"HOME", "HF_TOKEN", "RANKING", "PS1"}) CHECK(!is_wanted_variable(name));
}

static const std::vector<Section> kSections{
    {"acc", {{"version", "1.0"}, {"driver", ""}}},
    {"config", {{"file", "/c\x1b[31m"}, {"contents", "\na: 1\n  b: ```\n"}}}};

TEST_CASE("facts as text stand in columns, files indented, and can't steer a terminal", "[env]") {
  CHECK(to_text(kSections) ==
        "acc\n  version   1.0\n  driver    not found\n\n"
        "config\n  file      /c\n  contents\n    \n    a: 1\n      b: ```\n");
}

TEST_CASE("facts as Markdown: nothing in a file closes its fence", "[env]") {
  const auto text = to_markdown(kSections);
  CHECK(text.find("### acc\n\n- `version`: 1.0\n- `driver`: not found\n") == 0);
  CHECK(text.find("  ````\n  \n  a: 1\n    b: ```\n  ````\n") != std::string::npos);
}

TEST_CASE("facts as JSON: what wasn't found is null, bytes that aren't UTF-8 do no harm", "[env]") {
  auto sections = kSections;
  sections[0].facts.push_back({"odd", "\xff"});
  const auto json = nlohmann::json::parse(to_json(sections));
  CHECK(json["acc"]["version"] == "1.0");
  CHECK(json["acc"]["driver"].is_null());
  CHECK(json["acc"]["odd"] == "\xef\xbf\xbd");
}

TEST_CASE("acc-env's words", "[env]") {
  const auto parse = [](std::vector<std::string> words) { return parse_command(words); };
  CHECK(parse({"--json"}).format == Format::json);
  CHECK(parse({"--format=markdown", "--config_file", "c"}).config_file == "c");
  CHECK(parse({"--format", "xml"}).complaints.front().what ==
        "--format 'xml': expected text, markdown or json");
  CHECK(parse({"--config_file"}).complaints.front().what == "--config_file needs a value");
  CHECK(parse({"--jsn"}).complaints.front().what == "unknown word '--jsn' (did you mean --json?)");
}

}  // namespace acc::env
