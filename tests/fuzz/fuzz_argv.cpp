// Any words on the command line (a new line ends each) give settings or complaints, and they can be
// planned.
#include "common/text.hpp"
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

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto words = acc::split(text, '\n');
  const auto line = parse_command_line(words);
  for (const auto& complaint : line.complaints) {
    if (complaint.what.empty()) std::abort();
  }
  if (line.script_args.size() > words.size()) std::abort();
  if (line.help_topic) {
    const auto help = help_text(*line.help_topic);
    if (help ? help->empty() : help.error().what.empty()) std::abort();
  }
  FakeFacts facts;
  facts.devices = 2;
  const auto merged = merge(line, std::nullopt, facts, {});
  if (config_text(merged.spec).empty()) std::abort();
  const auto planned = make_plan(
      merged.spec, facts, {{}, "/job", "python3", ScriptKind::python, MpiLibrary::none, "mpirun"});
  if (plan_to_json(merged.spec, planned.plan).empty()) std::abort();
  return 0;
}
