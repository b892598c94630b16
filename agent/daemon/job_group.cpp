#include "agent/daemon/job_group.hpp"

#include "agent/containment.hpp"
#include "agent/small_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace acc::agent::daemon {

std::string make_jobs_group() {
  const std::string own = own_cgroup();
  if (own.empty() || ::access(own.c_str(), W_OK) != 0) return {};
  std::string path = own + "/jobs";
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return {};
  return path;
}

// What a user needs to divide it.
static bool give_group(const std::string& path, uid_t uid, gid_t gid) {
  if (::geteuid() != 0) return true;
  for (const char* const name :
       {"", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"}) {
    if (::chown((path + name).c_str(), uid, gid) != 0 && errno != ENOENT) return false;
  }
  return true;
}

UniqueFd make_job_group(const std::string& jobs_group, const std::string& id, uid_t uid,
                        gid_t gid) {
  if (jobs_group.empty()) return {};
  const std::string path = jobs_group + '/' + id;
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return {};
  // A user who may make groups could make any number of them, and each takes time to remove. These
  // files stay root's; cgroup v1 has none of them.
  const auto limit = [&path](const char* name, const char* value) {
    const UniqueFd fd{::open((path + name).c_str(), O_WRONLY | O_CLOEXEC)};
    const auto size = static_cast<ssize_t>(std::strlen(value));
    return fd ? ::write(fd.get(), value, std::strlen(value)) == size : errno == ENOENT;
  };
  if (!limit("/cgroup.max.descendants", "1000") || !limit("/cgroup.max.depth", "16")) return {};
  if (!give_group(path, uid, gid)) return {};
  return UniqueFd{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
}

void kill_job_group(const std::string& jobs_group, const std::string& id) {
  if (!jobs_group.empty()) write_small_file(jobs_group + '/' + id + "/cgroup.kill", "1");
}

// The groups of a user have as many levels as that user likes.
static void remove_groups(const std::string& path, int depth) {
  constexpr int kDeepest = 16;
  if (::rmdir(path.c_str()) == 0 || depth > kDeepest) return;
  std::vector<std::string> inner;
  if (DIR* const folder = ::opendir(path.c_str()); folder != nullptr) {
    while (const dirent* entry = ::readdir(folder)) {
      if (entry->d_type == DT_DIR && entry->d_name[0] != '.') inner.push_back(entry->d_name);
    }
    ::closedir(folder);
  }
  for (const auto& name : inner) remove_groups(path + '/' + name, depth + 1);
  ::rmdir(path.c_str());
}

bool drop_job_group(const std::string& jobs_group, const std::string& id) {
  return jobs_group.empty() || ::rmdir((jobs_group + '/' + id).c_str()) == 0 || errno == ENOENT;
}

bool remove_job_group(const std::string& jobs_group, const std::string& id) {
  if (drop_job_group(jobs_group, id)) return true;
  const std::string path = jobs_group + '/' + id;
  give_group(path, 0, 0);
  kill_job_group(jobs_group, id);
  remove_groups(path, 0);
  return drop_job_group(jobs_group, id);
}

}  // namespace acc::agent::daemon
