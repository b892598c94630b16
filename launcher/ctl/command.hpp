#pragma once

#include "common/error.hpp"
#include "launcher/flag_table.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace acc::ctl {

/// acc-ctl's words, sorted; nothing is looked up.
struct Command {
  std::string verb;
  std::vector<std::string> operands;
  launcher::FlagValues flags;
  std::vector<std::string> words;  ///< of submit: the command line behind `acc-launch`
  Complaints complaints;

  [[nodiscard]] bool has(std::string_view flag) const { return flags.contains(flag); }
  /// The last one given; empty: none.
  [[nodiscard]] std::string value(std::string_view flag) const;
};

/// Total: any words give an answer, with all complaints together.
[[nodiscard]] Command parse_command(std::span<const std::string> words);

/// "on-failure:3" as {"on-failure", 3}; 0: without limit.
struct RestartWish {
  std::string policy = "no";
  unsigned max = 0;
};
[[nodiscard]] Result<RestartWish> parse_restart(std::string_view text);

/// "10m" before `now_ms`, or a local time "2026-01-31[T12:00[:00]]"; milliseconds since the epoch.
[[nodiscard]] Result<std::int64_t> parse_since(const std::string& text, std::int64_t now_ms);

/// "12h", "30d" of a token, in seconds: at least one, at most 366 days.
[[nodiscard]] Result<std::uint32_t> parse_expiry(std::string_view text);

}  // namespace acc::ctl
