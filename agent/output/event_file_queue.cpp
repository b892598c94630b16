#include "agent/output/event_file_queue.hpp"

#include "agent/output/event_file_line.hpp"
#include "common/foreign_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace acc::agent {

namespace {

/// Behind the path, while it is made.
constexpr const char* kNextFile = ".next";

}  // namespace

// Without a reader a FIFO is refused (ENXIO) and tried again; a slow one is waited for in
// write_once().
int EventFileQueue::open_file() {
  if (largest_ != 0 && ::access(path_.c_str(), F_OK) != 0)
    ::rename((path_ + kNextFile).c_str(), path_.c_str());
  const auto behind = file_behind_links(path_);
  if (behind.error != 0) return behind.error;
  const bool is_link = behind.file != path_ || behind.is_open;
  const int links = is_link ? 0 : O_NOFOLLOW;  // none comes in between
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  // What we make ourselves isn't judged: a server of files may give it another owner.
  UniqueFd fd;
  if (!behind.is_open) fd.reset(::open(behind.file.c_str(), kFlags | O_EXCL, 0644));
  const bool is_new = static_cast<bool>(fd);
  if (!is_new) fd.reset(::open(path_.c_str(), kFlags | links, 0644));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return errno;
  if (!is_new && !behind.is_open && is_planted(info, behind.file)) return EACCES;
  fd_ = std::move(fd);
  look_at_end();
  return 0;
}

// Cut off between the two renamings, it leaves the next file under the name that it is made with:
// open_file().
int EventFileQueue::rotate() {
  const std::string next = path_ + kNextFile;
  const std::string line = event_file_line(begins_at_ + size_);
  ::unlink(next.c_str());  // of a job that was killed here; another user's link or pipe stays
  UniqueFd fresh{::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644)};
  if (!fresh) return errno;
  const ssize_t n = ::write(fresh.get(), line.data(), line.size());
  if (n != static_cast<ssize_t>(line.size())) {
    const int why = n < 0 ? errno : ENOSPC;
    ::unlink(next.c_str());
    return why;
  }
  if (::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) return errno;
  if (::rename(next.c_str(), path_.c_str()) != 0) return errno;
  fd_ = std::move(fresh);
  begins_at_ += size_;
  size_ = line.size();
  return 0;
}

// Whole lines up to the limit; a line that is longer is a file of its own.
int EventFileQueue::make_room(std::string_view& bytes) {
  if (!is_rotating_ || is_in_line_ || is_torn_ || size_ + bytes.size() <= largest_) return 0;
  const auto room = static_cast<std::size_t>(largest_ > size_ ? largest_ - size_ : 0);
  auto end = room == 0 ? std::string_view::npos : bytes.rfind('\n', room - 1);
  if (end == std::string_view::npos) {
    const int why = size_ > kMaxEventFileLine ? rotate() : 0;
    if (why != 0) return why;
    end = bytes.substr(0, static_cast<std::size_t>(largest_)).rfind('\n');
    if (end == std::string_view::npos) end = bytes.find('\n');
  }
  if (end != std::string_view::npos) bytes = bytes.substr(0, end + 1);
  return 0;
}

// One in place of a removed or moved one: a reader goes on there, as after a rotation.
int EventFileQueue::continue_file() {
  if (!continues_at_) return 0;
  if (is_rotating_ && size_ == 0) {
    const std::string line = event_file_line(*continues_at_);
    const ssize_t n = ::write(fd_.get(), line.data(), line.size());
    if (n != static_cast<ssize_t>(line.size())) {
      const int why = n < 0 ? errno : ENOSPC;
      if (n > 0 && ::ftruncate(fd_.get(), 0) != 0) is_torn_ = true;
      fd_.reset();
      return why;
    }
    begins_at_ = *continues_at_;
    size_ = line.size();
  }
  continues_at_.reset();
  return 0;
}

// Removed or renamed, by hand or by another job that shares the file: what follows belongs into one
// that can be read at our path.
EventFileQueue::Place EventFileQueue::place() const {
  struct stat ours {};
  struct stat named {};
  if (::fstat(fd_.get(), &ours) != 0 || !S_ISREG(ours.st_mode)) return Place::at_path;
  if (ours.st_nlink == 0) return Place::removed;
  if (::stat(path_.c_str(), &named) != 0) return errno == ENOENT ? Place::moved : Place::at_path;
  return ours.st_dev == named.st_dev && ours.st_ino == named.st_ino ? Place::at_path : Place::moved;
}

// If no file can be made at the path, as in a folder that was renamed, a file that was moved is
// continued where it is: without a limit, as a rotation renames by path.
void EventFileQueue::follow_path() {
  const auto found = place();
  if (found == Place::at_path) return;
  const auto end = begins_at_ + size_;
  const bool was_torn = std::exchange(is_torn_, false);
  if (found == Place::removed) fd_.reset();
  if (found == Place::moved && open_file() != 0) {
    is_torn_ = was_torn;
    is_rotating_ = false;
    return;
  }
  continues_at_ = end;
}

// A job that was killed may have left half a line.
void EventFileQueue::look_at_end() {
  struct stat info {};
  const bool is_regular = ::fstat(fd_.get(), &info) == 0 && S_ISREG(info.st_mode);
  is_rotating_ = is_regular && largest_ != 0;
  size_ = is_regular ? static_cast<std::uint64_t>(info.st_size) : 0;
  begins_at_ = 0;
  if (size_ == 0) return;
  const UniqueFd reading{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY)};
  char last = '\n';
  if (reading && ::pread(reading.get(), &last, 1, info.st_size - 1) == 1) is_torn_ = last != '\n';
  std::array<char, kMaxEventFileLine> head;
  const ssize_t n = reading ? ::pread(reading.get(), head.data(), head.size(), 0) : 0;
  if (n > 0) begins_at_ = begins_at({head.data(), static_cast<std::size_t>(n)});
}

std::size_t EventFileQueue::write_once(std::string_view bytes) {
  if (waits_for_retry()) {
    lose(bytes, refused());
    return bytes.size();
  }
  if (fd_ && !is_in_line_) follow_path();
  int why = fd_ ? 0 : open_file();
  if (why == 0) why = continue_file();
  if (why != 0) return refuse(bytes, why);
  if (is_torn_) {
    const char end = '\n';
    if (::write(fd_.get(), &end, 1) == 1) {
      is_torn_ = false;
      ++size_;
    }
  }
  const auto all = bytes;
  why = make_room(bytes);
  if (why != 0) return refuse(all, why);
  const ssize_t n = is_torn_ ? -1 : ::write(fd_.get(), bytes.data(), bytes.size());
  if (n > 0) {
    const auto taken = static_cast<std::size_t>(n);
    set_refused(0);
    size_ += taken;
    progressed(taken);
    is_in_line_ = bytes[taken - 1] != '\n';  // the rest of the line follows
    return taken;
  }
  why = n < 0 ? errno : ENOSPC;
  if (why == EAGAIN) wait_writable(fd_.get());
  if (why == EAGAIN || why == EINTR) return 0;
  is_torn_ = is_torn_ || is_in_line_;
  is_in_line_ = false;
  if (why == EPIPE) fd_.reset();  // its reader went away; another one may come
  return refuse(bytes, why);
}

}  // namespace acc::agent
