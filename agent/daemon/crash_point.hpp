#pragma once

namespace acc::agent::daemon {

/// For tests of a daemon that dies at any step: ends this process, as SIGKILL would, when it passes
/// the point `name` for the Nth time, if ACC_DAEMON_CRASH_AT is "name:N". Otherwise it costs a
/// comparison.
void crash_point(const char* name);

}  // namespace acc::agent::daemon
