// Any bytes in a config file give a config or a complaint, and the config can be merged, shown and
// planned.
#include "launcher/help.hpp"
#include "launcher/merge.hpp"
#include "launcher/plan.hpp"
#include "launcher/plan_json.hpp"
#include "tests/unit/launcher/trial.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

using namespace acc::launcher;

static void use(std::string_view text, const std::string& name) {
  const auto parsed = parse_config(text, name);
  if (!parsed) {
    if (parsed.error().what.find(name) == std::string::npos)
      std::abort();  // the file must be named
    return;
  }
  FakeFacts facts;
  facts.devices = 2;
  facts.has_fp8 = true;
  facts.deepspeed_version = "0.15.0";
  facts.mpi_kind = "openmpi";
  const std::optional<Config> config{*parsed};
  const auto merged = merge(CommandLine{}, config, facts, {});
  if (config_text(merged.spec).empty()) std::abort();
  const auto planned = make_plan(
      merged.spec, facts, {{}, "/job", "python3", ScriptKind::python, MpiLibrary::none, "mpirun"});
  if (plan_to_json(merged.spec, planned.plan).empty()) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  use(text, "fuzz.yaml");
  use(text, "fuzz.json");
  return 0;
}
