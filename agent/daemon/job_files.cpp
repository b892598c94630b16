#include "agent/daemon/job_files.hpp"

#include "agent/daemon/guardian_words.hpp"
#include "common/fnv.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

namespace acc::agent::daemon {

namespace {

constexpr std::size_t kLargest = std::size_t{1} << 20U;
constexpr std::size_t kMost = 1000;
constexpr std::string_view kJson = ".json";
/// The first wins where two files differ in their ending alone.
constexpr std::array<std::string_view, 3> kEndings{".yaml", ".yml", kJson};

std::string stem_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

std::pair<std::string, std::size_t> order_of(const std::string& name) {
  const auto ending =
      std::ranges::find_if(kEndings, [&](std::string_view one) { return name.ends_with(one); });
  return {stem_of(name), static_cast<std::size_t>(ending - kEndings.begin())};
}

// It only has to tell a changed file from the same one, and each file harms its owner alone.
std::string digest_of(std::string_view text) {
  return std::to_string(fnv1a(text)) + '.' + std::to_string(text.size());
}

// Empty: it may run.
std::string complaint(const struct stat& info, const std::string& stem, uid_t daemon) {
  if (stem.size() > kLongestJobName)
    return "its name has " + std::to_string(stem.size()) +
           " bytes before its ending, and at most " + std::to_string(kLongestJobName) +
           " are one of a job";
  if (!is_job_name(stem))
    return "its name is none of a job: a-z, 0-9, '.', '_' and '-', a letter or digit first";
  if (!S_ISREG(info.st_mode)) return "it is no regular file";
  if (info.st_nlink != 1) return "it has several names (hard links)";
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return "others than its owner may write it: chmod go-w";
  if (daemon != 0 && info.st_uid != daemon)
    return "it belongs to uid " + std::to_string(info.st_uid) +
           ", and this daemon only runs jobs of uid " + std::to_string(daemon);
  if (info.st_size > static_cast<off_t>(kLargest)) return "it is larger than 1 MiB";
  return {};
}

void read_one(int folder, const std::string& folder_path, const std::string& name, uid_t daemon,
              JobFiles& found) {
  const std::string stem = stem_of(name);
  const auto refuse = [&](const std::string& why) { found.refused.push_back({name, stem, why}); };
  const UniqueFd fd{
      ::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)};
  if (!fd) return refuse(errno == ELOOP ? "it is a link" : std::strerror(errno));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return refuse(std::strerror(errno));
  if (const auto why = complaint(info, stem, daemon); !why.empty()) return refuse(why);
  JobFile file{stem, folder_path + '/' + name, info.st_uid, info.st_gid, {},
               {},   name.ends_with(kJson)};
  char chunk[16 * 1024];
  for (;;) {
    const ssize_t n = ::read(fd.get(), chunk, sizeof chunk);
    if (n < 0) return refuse(std::strerror(errno));
    if (n == 0) break;
    file.text.append(chunk, static_cast<std::size_t>(n));
    if (file.text.size() > kLargest) return refuse("it is larger than 1 MiB");
  }
  file.digest = digest_of(file.text) + (file.is_json ? ".json" : "");
  found.files.push_back(std::move(file));
}

}  // namespace

Result<JobFiles> read_job_files(const std::string& folder, uid_t daemon) {
  JobFiles found;
  if (folder.empty()) return found;
  const UniqueFd fd{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!fd && errno == ENOENT) {
    found.has_folder = false;
    return found;
  }
  if (!fd) return system_error(errno, "read the job files of '" + folder + "'");
  const int copy = ::openat(fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = copy >= 0 ? ::fdopendir(copy) : nullptr;
  if (entries == nullptr) return system_error(errno, "read the job files of '" + folder + "'");
  std::vector<std::string> names;
  int failed = 0;
  while (errno = 0, true) {
    const dirent* const entry = ::readdir(entries);
    failed = errno;
    if (entry == nullptr) break;
    const std::string_view name{entry->d_name};
    const bool is_job = std::ranges::any_of(
        kEndings, [name](std::string_view ending) { return name.ends_with(ending); });
    if (name[0] != '.' && is_job) names.emplace_back(name);
    if (names.size() > kMost) break;
  }
  ::closedir(entries);
  // The jobs of files that weren't seen would be stopped.
  if (failed != 0) return system_error(failed, "read the job files of '" + folder + "'");
  std::ranges::sort(names, {}, order_of);
  for (const auto& name : names) {
    const std::string stem = stem_of(name);
    // A JSON file isn't the job of a YAML file beside it, not even where that one is refused.
    const bool is_taken =
        std::ranges::any_of(found.files, [&](const auto& one) { return one.name == stem; }) ||
        (name.ends_with(kJson) &&
         std::ranges::any_of(found.refused, [&](const auto& one) { return one.stem == stem; }));
    if (is_taken)
      found.refused.push_back({name, stem, "another file has the same name but for its ending"});
    else
      read_one(fd.get(), folder, name, daemon, found);
  }
  return found;
}

}  // namespace acc::agent::daemon
