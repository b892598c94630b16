#include "agent/daemon/settings.hpp"

#include "agent/daemon/loopback_rules.hpp"
#include "agent/daemon/peer_rules.hpp"
#include "common/daemon_places.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace acc::agent::daemon {

namespace {

using nlohmann::json;

std::string number(std::uint32_t& into, const std::string& text, std::uint32_t least) {
  const auto value = parse_number<std::uint32_t>(text);
  if (!value || *value < least)
    return in_quotes(text, 60) + ": expected a whole number from " + std::to_string(least) + " on";
  into = *value;
  return {};
}

std::string path(std::string& into, const std::string& text) {
  if (!text.starts_with('/')) return in_quotes(text, 200) + ": must be absolute";
  into = text;
  return {};
}

std::string set_slots(Settings& settings, const std::string& text) {
  std::uint32_t slots = 0;
  auto wrong = number(slots, text, 1);
  if (wrong.empty()) settings.slots = slots;
  return wrong;
}

/// "0,1,5", or "" for none.
std::string set_gpus(Settings& settings, const std::string& text) {
  std::vector<std::uint32_t> gpus;
  if (!text.empty() && text != "none") {
    for (const auto& part : split(text, ',')) {
      const auto value = parse_number<std::uint32_t>(trim(part));
      const bool is_twice = value && std::ranges::find(gpus, *value) != gpus.end();
      if (!value || is_twice)
        return in_quotes(text, 60) + ": expected different numbers of devices, as 0,1,2, or none";
      gpus.push_back(*value);
    }
  }
  settings.gpus = std::move(gpus);
  return {};
}

std::string set_listen(Settings& settings, const std::string& text) {
  const auto address = parse_listen_address(text);
  if (!address) return address.error().what;
  settings.listen = text;
  return {};
}

std::string set_http(Settings& settings, const std::string& text) {
  const auto address = parse_loopback_address(text);
  if (!address) return address.error().what;
  settings.http = text;
  return {};
}

/// "a,b:29701"
std::string set_nodes(Settings& settings, const std::string& text) {
  constexpr std::size_t kMost = 4096;
  std::vector<std::string> nodes;
  for (const auto& part : split(text, ',')) {
    const std::string node{trim(part)};
    if (node.empty()) continue;
    if (!parse_node_address(node))
      return in_quotes(node, 80) + ": expected HOST or HOST:PORT, separated by commas";
    if (std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  }
  if (nodes.size() > kMost) return "more than " + std::to_string(kMost) + " nodes";
  settings.nodes = std::move(nodes);
  return {};
}

/// As everywhere, and days.
std::string set_prune_age(Settings& settings, const std::string& text) {
  const bool is_days = text.ends_with('d');
  const auto parsed = parse_duration(is_days ? text.substr(0, text.size() - 1) : text);
  // Elsewhere a number alone is seconds, which nobody means here.
  const bool has_unit = text.find_first_not_of("0123456789.") != text.npos;
  if (parsed && !has_unit)
    return in_quotes(text, 60) + ": its unit is missing: " + text + "d, " + text + "h or " + text +
           "s";
  if (!parsed) return in_quotes(text, 60) + ": expected a time, as 7d, 12h or 90m";
  constexpr int kSecondsOfADay = 24 * 3600;
  constexpr Millis kMost = std::chrono::hours{24 * 3650};
  const auto age = is_days ? std::min(*parsed, kMost) * kSecondsOfADay : *parsed;
  settings.prune_age = std::min<Millis>(age, kMost);
  return {};
}

std::string set_level(Settings& settings, const std::string& text) {
  const auto level = log::level_named(text);
  if (!level || *level == log::Level::off)
    return in_quotes(text, 60) + ": expected trace, debug, info, warn or error";
  settings.log_level = *level;
  return {};
}

constexpr std::array kRows{
    SettingRow{"state-dir", "FOLDER", "jobs, and the lock of the daemon",
               [](Settings& s, const std::string& text) { return path(s.state_dir, text); }},
    SettingRow{"socket", "FILE", "the unix socket of the API",
               [](Settings& s, const std::string& text) { return path(s.socket, text); }},
    SettingRow{"slots", "N", "workers that this node takes; default: its cores", set_slots},
    SettingRow{"gpus", "LIST", "devices that this node offers, as 0,1,2, or none; default: all",
               set_gpus},
    SettingRow{"jobs-dir", "FOLDER",
               "jobs that start with the daemon, *.yaml, *.yml and *.json; default /etc/acc/jobs.d",
               [](Settings& s, const std::string& text) { return path(s.jobs_dir, text); }},
    SettingRow{"prune-age", "TIME", "an ended job is removed after this time; default 7d",
               set_prune_age},
    SettingRow{"prune-jobs", "N", "ended jobs that are kept; default 1000",
               [](Settings& s, const std::string& text) { return number(s.prune_jobs, text, 0); }},
    SettingRow{"launch", "PROGRAM", "acc-launch; default: the one beside this program",
               [](Settings& s, const std::string& text) { return path(s.launch, text); }},
    SettingRow{"listen", "[ADDRESS:]PORT",
               "take requests of other nodes' acc-agents, with the cluster's secret; default: no",
               set_listen},
    SettingRow{
        "http", "ADDRESS:PORT",
        "the API for browsers and other HTTP clients, with tokens, at a loopback address, as "
        "127.0.0.1:9180; default: no",
        set_http},
    SettingRow{"secret-file", "FILE",
               "the cluster's secret; default: as acc-launch, as root also /etc/acc/secret",
               [](Settings& s, const std::string& text) { return path(s.secret_file, text); }},
    SettingRow{"nodes", "LIST",
               "the nodes of the cluster, as a,b:29701: those that /v1/nodes lists", set_nodes},
    SettingRow{"log-level", "LEVEL", "trace, debug, info, warn or error; default info", set_level},
};

std::string with_dashes(std::string_view name) {
  std::string text{name};
  std::ranges::replace(text, '_', '-');
  return text;
}

/// As it would stand on the command line; nothing for what can't.
std::optional<std::string> text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return value.dump();
  if (!value.is_array()) return std::nullopt;
  std::vector<std::string> parts;
  for (const auto& one : value) {
    const bool is_text = one.is_string() && one.get<std::string>().find(',') == std::string::npos;
    if (!one.is_number_unsigned() && !is_text) return std::nullopt;
    parts.push_back(is_text ? one.get<std::string>() : one.dump());
  }
  return join(parts, ",");
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// $variable/acc, or ~/fallback/acc.
std::string user_folder(const char* name, const char* fallback) {
  const auto base = variable(name);
  if (base.starts_with('/')) return base + "/acc";
  return variable("HOME") + '/' + fallback + "/acc";
}

}  // namespace

std::span<const SettingRow> setting_rows() { return kRows; }

const SettingRow* find_setting(std::string_view name) {
  const auto wanted = with_dashes(name);
  const auto* found = std::ranges::find(kRows, wanted, &SettingRow::name);
  return found == kRows.end() ? nullptr : found;
}

std::string_view nearest_setting(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& row : kRows) names.push_back(row.name);
  return nearest(with_dashes(name), names);
}

