#include "runtime/checkpoint/folder.hpp"

#include "common/text.hpp"
#include "common/worker_env.hpp"
#include "runtime/checkpoint/manifest.hpp"

#include <unistd.h>
#include <zlib.h>

#include <acc/checkpoint.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <system_error>

namespace acc::runtime {
namespace {

constexpr std::string_view kName = "checkpoint_";
constexpr std::string_view kAside = ".replaced-";

/// nothing: not the name of a checkpoint, like "checkpoint_07".
std::optional<std::uint64_t> number_of(std::string_view name) {
  if (!name.starts_with(kName)) return std::nullopt;
  const auto number = parse_number<std::uint64_t>(name.substr(kName.size()));
  if (!number || *number > kMaxCheckpointNumber) return std::nullopt;
  return checkpoint_name(*number) == name ? number : std::nullopt;
}

/// "checkpoint_18446744073709551615", which no number follows.
bool is_above_all_numbers(std::string_view name) {
  if (!name.starts_with(kName)) return false;
  const auto digits = name.substr(kName.size());
  return !digits.empty() && digits.front() != '0' && !number_of(name) &&
         std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
}

/// The names in a folder; none if it does not exist.
std::vector<std::string> names_in_folder(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  std::filesystem::directory_iterator entry{folder, failed};
  if (failed == std::errc::no_such_file_or_directory) return names;
  for (const std::filesystem::directory_iterator end; !failed && entry != end;
       entry.increment(failed))
    names.push_back(entry->path().filename().native());
  if (failed) checkpoint::fail("read folder", folder, failed.value());
  return names;
}

}  // namespace

std::string checkpoint_name(std::uint64_t number) {
  return std::string{kName} + std::to_string(number);
}

std::vector<std::uint64_t> list_checkpoints(const std::filesystem::path& folder) {
  std::vector<std::uint64_t> numbers;
  for (const auto& name : names_in_folder(folder)) {
    const auto at = std::string_view{name}.starts_with(kAside) ? kAside.size() : 0;
    if (const auto number = number_of(std::string_view{name}.substr(at))) {
      numbers.push_back(*number);
    }
  }
  std::ranges::sort(numbers, std::ranges::greater{});
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

}  // namespace acc::runtime

namespace acc::runtime::checkpoint {
namespace {

constexpr std::string_view kTemporary = ".tmp-acc.";
constexpr std::size_t kLongestName = 255;  ///< bytes of a name in a folder, on Linux

std::string first_line(const char* path) {
  std::ifstream file{path};
  std::string line;
  std::getline(file, line);
  return line;
}

std::uint32_t digest(std::string_view text) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const unsigned char*>(text.data()), text.size()));
}

/// What /proc tells of a process; empty: nothing, as of another user's with hidepid=2.
std::string facts_of(std::int64_t pid) {
  return first_line(("/proc/" + std::to_string(pid) + "/stat").c_str());
}

/// Start time of a process; nothing: none, or only its exit status remains.
std::optional<std::uint64_t> start_in(std::string_view line) {
  const auto name_end = line.rfind(')');  // the name may hold spaces and brackets
  if (name_end == std::string::npos) return std::nullopt;
  const auto fields = split(line.substr(name_end + 1), ' ');
  constexpr std::size_t kStart = 20;  // the 22nd field of all; the first of these is the empty one
  if (fields.size() <= kStart || fields[1] == "Z" || fields[1] == "X") return std::nullopt;
  return parse_number<std::uint64_t>(fields[kStart]);
}

std::uint32_t this_place() {
  std::array<char, 64> space{};
  const auto length = ::readlink("/proc/self/ns/pid", space.data(), space.size());
  return digest(first_line("/proc/sys/kernel/random/boot_id") +
                std::string(space.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))));
}

std::string environment(std::string_view name) {
  const auto* value = std::getenv(std::string{name}.c_str());
  return value != nullptr ? value : "";
}

/// Calls `work`; a failure is only reported.
void attempt(const Tell& tell, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    tell(std::string{error.what()} + "; going on");
  }
}

/// Renamed first: a partially removed checkpoint never has its own name.
void remove_whole(FileOps& files, const fs::path& target) {
  auto doomed = target.parent_path() / temporary_name(this_writer(), target.filename().native());
  files.rename(target, doomed);
  remove_tree(files, doomed);
}

/// The first bytes of a name, without half a character at the end.
std::string_view cut_name(std::string_view name, std::size_t bytes) {
  if (name.size() <= bytes) return name;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; };
  while (bytes > 0 && continues(name[bytes])) --bytes;
  return name.substr(0, bytes);
}

/// Is `path` the root, the working directory, or a folder above it?
bool holds_working_directory(const fs::path& path) {
  std::error_code none;
  auto here = fs::current_path(none);
  for (; !here.empty(); here = here.parent_path()) {
    if (fs::equivalent(path, here, none)) return true;
    if (here == here.parent_path()) break;
  }
  return false;
}

