#include "agent/fanout/launch_record.hpp"

#include "agent/small_file.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "common/user_name.hpp"

#include <nlohmann/json.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace acc::agent {

using Json = nlohmann::json;

namespace {

constexpr std::size_t kMostRecords = 10'000;
constexpr std::size_t kMostParts = 100'000;
constexpr std::string_view kEnd = ".json";

bool is_plain_id(std::string_view id) {
  constexpr std::size_t kLongest = 80;
  return !id.empty() && id.size() <= kLongest && id.front() != '.' &&
         std::ranges::all_of(id, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
         });
}

/// Of /v1/nodes/NAME/….
bool is_node_name(std::string_view name) {
  return std::ranges::all_of(
      name, [](unsigned char c) { return c > ' ' && c < 0x7f && c != '/' && c != '?'; });
}

std::string string_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

/// Stands for all users that a file system doesn't tell apart, as NFS with squashing.
uid_t overflow_uid() {
  constexpr uid_t kUsual = 65534;
  const auto text = read_small_file("/proc/sys/kernel/overflowuid");
  return parse_number<uid_t>(trim(text)).value_or(kUsual);
}

/// The text of a record that is this user's own; empty: there is none. Who may write to the folder
/// (root's HOME may be another user's, as with sudo -E) can put any file there, and change it: so
/// the owner is that of the file that is read. Of root's, "nobody" isn't taken for root.
std::string read_own_record(const std::string& path) {
  constexpr std::size_t kLongest = std::size_t{1} << 24U;
  const UniqueFd file{
      ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  const auto self = ::geteuid();
  const auto owner = self == 0 ? info.st_uid : owner_of_record(info.st_uid, self);
  if (owner != self) return {};
  std::string text;
  std::array<char, 16 * 1024> piece;
  for (;;) {
    const auto n = ::read(file.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 || text.size() > kLongest) return {};
    if (n == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(n));
  }
}

/// With all folders above that are missing; those of our own only for this user.
bool make_folders(const std::string& path) {
  for (auto slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
    ::mkdir(path.substr(0, slash).c_str(), 0700);
  return ::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
}

}  // namespace

std::string launches_folder() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return std::string{state} + "/acc/launches";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') {
    const auto* user = ::getpwuid(::geteuid());
    home = user != nullptr ? user->pw_dir : nullptr;
  }
  if (home == nullptr || *home != '/') return {};
  return std::string{home} + "/.local/state/acc/launches";
}

std::string encode_record(const LaunchRecord& record) {
  auto parts = Json::array();
  for (const auto& part : record.parts)
    parts.push_back({{"host", part.host}, {"node", part.node}, {"job", part.job}});
  return Json{{"id", record.id},
              {"socket", record.socket},
              {"folder", record.folder},
              {"started_ms", record.started_ms},
              {"detached", record.is_detached},
              {"parts", std::move(parts)},
              {"node", record.node},
              {"min_hosts", record.min_hosts}}
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

Result<LaunchRecord> decode_record(std::string_view text) {
  const Error wrong{Errc::malformed, "this is no record of a launch"};
  const auto object = Json::parse(text, nullptr, false);
  if (!object.is_object() || !object.contains("parts") || !object["parts"].is_array()) return wrong;
  LaunchRecord record;
  record.id = string_of(object, "id");
  record.socket = string_of(object, "socket");
  record.folder = string_of(object, "folder");
  if (object.contains("started_ms") && object["started_ms"].is_number_integer())
    record.started_ms = object["started_ms"].get<std::int64_t>();
  record.is_detached = object.contains("detached") && object["detached"] == true;
  if (!is_plain_id(record.id) || object["parts"].size() > kMostParts) return wrong;
  for (const auto& part : object["parts"]) {
    if (!part.is_object()) return wrong;
    record.parts.push_back(
        {string_of(part, "host"), string_of(part, "node"), string_of(part, "job")});
    const bool is_target = is_node_name(record.parts.back().node);
    const auto& job = record.parts.back().job;
    if (!is_target || (!job.empty() && !is_plain_id(job))) return wrong;
  }
  record.node = string_of(object, "node");
  if (object.contains("min_hosts") && object["min_hosts"].is_number_unsigned())
    record.min_hosts = std::min(object["min_hosts"].get<std::size_t>(), record.parts.size());
  if (record.parts.empty() || !is_node_name(record.node)) return wrong;
  return record;
}

Result<void> write_record(const LaunchRecord& record) {
  const auto folder = launches_folder();
  if (folder.empty() || !is_plain_id(record.id))
    return Error{Errc::not_found, "there is no home folder for it"};
  if (!make_folders(folder)) return system_error(errno, "make '" + folder + "'");
  const auto path = folder + "/" + record.id + std::string{kEnd};
  const auto beside = path + "." + std::to_string(::getpid());
  const auto text = encode_record(record);
  {
    const UniqueFd file{::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                               0600)};
    if (!file) return system_error(errno, "write '" + beside + "'");
    std::string_view rest = text;
    while (!rest.empty()) {
      const auto n = ::write(file.get(), rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        const int why = errno;
        ::unlink(beside.c_str());
        return system_error(why, "write '" + beside + "'");
      }
      rest.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  if (::rename(beside.c_str(), path.c_str()) != 0) {
    const int why = errno;
    ::unlink(beside.c_str());
    return system_error(why, "write '" + path + "'");
  }
  return {};
}

void remove_record(const std::string& id) {
  const auto folder = launches_folder();
  if (!folder.empty() && is_plain_id(id))
    ::unlink((folder + "/" + id + std::string{kEnd}).c_str());
}

uid_t owner_of_record(uid_t file, uid_t self) {
  static const uid_t overflow = overflow_uid();
  return file == overflow ? self : file;
}

std::vector<LaunchRecord> read_records() {
  std::vector<LaunchRecord> records;
  const auto folder = launches_folder();
  DIR* const open = folder.empty() ? nullptr : ::opendir(folder.c_str());
  if (open == nullptr) return records;
  const auto own = user_name(::geteuid());
  while (const auto* entry = ::readdir(open)) {
    const std::string name{static_cast<const char*>(entry->d_name)};
    if (!name.ends_with(kEnd) || records.size() == kMostRecords) continue;
    auto record = decode_record(read_own_record(folder + "/" + name));
    if (!record || name != record->id + std::string{kEnd}) continue;
    record->user = own;
    records.push_back(std::move(*record));
  }
  ::closedir(open);
  std::ranges::sort(records, {}, &LaunchRecord::started_ms);
  return records;
}

}  // namespace acc::agent
