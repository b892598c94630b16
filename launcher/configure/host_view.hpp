#pragma once

#include "launcher/configure/command.hpp"
#include "launcher/host_facts.hpp"

#include <memory>
#include <string>

/// What the verbs share: where the file is, and what is known of the machine.
namespace acc::configure {

/// The operand, else --config_file, else the default place.
[[nodiscard]] std::string file_of(const Command& command);
/// Of --host_facts, else of this machine.
[[nodiscard]] Result<std::unique_ptr<launcher::HostFacts>> facts_of(const Command& command);
/// Of a machine that has all that a config can ask for, for judging a file alone.
[[nodiscard]] std::unique_ptr<launcher::HostFacts> any_machine();
[[nodiscard]] std::string working_folder();
/// What the file holds; empty if it can't be read.
[[nodiscard]] std::string text_of_file(const std::string& path);
[[nodiscard]] bool file_exists(const std::string& path);

}  // namespace acc::configure