/// The first name in a checkpoint's folder that isn't of its files; empty: none.
std::string foreign_name(const fs::path& path, const Manifest& manifest) {
  auto names = names_in_folder(path);
  std::ranges::sort(names);
  const auto is_foreign = [&](const std::string& name) {
    std::error_code none;
    if (fs::is_directory(fs::symlink_status(path / name, none))) return true;
    return name != kManifest && manifest.find(name) == nullptr;
  };
  const auto found = std::ranges::find_if(names, is_foreign);
  return found != names.end() ? *found : std::string{};
}

Manifest manifest_in(const fs::path& path) {
  constexpr std::uint64_t kLargestManifest = std::uint64_t{1} << 30;
  const auto file = path / kManifest;
  return parse_manifest(read_small(file, kLargestManifest), file.native());
}

/// Why a save must not replace the folder `path`; empty: it holds a checkpoint, or nothing.
std::string reason_to_keep(const fs::path& path) {
  if (path == path.root_path()) return "is the root folder";
  if (holds_working_directory(path)) return "is the working directory, or a folder above it";
  std::error_code failed;
  if (fs::is_empty(path, failed)) return {};
  if (failed) fail("read folder", path, failed.value());
  if (!fs::is_regular_file(path / kManifest, failed)) return "has files, and isn't a checkpoint";
  try {
    const auto foreign = foreign_name(path, manifest_in(path));
    if (foreign.empty()) return {};
    return "is a checkpoint, and also has " + in_quotes(foreign) + ", which isn't one of its files";
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt) throw;
    return std::string{"has files, and its manifest isn't that of a checkpoint ("} + error.what() +
           ")";
  }
}

bool is_damaged(const fs::path& path) {
  try {
    [[maybe_unused]] const Checkpoint opened{path};
    return false;
  } catch (const Error& error) {
    return error.code() == ErrorCode::corrupt;
  }
}

}  // namespace

void refuse_folder_of_checkpoint(const fs::path& folder) {
  std::error_code none;
  if (!fs::is_regular_file(folder / kManifest, none)) return;
  try {
    [[maybe_unused]] const auto manifest = manifest_in(folder);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::corrupt) return;  // something else of that name
    throw;
  }
  throw Error{ErrorCode::invalid_argument,
              in_quotes(folder.native()) +
                  " is a checkpoint, which has files of a model's names itself, and couldn't be "
                  "loaded with others: write the model to another folder"};
}

std::vector<std::string> names_above_all_numbers(const fs::path& folder) {
  auto names = names_in_folder(folder);
  std::erase_if(names, [](const std::string& name) { return !is_above_all_numbers(name); });
  std::ranges::sort(names);
  return names;
}

Writer this_writer() {
  static std::atomic<std::uint64_t> count{0};
  Writer writer;
  writer.place = this_place();
  writer.pid = ::getpid();
  writer.start = start_in(facts_of(writer.pid)).value_or(0);
  const auto job = environment(worker_env::kAccJobId);
  writer.job = job.empty() ? 0 : digest(job);
  writer.round = parse_number<std::uint64_t>(environment(worker_env::kAccRound)).value_or(0);
  writer.count = ++count;
  return writer;
}

std::string temporary_name(const Writer& writer, std::string_view target) {
  std::string name{kTemporary};
  for (const auto number : {std::uint64_t{writer.place}, static_cast<std::uint64_t>(writer.pid),
                            writer.start, std::uint64_t{writer.job}, writer.round, writer.count}) {
    name += std::to_string(number) + ".";
  }
  return name.append(cut_name(target, kLongestName - name.size()));
}

std::optional<Writer> writer_of(std::string_view temporary_name) {
  if (!temporary_name.starts_with(kTemporary)) return std::nullopt;
  const auto fields = split(temporary_name.substr(kTemporary.size()), '.');
  if (fields.size() < 7) return std::nullopt;
  const auto place = parse_number<std::uint32_t>(fields[0]);
  const auto pid = parse_number<std::int64_t>(fields[1]);
  const auto start = parse_number<std::uint64_t>(fields[2]);
  const auto job = parse_number<std::uint32_t>(fields[3]);
  const auto round = parse_number<std::uint64_t>(fields[4]);
  const auto count = parse_number<std::uint64_t>(fields[5]);
  if (!place || !pid || !start || !job || !round || !count || *pid <= 0) return std::nullopt;
  return Writer{*place, *pid, *start, *job, *round, *count};
}

bool is_gone(const Writer& writer, const Writer& self) {
  if (writer.job != 0 && writer.job == self.job && writer.round < self.round) return true;
  if (writer.place != self.place) return false;
  const auto facts = facts_of(writer.pid);
  if (!facts.empty()) return start_in(facts) != writer.start;
  return ::kill(static_cast<pid_t>(writer.pid), 0) != 0 && errno == ESRCH;
}

