#include "agent/daemon/user_file.hpp"

#include "agent/daemon/same_mount.hpp"
#include "common/fnv.hpp"
#include "common/text.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <string_view>

namespace acc::agent::daemon {

namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NONBLOCK;
constexpr int kFileFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY;

Error refused(const std::string& path, const std::string& why) {
  return {Errc::not_permitted, "open " + in_quotes(path) + " in the job's folder: " + why};
}

Error failed(const std::string& path) {
  const int why = errno;
  if (why == ELOOP) return refused(path, "it is a link");
  if (why == EXDEV) return refused(path, "a file system is mounted over it: unmount it");
  return system_error(why, "open " + in_quotes(path) + " in the job's folder");
}

// A folder below `from`, one part after the other: also without openat2() none may be a link.
Result<UniqueFd> open_folder(int from, const std::string& path) {
  UniqueFd at = open_on_mount(from, ".", kFolderFlags);
  if (!at) return failed(path);
  for (const auto& part : split(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") return refused(path, "it leads out of it");
    at = open_on_mount(at.get(), part.c_str(), kFolderFlags);
    if (!at) return failed(path);
  }
  return at;
}

// The entry of a folder that is worth most; at most so many are looked at: the folder is the
// user's, and the loop is everybody's.
std::optional<std::string> best_entry(
    int folder, int most_entries,
    const std::function<std::optional<std::int64_t>(const char*)>& worth) {
  UniqueFd copy = open_on_mount(folder, ".", kFolderFlags);
  DIR* const entries = copy ? ::fdopendir(copy.get()) : nullptr;
  if (entries == nullptr) return std::nullopt;
  (void)copy.release();
  std::optional<std::string> best;
  std::int64_t most = 0;
  int seen = 0;
  while (const dirent* entry = ::readdir(entries)) {
    if (++seen > most_entries) break;
    if (entry->d_name[0] == '.') continue;
    const auto value = worth(entry->d_name);
    if (!value || (best && *value <= most)) continue;
    best = entry->d_name;
    most = *value;
  }
  ::closedir(entries);
  return best;
}

std::optional<std::int64_t> time_of_folder(int parent, const char* name) {
  struct stat info {};
  if (!stat_on_mount(parent, name, info) || !S_ISDIR(info.st_mode)) return std::nullopt;
  return info.st_mtim.tv_sec * std::int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
}

// Each costs some calls. They are looked at where `latest` is missing, and between two runs.
constexpr int kMostRuns = 256;

std::optional<std::string> latest_run(int logs) {
  char target[256];
  const auto n = ::readlinkat(logs, "latest", target, sizeof target);
  if (n > 0 && n < static_cast<ssize_t>(sizeof target)) {
    std::string name{target, static_cast<std::size_t>(n)};
    if (name.find('/') == std::string::npos && name[0] != '.' && time_of_folder(logs, name.c_str()))
      return name;
  }
  return best_entry(logs, kMostRuns, [&](const char* name) { return time_of_folder(logs, name); });
}

constexpr std::string_view kAttempt = "attempt_";

std::optional<std::int64_t> ms_of_folder(int parent, const std::string& name) {
  const auto time_ns = time_of_folder(parent, name.c_str());
  return time_ns ? std::optional{*time_ns / 1'000'000} : std::nullopt;
}

// When some attempt of a run began. The time of the run's own folder is also that of a removal.
std::optional<std::int64_t> ms_of_run(int logs, const char* name) {
  constexpr int kMostEntries = 64;
  const UniqueFd folder = open_on_mount(logs, name, kFolderFlags);
  std::optional<std::int64_t> time_ms;
  best_entry(folder.get(), kMostEntries, [&](const char* entry) {
    if (!time_ms && std::string_view{entry}.starts_with(kAttempt))
      time_ms = ms_of_folder(folder.get(), entry);
    return std::optional<std::int64_t>{};
  });
  return time_ms;
}

struct Run {
  std::int64_t time_ms = 0;
  std::string name;
  friend auto operator<=>(const Run&, const Run&) = default;
};

// The run of `from` and those after it, in the order in which they began; without `from` the
// latest. Times rise, so that a reader ends with the latest, however a user may have set them.
std::vector<Run> runs_from(int logs, const std::optional<LogPlace>& from) {
  const auto latest = latest_run(logs);
  if (!latest) return {};
  if (from && from->run == fnv1a(*latest)) return {{from->time_ms, *latest}};
  std::vector<Run> runs;
  const auto add = [&](const char* name) {
    const bool is_own = fnv1a(name) == from->run;
    const auto time_ms = name == *latest ? std::nullopt : ms_of_run(logs, name);
    if (time_ms && (is_own || *time_ms > from->time_ms))
      runs.push_back({is_own ? from->time_ms : *time_ms, name});
    return std::optional<std::int64_t>{};
  };
  if (from) best_entry(logs, kMostRuns, add);
  std::ranges::sort(runs);
  const auto of_folder = ms_of_folder(logs, *latest).value_or(0);
  runs.push_back({ms_of_run(logs, latest->c_str()).value_or(of_folder), *latest});
  return runs;
}

std::string name_of_attempt(std::uint32_t number) {
  return std::string{kAttempt} + std::to_string(number);
}

std::vector<std::uint32_t> attempts_of(int run_folder) {
  constexpr int kMostAttempts = 4'096;
  std::vector<std::uint32_t> attempts;
  best_entry(run_folder, kMostAttempts, [&](const char* name) {
    const std::string_view text{name};
    const auto number = text.starts_with(kAttempt)
                            ? parse_number<std::uint32_t>(text.substr(kAttempt.size()))
                            : std::nullopt;
    if (number) attempts.push_back(*number);
    return std::optional<std::int64_t>{};
  });
  std::ranges::sort(attempts);
  return attempts;
}

std::optional<std::uint32_t> newest_attempt(int run_folder) {
  const auto attempts = attempts_of(run_folder);
  return attempts.empty() ? std::nullopt : std::optional{attempts.back()};
}

// In order. The folder is read only where some lie between the two.
std::vector<std::uint32_t> attempts_between(int run_folder, std::uint32_t first,
                                            std::uint32_t newest) {
  if (first >= newest) return {first};
  std::vector<std::uint32_t> attempts{first};
  for (const auto number : attempts_of(run_folder))
    if (number > first && number < newest) attempts.push_back(number);
  attempts.push_back(newest);
  return attempts;
}

}  // namespace

Result<UniqueFd> open_user_file(int folder, const std::string& path, uid_t owner) {
  const auto slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  auto parent = open_folder(folder, slash == std::string::npos ? "." : path.substr(0, slash));
  if (parent.has_error()) return parent.error();
  if (name.empty() || name == "." || name == "..") return refused(path, "it is a folder");
  UniqueFd fd = open_on_mount(parent->get(), name.c_str(), kFileFlags);
  if (!fd && errno == ENXIO) return refused(path, "it is no regular file");  // a socket
  if (!fd) return failed(path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return failed(path);
  if (!S_ISREG(info.st_mode)) return refused(path, "it is no regular file");
  if (info.st_uid != owner) return refused(path, "it belongs to another user");
  return fd;
}

Result<std::string> read_user_file(int folder, const std::string& path, uid_t owner,
                                   std::size_t limit) {
  auto fd = open_user_file(folder, path, owner);
  if (fd.has_error()) return fd.error();
  std::string text;
  char chunk[16 * 1024];
  for (;;) {
    const ssize_t n = ::read(fd->get(), chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(path);
    if (n == 0) return text;
    text.append(chunk, static_cast<std::size_t>(n));
    if (text.size() > limit)
      return refused(path, "it is larger than " + std::to_string(limit) + " bytes");
  }
}

Result<bool> has_user_file(int folder, const std::string& name) {
  struct stat info {};
  if (stat_on_mount(folder, name.c_str(), info)) return true;
  if (errno == ENOENT) return false;
  if (errno == EXDEV) return true;  // a mount has a name below
  return failed(name);
}

std::optional<std::uint32_t> NewestAttempts::in(int run_folder) {
  constexpr Millis kReadAgain{50};
  constexpr std::int64_t kTick_ns = 20'000'000;  // two ticks of the slowest kernel's file times
  constexpr std::size_t kMostKnown = 1024;
  struct stat info {};
  if (::fstat(run_folder, &info) != 0) return std::nullopt;
  if (known_.size() >= kMostKnown) known_.clear();
  const auto [found, is_new] = known_.try_emplace({info.st_dev, info.st_ino});
  auto& known = found->second;
  const bool is_unchanged =
      info.st_mtim.tv_sec == known.changed.tv_sec && info.st_mtim.tv_nsec == known.changed.tv_nsec;
  const auto now = clock_now();
  if (is_new || !(is_unchanged && known.is_settled)) {
    if (is_new || now >= known.read_at + kReadAgain) {
      ++reads_;
      timespec time{};
      ::clock_gettime(CLOCK_REALTIME, &time);
      const auto age_ns = (time.tv_sec - info.st_mtim.tv_sec) * std::int64_t{1'000'000'000} +
                          (time.tv_nsec - info.st_mtim.tv_nsec);
      known = {info.st_mtim, age_ns > kTick_ns, now, newest_attempt(run_folder)};
    } else if (known.attempt) {
      while (time_of_folder(run_folder, name_of_attempt(*known.attempt + 1).c_str()))
        ++*known.attempt;
    }
  }
  return known.attempt;
}

std::vector<UniqueFd> open_log_folders(int folder) {
  std::vector<UniqueFd> opened;
  auto logs = open_folder(folder, "logs");
  if (logs.has_error()) return opened;
  if (const auto run = latest_run(logs->get())) {
    if (auto run_folder = open_folder(logs->get(), *run); run_folder.has_value())
      opened.push_back(std::move(*run_folder));
  }
  opened.push_back(std::move(*logs));
  return opened;
}

Result<RankLog> find_rank_log(int folder, NewestAttempts& attempts, const RankLogChoice& choice,
                              uid_t owner) {
  // The folder is the user's, and the loop is everybody's: a call reads so much, the next one more.
  constexpr int kMostCost = 1'024;
  constexpr int kCostOfRun = 64;  // against an attempt's
  int cost = 0;
  RankLog found{{}, choice.from.value_or(LogPlace{})};
  auto logs = open_folder(folder, "logs");
  if (logs.has_error() && logs.error().code == Errc::not_found) return found;
  if (logs.has_error()) return logs.error();
  const std::string name =
      '/' + std::to_string(choice.local_rank) + (choice.is_stderr ? "/stderr.log" : "/stdout.log");
  const auto runs = runs_from(logs->get(), choice.from);
  for (const auto& run : runs) {
    if ((cost += kCostOfRun) > kMostCost) break;
    auto run_folder = open_folder(logs->get(), run.name);
    if (run_folder.has_error() && choice.from) continue;
    if (run_folder.has_error()) return run_folder.error();
    const bool is_latest = &run == &runs.back();  // of another one none may be found late
    const auto newest =
        is_latest ? attempts.in(run_folder->get()) : newest_attempt(run_folder->get());
    const auto id = fnv1a(run.name);
    const bool is_within = choice.from && choice.from->run == id;
    if (!newest && !is_within) found.place = {run.time_ms, id, 0};
    if (!newest) continue;
    const auto first = is_within ? choice.from->attempt : choice.from ? 0 : *newest;
    for (const auto attempt : attempts_between(run_folder->get(), first, *newest)) {
      if (++cost > kMostCost) return found;
      found.place = {run.time_ms, id, attempt};
      auto fd = open_user_file(run_folder->get(), name_of_attempt(attempt) + name, owner);
      if (fd.has_value())
        found.fd = std::move(*fd);
      else if (!choice.from && fd.error().code != Errc::not_found)
        return fd.error();
      struct stat info {};
      const bool is_new =
          fd.has_value() && ::fstat(found.fd.get(), &info) == 0 && info.st_ino != choice.read;
      if (is_new) return found;
    }
  }
  return found;
}

Result<UniqueFd> open_rank_log(int folder, NewestAttempts& attempts, std::uint32_t local_rank,
                               bool is_stderr, uid_t owner) {
  auto found = find_rank_log(folder, attempts, {local_rank, is_stderr}, owner);
  if (found.has_error()) return found.error();
  if (found->fd) return std::move(found->fd);
  return Error{Errc::not_found,
               "rank " + std::to_string(local_rank) +
                   " has no log in the job's folder: it hasn't started, or the job's words name "
                   "another --log_dir"};
}

Result<UniqueFd> connect_user_socket(int folder, const std::string& name, uid_t owner) {
  // By its descriptor: a name could become a link to another socket between look and connect.
  const UniqueFd socket_file = open_on_mount(folder, name.c_str(), O_PATH);
  if (!socket_file) return failed(name);
  struct stat info {};
  if (::fstat(socket_file.get(), &info) != 0) return failed(name);
  if (!S_ISSOCK(info.st_mode)) return refused(name, "it is no socket");
  if (info.st_uid != owner) return refused(name, "it belongs to another user");
  UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) return failed(name);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(socket_file.get());
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int why = errno;
    if (why == ECONNREFUSED || why == EAGAIN)
      return Error{Errc::unavailable,
                   "the job's agent doesn't answer: " + std::string{std::strerror(why)}, why};
    return system_error(why, "connect to the job's agent");
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != owner)
    return refused(name, "its listener belongs to another user");
  return fd;
}

}  // namespace acc::agent::daemon
