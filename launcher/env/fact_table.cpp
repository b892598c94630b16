#include "launcher/env/fact_table.hpp"

#include "common/plain_text.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <optional>

namespace acc::env {
namespace {

constexpr std::string_view kNotFound = "not found";
constexpr std::string_view kNotShown = "(set, not shown)";

constexpr std::array<std::string_view, 30> kWantedPrefixes{
    "ACC_",    "ACCELERATE_",    "PET_",  "TORCH", "PYTORCH_",   "NCCL_",  "CUDA_",
    "NVIDIA_", "HIP_",           "ROCR_", "GLOO_", "UCX_",       "FI_",    "OMP_",
    "MKL_",    "SLURM_",         "PBS_",  "LSB_",  "SGE_",       "FLUX_",  "OMPI_",
    "PMI_",    "PMIX_",          "MPI",   "FSDP_", "DEEPSPEED_", "PYTHON", "KUBERNETES_SERVICE_",
    "MASTER_", "JOB_COMPLETION_"};
constexpr std::array<std::string_view, 10> kWantedNames{
    "RANK",        "WORLD_SIZE",   "LOCAL_RANK",      "LOCAL_WORLD_SIZE", "NODE_RANK",
    "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD",       "XDG_RUNTIME_DIR"};
constexpr std::array<std::string_view, 7> kSecretWords{
    "SECRET", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY"};
constexpr std::array<std::string_view, 5> kSecretEnds{"_KEY", "_AUTH", "_JWT", "_PASS", "_PAT"};

bool is_secret(std::string_view name) {
  const auto upper = to_upper(name);
  // A path to a secret is none.
  for (const std::string_view end : {"_FILE", "_PATH", "_DIR"})
    if (upper.ends_with(end)) return false;
  if (upper == "KEY" || upper == "ACC_ETCD_USER") return true;  // NAME:PASSWORD
  const auto is_end = [&](std::string_view end) { return upper.ends_with(end); };
  if (std::ranges::any_of(kSecretEnds, is_end)) return true;
  return std::ranges::any_of(
      kSecretWords, [&](std::string_view word) { return upper.find(word) != std::string::npos; });
}

/// "https://alice:pw@host" becomes "https://alice:***@host", as often as it stands there.
std::string without_url_passwords(std::string_view value) {
  std::string out{value};
  for (auto at = out.find("://"); at != std::string::npos; at = out.find("://", at + 3)) {
    const auto end = std::min(out.find_first_of("/ ,;\t\n\"'", at + 3), out.size());
    const auto sign = out.rfind('@', end);
    const auto colon = out.find(':', at + 3);
    if (sign == std::string::npos || sign < at + 3 || colon >= sign) continue;
    out.replace(colon + 1, sign - colon - 1, "***");
  }
  return out;
}

bool is_of_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

/// Words of a user's own are any: arguments of a script, NAME=VALUE, lines for a shell.
bool is_list_of_words(std::string_view key) {
  constexpr std::string_view kLists[] = {"script_args", "tpu_env", "commands"};
  return std::ranges::find(kLists, key) != std::end(kLists);
}

/// In YAML or JSON, perhaps with a comment.
bool is_unset(std::string_view value) {
  value = trim(value.substr(0, value.find(" #")));
  if (value.ends_with(',')) value = trim(value.substr(0, value.size() - 1));
  return value == "null" || value == "~" || value == "[]" || value == "{}";
}

/// Where what isn't shown begins: behind a secret's `name:`, `NAME=` or `--flag`, also in a
/// comment or in JSON. npos: nowhere.
std::size_t secret_begin(std::string_view line) {
  for (std::size_t begin = 0; begin < line.size(); ++begin) {
    if (!is_of_word(line[begin])) continue;
    auto end = begin;
    while (end < line.size() && is_of_word(line[end])) ++end;
    const auto word = line.substr(begin, end - begin);
    begin = end;
    auto sign = end;  // behind a closing quote and blanks
    while (sign < line.size() && std::string_view{"\"' "}.find(line[sign]) != std::string::npos)
      ++sign;
    const bool is_named = sign < line.size() && (line[sign] == ':' || line[sign] == '=');
    const bool is_set = is_named && !is_unset(line.substr(sign + 1));
    if (is_set && is_list_of_words(word)) return sign + 1;
    std::string name{word.substr(std::min(word.find_first_not_of('-'), word.size()))};
    std::ranges::replace(name, '-', '_');
    if (!is_secret(name)) continue;
    if (is_named) return sign + 1;
    if (word.starts_with("--")) return end;
  }
  return std::string_view::npos;
}

/// Whether a line belongs to the value of a key above it, which stands at `indentation`.
bool continues_value(std::string_view line, std::size_t indentation) {
  const auto first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos || first > indentation) return true;
  const bool is_item =
      line[first] == '-' || (line[first] == '#' && trim(line.substr(first + 1)).starts_with('-'));
  return is_item || line.find(':') == std::string_view::npos;
}

bool is_file(const Fact& fact) { return fact.value.find('\n') != std::string::npos; }

std::vector<std::string> plain_lines(const std::string& text) {
  auto lines = split(text, '\n');
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (auto& line : lines) {
    // plain_line takes the spaces in front for what they are, and so does YAML.
    line = plain_line(line);
  }
  return lines;
}

std::string plain_value(const Fact& fact) {
  return fact.value.empty() ? std::string{kNotFound} : plain_line(fact.value);
}

}  // namespace

std::string shown_value(std::string_view name, std::string_view value) {
  if (!value.empty() && is_secret(name)) return std::string{kNotShown};
  return without_url_passwords(value);
}

std::string shown_config(std::string_view text) {
  std::string out;
  std::optional<std::size_t> hidden;  // indentation of the key whose value isn't shown
  bool is_told = false;
  for (const auto& line : split(text, '\n')) {
    if (hidden && continues_value(line, *hidden)) {
      if (!is_told && !trim(line).empty())
        out += std::string(*hidden + 2, ' ') + std::string{kNotShown} + "\n";
      is_told = is_told || !trim(line).empty();
      continue;
    }
    hidden.reset();
    const auto at = secret_begin(line);
    if (at == std::string_view::npos) {
      out += without_url_passwords(line) + "\n";
      continue;
    }
    hidden = line.find_first_not_of(" \t");
    is_told = !trim(std::string_view{line}.substr(at)).empty();
    out += line.substr(0, at) + (is_told ? " " + std::string{kNotShown} : "") + "\n";
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

bool is_wanted_variable(std::string_view name) {
  return std::ranges::find(kWantedNames, name) != kWantedNames.end() ||
         std::ranges::any_of(kWantedPrefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string to_text(const std::vector<Section>& sections) {
  std::size_t width = 0;
  for (const auto& section : sections)
    for (const auto& fact : section.facts) width = std::max(width, fact.name.size());
  width = std::min<std::size_t>(width, 28);
  std::string out;
  for (const auto& section : sections) {
    out += (out.empty() ? "" : "\n") + section.title + "\n";
    for (const auto& fact : section.facts) {
      auto name = "  " + plain_line(fact.name);
      name.resize(std::max(name.size() + 2, width + 4), ' ');
      if (!is_file(fact)) {
        out += name + plain_value(fact) + "\n";
        continue;
      }
      out += "  " + plain_line(fact.name) + "\n";
      for (const auto& line : plain_lines(fact.value)) out += "    " + line + "\n";
    }
  }
  return out;
}

std::string to_markdown(const std::vector<Section>& sections) {
  std::string out;
  for (const auto& section : sections) {
    out += (out.empty() ? "" : "\n") + std::string{"### "} + section.title + "\n\n";
    for (const auto& fact : section.facts) {
      out += "- `" + plain_line(fact.name) + "`: ";
      if (!is_file(fact)) {
        out += plain_value(fact) + "\n";
        continue;
      }
      // Longer than any run of backquotes in the text.
      std::string fence = "```";
      while (fact.value.find(fence) != std::string::npos) fence += '`';
      out += "\n  " + fence + "\n";
      for (const auto& line : plain_lines(fact.value)) out += "  " + line + "\n";
      out += "  " + fence + "\n";
    }
  }
  return out;
}

std::string to_json(const std::vector<Section>& sections) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& section : sections) {
    auto& into = out[section.title] = nlohmann::ordered_json::object();
    for (const auto& fact : section.facts) {
      if (fact.value.empty())
        into[fact.name] = nullptr;
      else
        into[fact.name] = fact.value;
    }
  }
  // Bytes that aren't UTF-8 (a variable may hold any) are replaced.
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string to_string(const std::vector<Section>& sections, Format format) {
  switch (format) {
    case Format::markdown:
      return to_markdown(sections);
    case Format::json:
      return to_json(sections);
    case Format::text:
      break;
  }
  return to_text(sections);
}

}  // namespace acc::env
