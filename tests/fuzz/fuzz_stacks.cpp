// Any text of gdb, eu-stack, faulthandler or py-spy gives stacks that can be compared and shown;
// any bytes as what the collecting process answered give an answer or an error.
#include "agent/evidence/culprits.hpp"
#include "agent/evidence/stack_text.hpp"
#include "agent/evidence/stacks_report.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

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
  if (answer && evidence::find_culprits(answer->ranks).which.size() > answer->ranks.size())
    std::abort();
  const auto ranks = evidence::decode_ranks(text);
  if (ranks && !ranks->empty() && evidence::find_culprits(*ranks).which.empty()) std::abort();
  return 0;
}
