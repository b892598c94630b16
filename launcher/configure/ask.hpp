#pragma once

#include "launcher/configure/command.hpp"

#include <string>

namespace acc::configure {

/// acc-config without a verb: asks, shows, writes. @return the exit code, 130 after Ctrl-C
int ask_and_write(const Command& command);
/// `acc-config questions`: the table for those who write answers down.
[[nodiscard]] std::string list_of_questions();

}  // namespace acc::configure
