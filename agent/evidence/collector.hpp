#pragma once

#include <string_view>

namespace acc::agent::evidence {

/// First argument of this program when it is to collect evidence: a process of its own, because a
/// look into /proc may never return, and a debugger takes seconds.
inline constexpr std::string_view kCollectWord = "--collect_evidence";

/// That process: reads a Request from standard input, the page of heartbeats from descriptor 3,
/// writes an Answer to standard output. Looks at the workers and leaves them as they were.
/// @return its exit code
int collect_evidence();

}  // namespace acc::agent::evidence
