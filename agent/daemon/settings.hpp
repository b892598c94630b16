#pragma once

#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/log.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc::agent::daemon {

/// What an administrator sets: command line, then settings file, then the defaults.
struct Settings {
  std::string state_dir;
  std::string socket;
  std::string jobs_dir;
  std::string launch;
  std::string listen;                              ///< [ADDRESS:]PORT; empty: not
  std::string http;                                ///< ADDRESS:PORT of loopback; empty: not
  std::string secret_file;                         ///< empty: the usual places
  std::vector<std::string> nodes;                  ///< HOST[:PORT]
  std::optional<std::uint32_t> slots;              ///< nothing: the cores
  std::optional<std::vector<std::uint32_t>> gpus;  ///< nothing: those of /dev/nvidia*
  Millis prune_age{std::chrono::hours{24 * 7}};
  std::uint32_t prune_jobs = 1000;
  log::Level log_level = log::Level::info;
};

struct SettingRow {
  std::string_view name;  ///< "state-dir": the flag's, and the key's with '_'
  std::string_view metavar;
  std::string_view help;
  /// Empty, or what is wrong with the text.
  std::string (*set)(Settings&, const std::string& text);
};
[[nodiscard]] std::span<const SettingRow> setting_rows();

/// By flag or key; both spellings.
[[nodiscard]] const SettingRow* find_setting(std::string_view name);
[[nodiscard]] std::string_view nearest_setting(std::string_view name);

/// A text of one object, comments allowed; numbers and lists count as their text. All complaints.
Complaints apply_settings_file(Settings& settings, std::string_view text, const std::string& path);

/// What isn't set, for this user and environment.
void fill_defaults(Settings& settings, bool is_root, const std::string& own_program);
/// Where the settings file is looked for without a flag; empty: nowhere.
[[nodiscard]] std::string default_settings_file(bool is_root);

}  // namespace acc::agent::daemon
