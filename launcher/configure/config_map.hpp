#pragma once

#include "launcher/config.hpp"
#include "launcher/configure/question.hpp"
#include "launcher/key_row.hpp"

#include <string>

/// What is written: the keys and values of a config file, without those that are null or empty.
namespace acc::configure {

/// The file that `accelerate config` writes for the same answers. @param folder  the working
/// directory, for paths that are made absolute
[[nodiscard]] Map config_of(const Answers& answers, const launcher::Environment& environment,
                            const std::string& folder);

/// The file that `accelerate config default` writes on a machine with these devices.
/// @param precision  no, fp16, bf16 or fp8
[[nodiscard]] Map basic_config(const std::string& precision, const std::string& accelerator,
                               std::uint32_t devices);

/// An old file's keys with today's defaults, as `accelerate config update` completes them. Our own
/// keys stay as they are.
[[nodiscard]] Result<Map> updated_config(const launcher::Config& old);

/// A top-level key that Accelerate's own class for a config file has.
[[nodiscard]] bool is_key_of_accelerate(std::string_view key);

/// `value` in place of the key's, or behind the others.
void put(Map& map, std::string_view key, Value value);
/// The section is made where there is none.
void put_in_section(Map& map, std::string_view section, std::string_view key, Value value);
[[nodiscard]] const Value* value_of(const Map& map, std::string_view key);
/// Of a key of acc-launch's table, in its section, where its prefix may be left out. A value that
/// is put replaces one under either name: of both the last counts.
void put_key(Map& map, const launcher::KeyRow& row, Value value);
[[nodiscard]] const Value* value_of_key(const Map& map, const launcher::KeyRow& row);
/// Drops top-level nulls and empty mappings; an empty mapping within a section becomes null.
[[nodiscard]] Map without_empty(Map map);

}  // namespace acc::configure