void make_folders(FileOps& files, const fs::path& path) {
  std::error_code none;
  if (path.empty() || fs::is_directory(path, none)) return;
  const auto parent = path.parent_path();
  if (parent != path) make_folders(files, parent);
  std::error_code failed;
  const auto there = fs::status(path, failed);
  if (fs::is_directory(there)) return;  // "a/b/" has the parent "a/b"
  if (there.type() == fs::file_type::none) fail("use as folder", path, failed.value());
  if (fs::exists(there)) fail("use as folder", path, ENOTDIR);
  try {
    files.make_folder(path);
  } catch (const Error&) {
    if (!fs::is_directory(path, none)) throw;  // another process may have been faster
  }
  files.sync_folder(parent.empty() ? "." : parent);
}

void remove_leftovers(FileOps& files, const fs::path& folder, const Tell& tell) {
  const auto self = this_writer();
  std::vector<fs::path> left;
  std::error_code failed;
  fs::directory_iterator entry{folder, failed};
  for (const fs::directory_iterator end; !failed && entry != end; entry.increment(failed)) {
    const auto name = entry->path().filename().native();
    const auto writer = writer_of(name);
    if (writer && is_gone(*writer, self)) left.push_back(entry->path());
    // Replaced, by a writer that ended before it could remove it.
    std::error_code none;
    if (name.starts_with(kAside) && fs::exists(folder / name.substr(kAside.size()), none)) {
      left.push_back(entry->path());
    }
  }
  for (const auto& path : left) {
    attempt(tell, [&] { remove_tree(files, path); });
  }
}

fs::path aside_of(const fs::path& target) {
  const std::string name = target.filename().native();
  if (kAside.size() + name.size() <= kLongestName)
    return target.parent_path() / (std::string{kAside} + name);
  const auto number = "." + std::to_string(digest(name));
  const auto room = kLongestName - kAside.size() - number.size();
  return target.parent_path() / (std::string{kAside}.append(cut_name(name, room)) + number);
}

fs::path followed(const fs::path& target) {
  std::error_code failed;
  if (!fs::is_symlink(target, failed)) return target;
  auto there = fs::weakly_canonical(target, failed);
  return failed ? target : there;
}

void require_replaceable(const fs::path& target, Standing standing) {
  std::error_code failed;
  const auto there = fs::symlink_status(target, failed);
  if (there.type() == fs::file_type::not_found) return;
  if (there.type() == fs::file_type::none) fail("stat", target, failed.value());
  const bool numbered = standing == Standing::numbered;
  if (numbered && there.type() == fs::file_type::symlink) return;  // only the link is replaced
  std::string reason;
  if (there.type() != fs::file_type::directory) {
    reason = "exists, and isn't a folder";
  } else if (!numbered) {
    reason = reason_to_keep(target);
  }
  if (reason.empty()) return;
  throw Error{ErrorCode::invalid_argument,
              in_quotes(target.native()) + " " + reason +
                  ": it would be removed. Save to another path, or move it away first",
              {},
              "checkpoint"};
}

fs::path present(const fs::path& target) {
  std::error_code none;
  if (fs::exists(target, none)) return target;
  auto aside = aside_of(followed(target));
  return fs::exists(aside, none) ? aside : target;
}

void put_in_place(FileOps& files, const fs::path& whole, const fs::path& target, const Tell& tell) {
  const auto folder = target.parent_path();
  const auto aside = aside_of(target);
  std::error_code none;
  if (!fs::exists(fs::symlink_status(target, none))) {
    files.rename(whole, target);
    files.sync_folder(folder);
  } else if (files.exchange(whole, target)) {
    files.sync_folder(folder);
    attempt(tell, [&] { remove_tree(files, whole); });
  } else {
    if (fs::exists(aside, none)) remove_tree(files, aside);
    files.rename(target, aside);
    files.sync_folder(folder);
    files.rename(whole, target);
    files.sync_folder(folder);
  }
  if (fs::exists(aside, none)) attempt(tell, [&] { remove_whole(files, aside); });
}

void keep_last(FileOps& files, const fs::path& folder, std::uint64_t newest, const Removal& removal,
               const Tell& tell) {
  if (removal.keep <= 0) return;
  auto numbers = list_checkpoints(folder);
  std::erase_if(numbers, [&](std::uint64_t number) {
    return number >= newest || (removal.own && !removal.own->contains(number));
  });
  if (numbers.size() < static_cast<std::size_t>(removal.keep)) return;
  const auto goes_first = [&](std::uint64_t number) {
    return removal.known_bad.contains(number) ||
           is_damaged(present(folder / checkpoint_name(number)));
  };
  // Newest first, bad ones last, as they are removed from the end.
  std::stable_partition(numbers.begin(), numbers.end(), std::not_fn(goes_first));
  for (auto i = static_cast<std::size_t>(removal.keep - 1); i < numbers.size(); ++i) {
    const auto path = folder / checkpoint_name(numbers[i]);
    std::error_code none;
    if (fs::exists(path, none)) attempt(tell, [&] { remove_whole(files, path); });
    if (fs::exists(aside_of(path), none)) {
      attempt(tell, [&] { remove_whole(files, aside_of(path)); });
    }
  }
}

}  // namespace acc::runtime::checkpoint
