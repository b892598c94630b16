#include "agent/daemon/api_file_growth.hpp"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace acc::agent::daemon {

FileGrowth::FileGrowth(boost::asio::io_context& io) : inotify_{io} {
  const int fd = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (fd < 0) return;  // without: watch() gives nothing
  inotify_.assign(fd);
  read_later();
}

FileGrowth::~FileGrowth() = default;

FileGrowth::Watch FileGrowth::watch(int fd, std::function<void()> told) {
  if (!inotify_.is_open()) return {};
  // Through /proc the file itself is meant, whatever its name leads to by now.
  const auto path = "/proc/self/fd/" + std::to_string(fd);
  const int number = ::inotify_add_watch(
      inotify_.native_handle(), path.c_str(),
      IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF | IN_CREATE | IN_MOVED_TO | IN_ONESHOT);
  if (number < 0) return {};
  struct Handle {
    Alive::Watch owner;
    FileGrowth& growth;
    int number;
    std::shared_ptr<std::function<void()>> told;
    ~Handle() {
      if (!owner.is_alive()) return;
      auto& all = growth.watches_;
      auto [at, end] = all.equal_range(number);
      for (; at != end; ++at) {
        const auto other = at->second.lock();
        if (other != told) continue;
        all.erase(at);
        if (!all.contains(number)) ::inotify_rm_watch(growth.inotify_.native_handle(), number);
        return;
      }
    }
  };
  auto kept = std::make_shared<std::function<void()>>(std::move(told));
  watches_.emplace(number, kept);
  return std::shared_ptr<Handle>{new Handle{alive_.watch(), *this, number, std::move(kept)}};
}

void FileGrowth::read_later() {
  inotify_.async_wait(Descriptor::wait_read, alive_.bind([this](boost::system::error_code error) {
    if (error) return;
    read_all();
    read_later();
  }));
}

void FileGrowth::read_all() {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto n = ::read(inotify_.native_handle(), buffer.data(), buffer.size());
    if (n <= 0) return;
    for (std::size_t at = 0; at + sizeof(inotify_event) <= static_cast<std::size_t>(n);) {
      inotify_event event;
      std::memcpy(&event, buffer.data() + at, sizeof event);
      at += sizeof event + event.len;
      if ((event.mask & IN_Q_OVERFLOW) != 0) {
        // Some reports were lost: everybody looks.
        std::vector<int> numbers;
        for (const auto& [number, told] : watches_) numbers.push_back(number);
        for (const int number : numbers) report(number);
      } else {
        report(event.wd);
      }
    }
  }
}

void FileGrowth::report(int number) {
  const auto [begin, end] = watches_.equal_range(number);
  std::vector<std::shared_ptr<std::function<void()>>> told;
  for (auto at = begin; at != end; ++at) {
    if (auto one = at->second.lock()) told.push_back(std::move(one));
  }
  watches_.erase(begin, end);  // the kernel has dropped it
  for (const auto& one : told) (*one)();
}

}  // namespace acc::agent::daemon
