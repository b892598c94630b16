#pragma once

namespace acc::agent::daemon {

/// Unmaps the program's own code and constants. The kernel maps them again, from its page cache,
/// where they are used: a start touches several MiB that a daemon never needs again, and each page
/// brings 15 neighbours with it. Costs a fault per 64 KiB that is still needed; nothing can fail
/// that matters.
void release_startup_pages();

}  // namespace acc::agent::daemon
