#include "agent/output/file_system_check.hpp"

#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

namespace acc::agent {

namespace {

/// Owned by the thread as well, which may stay in the kernel for ever.
struct Question {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_answered = false;
  bool is_local = false;
};

// statfs() asks the server, also where stat() is answered from what is cached.
bool is_local(std::filesystem::path path) {
  constexpr std::array<unsigned long, 8> kLocal{
      0xEF53UL,                                                // ext2 to ext4
      0x58465342UL, 0x9123683EUL, 0xF2F52010UL, 0x2FC12FC1UL,  // XFS, Btrfs, F2FS, ZFS
      0x01021994UL, 0x858458F6UL, 0x794C7630UL};               // tmpfs, ramfs, overlay
  struct statfs info {};
  bool is_there = true;  // else it may be a link to elsewhere the next time
  while (::statfs(path.c_str(), &info) != 0) {
    if (!path.has_relative_path()) return false;
    path = path.parent_path();
    is_there = false;
  }
  return is_there && std::ranges::count(kLocal, static_cast<unsigned long>(info.f_type)) > 0;
}

}  // namespace

bool file_system_answers(const std::string& path, Millis patience) {
  static std::set<std::string> local;
  static std::map<std::string, std::shared_ptr<Question>> asked;
  if (path.empty() || local.contains(path)) return true;
  if (const auto before = asked.find(path); before != asked.end()) {
    const std::lock_guard lock{before->second->mutex};
    if (!before->second->is_answered) return false;
  }
  const auto question = std::make_shared<Question>();
  try {
    std::thread{[question, path] {
      const bool found = is_local(path);
      const std::lock_guard lock{question->mutex};
      question->is_local = found;
      question->is_answered = true;
      question->changed.notify_all();
    }}.detach();
  } catch (const std::system_error&) {
    return true;
  }
  asked[path] = question;
  std::unique_lock lock{question->mutex};
  if (!question->changed.wait_for(lock, patience, [&] { return question->is_answered; }))
    return false;
  if (question->is_local) local.insert(path);
  return true;
}

}  // namespace acc::agent
