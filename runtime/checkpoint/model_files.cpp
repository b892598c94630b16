#include "runtime/checkpoint/model_files.hpp"

#include "common/text.hpp"
#include "runtime/checkpoint/folder.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <acc/error.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <set>
#include <system_error>
#include <utility>

namespace acc::runtime::checkpoint {
namespace {

constexpr int kMostLinks = 40;  ///< as the kernel's

fs::path beside(const fs::path& target) {
  return target.parent_path() / temporary_name(this_writer(), target.filename().native());
}

/// Unless already done: the writer and a reader that completes its renames may run concurrently.
void put(FileOps& files, const fs::path& from, const fs::path& to) {
  std::error_code none;
  try {
    if (fs::exists(from, none)) files.rename(from, to);
  } catch (const Error&) {
    if (fs::exists(from, none)) throw;
  }
}

fs::path list_of(const fs::path& folder, const std::string& last) {
  return folder / (".renames-" + last);
}

}  // namespace

fs::path target_of(fs::path path) {
  std::error_code failed;
  for (int i = 0; fs::is_symlink(path, failed); ++i) {
    if (i == kMostLinks) fail("follow", path, ELOOP);
    const auto next = fs::read_symlink(path, failed);
    if (failed) fail("follow", path, failed.value());
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  const auto there = fs::status(path, failed);
  if (there.type() == fs::file_type::not_found || fs::is_regular_file(there)) return path;
  if (there.type() == fs::file_type::none) fail("stat", path, failed.value());
  throw Error{ErrorCode::invalid_argument, in_quotes(path.native()) + " isn't a file but " +
                                               (fs::is_directory(there) ? "a folder"
                                                : fs::is_fifo(there)    ? "a pipe"
                                                : fs::is_socket(there)  ? "a socket"
                                                                        : "a device") +
                                               ": tensors aren't written in its place"};
}

StagedFiles::StagedFiles(fs::path folder, FileOps& files)
    : folder_{folder.empty() ? fs::path{"."} : std::move(folder)}, files_{files} {}

StagedFiles::~StagedFiles() {
  for (const auto& file : staged_) ::unlink(file.beside.c_str());
}

void StagedFiles::add(const std::string& name, std::span<const Bytes> pieces) {
  const auto target = target_of(folder_ / name);
  staged_.push_back({beside(target), target});
  [[maybe_unused]] const auto record = write_file(files_, staged_.back().beside, pieces, 2);
}

StagedFiles::Open StagedFiles::create(const std::string& name) {
  const auto target = target_of(folder_ / name);
  staged_.push_back({beside(target), target});
  return {files_.create(staged_.back().beside), staged_.back().beside};
}

void StagedFiles::make_valid(const std::vector<std::string>& outdated) {
  std::error_code none;
  const auto replaces = [&](const Staged& file) { return fs::exists(file.target, none); };
  const auto last = staged_.back().target;
  const auto list = list_of(folder_, last.filename().native());
  const bool mixes =
      staged_.size() > 1 && std::any_of(staged_.begin(), staged_.end() - 1, replaces);
  const bool listed = mixes && std::ranges::all_of(staged_, [&](const Staged& file) {
                        return file.target.parent_path() == folder_;  // no links to elsewhere
                      });
  if (mixes) {
    if (listed) write_renames(list);
    files_.remove(last);
    files_.sync_folder(folder_);
  }
  std::set<fs::path> changed{folder_};
  for (const auto& file : std::exchange(staged_, {})) {
    if (file.target == last) files_.sync_folder(folder_);  // what it names is durable before it is
    listed ? put(files_, file.beside, file.target) : files_.rename(file.beside, file.target);
    changed.insert(file.target.parent_path());
  }
  for (const auto& folder : changed) files_.sync_folder(folder);
  if (listed) files_.remove(list);
  for (const auto& name : outdated) files_.remove(folder_ / name);
}

/// From here on the new files are valid.
void StagedFiles::write_renames(const fs::path& list) {
  auto renames = nlohmann::json::array();
  for (const auto& file : staged_)
    renames.push_back({file.beside.filename().native(), file.target.filename().native()});
  const auto text = renames.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto unfinished = beside(list);
  [[maybe_unused]] const auto record = write_file(files_, unfinished, text);
  files_.rename(unfinished, list);
  files_.sync_folder(folder_);
}

void finish_renames(FileOps& files, const fs::path& folder, const std::string& last) {
  const auto list = list_of(folder, last);
  std::error_code none;
  if (!fs::exists(list, none)) return;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
  const auto renames = nlohmann::json::parse(read_small(list, kMost), nullptr, false);
  const auto is_pair = [](const auto& one) {
    return one.is_array() && one.size() == 2 && one[0].is_string() && one[1].is_string();
  };
  if (!renames.is_array() || !std::ranges::all_of(renames, is_pair))
    throw Error{ErrorCode::corrupt, in_quotes(list.native()) + " isn't a list of renames"};
  for (const auto& rename : renames) {
    const fs::path from{rename[0].get<std::string>()}, to{rename[1].get<std::string>()};
    put(files, folder / from.filename(), folder / to.filename());
  }
  files.sync_folder(folder);
  files.remove(list);
}

std::uint64_t parse_size(std::string_view text) {
  const auto refuse = [&] {
    throw Error{ErrorCode::invalid_argument,
                in_quotes(text) + " isn't a size: \"10GB\", \"500MiB\" or a number of bytes"};
  };
  const std::string words{trim(text)};
  char* end = nullptr;
  const double number = std::strtod(words.c_str(), &end);
  const std::string unit{trim(std::string_view{end})};
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 9> kUnits{{{"", 1},
                                        {"KB", 1e3},
                                        {"MB", 1e6},
                                        {"GB", 1e9},
                                        {"TB", 1e12},
                                        {"KIB", 0x1p10},
                                        {"MIB", 0x1p20},
                                        {"GIB", 0x1p30},
                                        {"TIB", 0x1p40}}};
  for (const auto& known : kUnits) {
    if (end == words.c_str() || to_upper(unit) != known.name) continue;
    const bool bits = unit.ends_with('b') && !to_upper(unit).ends_with("IB");
    const double bytes = std::floor(number * known.bytes) / (bits ? 8 : 1);
    if (bytes >= 1 && bytes < 0x1p63) return static_cast<std::uint64_t>(bytes);
  }
  refuse();
  return 0;
}

}  // namespace acc::runtime::checkpoint
