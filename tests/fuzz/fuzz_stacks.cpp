// Any text of gdb, eu-stack, faulthandler or py-spy gives stacks that can be compared and shown;
// any bytes as what the collecting process answered give an answer or an error.
#include "agent/evidence/culprits.hpp"
#include "agent/evidence/stack_text.hpp"
#include "agent/evidence/stacks_report.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace evidence = acc::agent::evidence;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  evidence::RankEvidence rank;
  rank.native = evidence::native_stacks(text, 4711);
  rank.python = evidence::python_stacks(text);
  for (const auto* stacks : {&rank.native, &rank.python}) {
    for (const auto& stack : *stacks) {
      if (stack.frames.empty() || evidence::key_of(stack).empty()) std::abort();
      rank.summary.at = evidence::place_of(stack);
      rank.summary.waits_for_others = evidence::waits_for_others(stack);
      rank.summary.stack_key = evidence::key_of(stack);
    }
  }
  const auto shown = evidence::stacks_text({}, {rank, {}});
  for (const char c : shown)
    if (c == '\x1b' || c == '\r') std::abort();
  const auto answer = evidence::decode_answer(text);
  auto node = answer ? acc::Result<evidence::NodeEvidence>{answer->evidence}
                     : evidence::decode_node(text);
  if (!node) return 0;
  std::vector<evidence::RankSummary> ranks;
  for (const auto& one : node->ranks) ranks.push_back(one.summary);
  const auto culprits = evidence::find_culprits(ranks);
  if (culprits.which.size() > ranks.size() || (!ranks.empty() && culprits.which.empty()))
    std::abort();
  // What another node sent is shown on terminals.
  for (const char c : evidence::text_of_nodes({}, {*node}))
    if (c == '\x1b' || c == '\r') std::abort();
  evidence::fit(*node, 4096);
  if (!evidence::decode_node(evidence::encode(*node))) std::abort();
  return 0;
}
