#pragma once

#include "common/alive.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <map>
#include <memory>

namespace acc::agent::daemon {

/// Notices that files grow, by one inotify descriptor for all of them. A watch reports once, so
/// that a reader which is busy with a file costs nothing here.
class FileGrowth {
 public:
  explicit FileGrowth(boost::asio::io_context& io);
  ~FileGrowth();
  FileGrowth(const FileGrowth&) = delete;
  FileGrowth& operator=(const FileGrowth&) = delete;

  /// Calls `told` at the next write to the open file `fd`, its renaming or removal, of a folder at
  /// the next entry that is made in it, until the handle is dropped. Whatever was written before
  /// isn't reported: look after this call. Empty: the kernel has no watch left, so the caller has
  /// to look from time to time.
  using Watch = std::shared_ptr<void>;
  [[nodiscard]] Watch watch(int fd, std::function<void()> told);
  [[nodiscard]] std::size_t watched() const { return watches_.size(); }

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;

  void read_later();
  void read_all();
  void report(int number);

  Descriptor inotify_;
  /// By the kernel's number of the file; several may watch one.
  std::multimap<int, std::weak_ptr<std::function<void()>>> watches_;
  Alive alive_;
};

}  // namespace acc::agent::daemon