Complaints apply_settings_file(Settings& settings, std::string_view text, const std::string& path) {
  Complaints complaints;
  const auto complain = [&](const std::string& what) {
    complaints.push_back({Errc::bad_config, path + ": " + what});
  };
  constexpr std::size_t kLongest = 64 * 1024;
  json value;
  try {
    if (text.size() > kLongest) throw std::length_error{"longer than 64 KiB"};
    value = json::parse(text, nullptr, true, true);
  } catch (const std::exception& error) {
    complain(std::string{"not JSON: "} + printable(error.what(), 300));
    return complaints;
  }
  if (!value.is_object()) {
    complain("expected one object: {\"slots\": 8}");
    return complaints;
  }
  for (const auto& [key, one] : value.items()) {
    const auto* row = find_setting(key);
    if (row == nullptr) {
      const auto meant = nearest_setting(key);
      complain("there is no setting " + printable(key, 60) +
               (meant.empty() ? "" : " (did you mean " + std::string{meant} + "?)"));
      continue;
    }
    const auto as_text = text_of(one);
    const auto wrong = as_text ? row->set(settings, *as_text) : "expected text or a number";
    if (!wrong.empty()) complain(printable(key, 60) + ": " + wrong);
  }
  return complaints;
}

std::string default_settings_file(bool is_root) {
  return (is_root ? "/etc/acc" : user_folder("XDG_CONFIG_HOME", ".config")) + "/agent.json";
}

void fill_defaults(Settings& settings, bool is_root, const std::string& own_program) {
  const bool is_own_state = settings.state_dir.empty();
  if (is_own_state)
    settings.state_dir = is_root ? "/var/lib/acc" : user_state_folder(user_folders());
  if (settings.socket.empty())
    settings.socket = !is_own_state ? settings.state_dir + "/agent.sock"
                      : is_root     ? "/run/acc/agent.sock"
                                    : user_daemon_socket(user_folders());
  if (settings.jobs_dir.empty())
    settings.jobs_dir =
        (is_root ? "/etc/acc" : user_folder("XDG_CONFIG_HOME", ".config")) + "/jobs.d";
  if (settings.launch.empty()) {
    const auto slash = own_program.rfind('/');
    settings.launch = own_program.substr(0, slash + 1) + "acc-launch";
  }
}

}  // namespace acc::agent::daemon
