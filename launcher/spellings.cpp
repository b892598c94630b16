#include "launcher/spellings.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <functional>

namespace acc::launcher {

namespace {

std::string hyphenated(std::string_view name) {
  std::string out{name};
  std::ranges::replace(out, '_', '-');
  return out;
}

/// torchrun's flags that Accelerate doesn't have: with these a line can't be one of Accelerate's,
/// which refuses abbreviations.
constexpr std::string_view kTorchrunAlone[] = {
    "nnodes",          "nproc_per_node",    "rdzv_endpoint",      "rdzv_id",
    "standalone",      "start_method",      "run_path",           "redirects",
    "node_rank",       "local_addr",        "local_ranks_filter", "master_addr",
    "master_port",     "event_log_handler", "numa_binding",       "signals_to_handle",
    "shutdown_timeout"};

/// Flags of other launchers that begin a flag of torchrun with another meaning: --local_rank would
/// be --local_ranks_filter, which hides the output of the other ranks; --signal is srun's.
constexpr std::string_view kNoAbbreviations[] = {"local_rank", "signal"};

/// Letters of `longer` in their order, its first one among them: "procs" of "processes".
bool is_short_for(std::string_view word, std::string_view longer) {
  if (word.empty() || word.size() >= longer.size() || word[0] != longer[0]) return false;
  std::size_t at = 0;
  for (const char c : longer) at += at < word.size() && word[at] == c ? 1 : 0;
  return at == word.size();
}

/// "num_procs" of "num_processes": each part is the name's, or short for it.
bool is_shortened(std::string_view word, std::string_view name) {
  std::string spelled{word};
  std::ranges::replace(spelled, '-', '_');
  const auto given = split(spelled, '_');
  std::string longer{name};
  std::ranges::replace(longer, '-', '_');
  const auto known = split(longer, '_');
  constexpr std::size_t kFewestLetters = 5;  // "m_p" is half of all names
  if (given.size() != known.size() || word.size() < kFewestLetters) return false;
  return std::ranges::equal(given, known, [](std::string_view a, std::string_view b) {
    return a == b || is_short_for(a, b);
  });
}

}  // namespace

Spellings::Spellings() {
  names_.reserve(512);
  for (const auto& row : key_rows()) {
    if (!row.is_flag) continue;
    add(row, row.name);
    if (!row.aliases.empty()) {
      for (const auto& alias : split(row.aliases, ' ')) add(row, alias);
    }
    if (row.letter != 0) names_.emplace(std::string{'-', row.letter}, &row);
  }
}

void Spellings::add(const KeyRow& row, std::string_view name) {
  names_.emplace("--" + std::string{name}, &row);
  names_.emplace("--" + hyphenated(name), &row);
}

const KeyRow* Spellings::find(std::string_view spelled) const {
  const auto found = names_.find(std::string{spelled});
  return found == names_.end() ? nullptr : found->second;
}

std::vector<std::string_view> Spellings::beginning_with(std::string_view spelled) const {
  std::vector<std::string_view> all;
  for (const auto& [name, row] : names_) {
    if (name.starts_with("--") && name.starts_with(spelled)) all.push_back(name);
  }
  std::ranges::sort(all, std::greater{});  // of two forms of a name, the one with _ is first
  std::vector<std::string_view> names;
  std::vector<const KeyRow*> rows;
  for (const auto name : all) {
    if (std::ranges::find(rows, find(name)) != rows.end()) continue;
    rows.push_back(find(name));
    names.push_back(name);
  }
  std::ranges::reverse(names);
  return names;
}

const KeyRow* Spellings::find_abbreviated(std::string_view spelled) const {
  if (!spelled.starts_with("--") || spelled.size() < 3) return nullptr;
  std::string given{spelled.substr(2)};
  std::ranges::replace(given, '-', '_');
  if (std::ranges::find(kNoAbbreviations, given) != std::end(kNoAbbreviations)) return nullptr;
  const auto names = beginning_with(spelled);
  if (names.size() != 1) return nullptr;
  std::string name{names.front().substr(2)};
  std::ranges::replace(name, '-', '_');
  const bool is_torchruns = std::ranges::find(kTorchrunAlone, name) != std::end(kTorchrunAlone);
  return is_torchruns ? find(names.front()) : nullptr;
}

std::string Spellings::lengthened(std::string_view word) const {
  std::string name;
  for (const auto& [known, row] : names_) {
    if (!known.starts_with("--") || !is_shortened(word, std::string_view{known}.substr(2)))
      continue;
    if (!name.empty() && find(name) != row) return {};
    name = std::max(name, known);  // of two forms of a name, the one with _
  }
  return name;
}

Spellings::Meant Spellings::meant_by(std::string_view spelled) const {
  constexpr std::size_t kMostToList = 4;
  const auto longer =
      spelled.size() > 3 ? beginning_with(spelled) : std::vector<std::string_view>{};
  if (longer.size() == 1)
    return {find(longer.front()), "did you mean " + std::string{longer.front()} + "?"};
  if (longer.size() > 1 && longer.size() <= kMostToList) {
    const std::vector<std::string> words{longer.begin(), longer.end()};
    return {nullptr, "it could be " + join(words, ", ")};
  }
  if (!spelled.starts_with("--")) {  // one dash too few?
    const auto whole = "-" + std::string{spelled};
    const auto* row = spelled.size() > 2 ? find(whole) : nullptr;
    return row == nullptr ? Meant{} : Meant{row, "did you mean " + whole + "?"};
  }
  std::vector<std::string_view> names;  // without dashes, which say nothing about the nearness
  for (const auto& [name, row] : names_) {
    if (name.starts_with("--")) names.push_back(std::string_view{name}.substr(2));
  }
  std::ranges::sort(names);
  const auto known = nearest(spelled.substr(2), names);
  const auto name = known.empty() ? lengthened(spelled.substr(2)) : "--" + std::string{known};
  if (name.empty()) return {};
  return {find(name), "did you mean " + name + "?"};
}

}  // namespace acc::launcher
