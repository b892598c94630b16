#include "agent/job_folder_notes.hpp"

#include "agent/job_name.hpp"
#include "agent/report_file.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace acc::agent {

namespace {

constexpr int kFlags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;

// Lays hold of the disk space that exit.json needs: on a disk that is full by then, it goes here.
constexpr char kStarted[] = "the guardian runs; exit.json follows at its end                ";

std::string exit_text(int exit_code, bool was_stopped, std::string_view not_started) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  return "{\"exit_code\": " + std::to_string(exit_code) + ", \"time_ms\": " + std::to_string(ms) +
         (was_stopped ? ", \"stopped\": true" : "") +
         (not_started.empty() ? "" : ", \"not_started\": " + json_string(not_started)) + "}\n";
}

bool write_synced(const std::string& path, int extra_flags, const std::string& text) {
  const UniqueFd fd{::open(path.c_str(), kFlags | extra_flags, 0600)};
  return fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
         ::ftruncate(fd.get(), static_cast<off_t>(text.size())) == 0 && ::fsync(fd.get()) == 0;
}

}  // namespace

std::string daemon_id_of(const char* job_folder) {
  const std::string_view folder{job_folder != nullptr ? job_folder : ""};
  if (!folder.starts_with('/')) return {};
  const auto parent = folder.substr(0, folder.rfind('/'));
  return std::string{parent.substr(parent.rfind('/') + 1)};
}

std::string run_id_of(const std::string& job, const char* job_folder) {
  if (!is_made_up(job)) return job;
  auto id = daemon_id_of(job_folder);
  return id.empty() ? job : id;
}

JobFolderNotes::JobFolderNotes() {
  const char* const folder = std::getenv(kJobFolderVariable);
  if (folder == nullptr || folder[0] != '/') return;
  folder_ = folder;
  const UniqueFd fd{::open((folder_ + "/started").c_str(), kFlags, 0600)};
  // Without it a daemon that was restarted meanwhile would start the job a second time.
  if (!fd || ::write(fd.get(), kStarted, sizeof kStarted - 1) < 0)
    std::fprintf(stderr, "acc-launch: write '%s/started': %s\n", folder, std::strerror(errno));
}

void JobFolderNotes::sync() const {
  if (folder_.empty()) return;
  for (const auto& path : {folder_ + "/started", folder_}) {
    const UniqueFd fd{::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
    if (fd) ::fsync(fd.get());
  }
}

void JobFolderNotes::ended(int exit_code, bool was_stopped, std::string_view not_started) const {
  if (folder_.empty()) return;
  const std::string path = folder_ + "/exit.json";
  const std::string beside = path + ".new";
  const std::string started = folder_ + "/started";
  const std::string text = exit_text(exit_code, was_stopped, not_started);
  const bool is_done =
      (write_synced(beside, O_TRUNC, text) && ::rename(beside.c_str(), path.c_str()) == 0) ||
      (write_synced(started, 0, text) && ::rename(started.c_str(), path.c_str()) == 0);
  if (!is_done)
    std::fprintf(stderr, "acc-launch: write '%s': %s\n", path.c_str(), std::strerror(errno));
}

}  // namespace acc::agent
