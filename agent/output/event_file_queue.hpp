#pragma once

#include "agent/output/batch_queue.hpp"

#include <string>
#include <string_view>

namespace acc::agent {

/// Appends whole lines to a file (--events). It is opened by the writer thread, as a hung file
/// system must not hold up the loop. What the file does not take is counted as lost; after a line
/// that was cut the next one begins on a line of its own.
class EventFileQueue final : public BatchQueue {
 public:
  EventFileQueue(std::string path, DropPolicy::Limits limits, std::function<void()> wake)
      : BatchQueue{"events in " + path, limits, std::move(wake)}, path_{std::move(path)} {}

 private:
  // All of the writer thread.
  std::size_t write_once(std::string_view bytes) override;
  int open_file();  // errno or 0
  void look_at_end();

  std::string path_;
  UniqueFd fd_;
  bool is_in_line_ = false;  // the last write took a part of a line
  bool is_torn_ = false;      // the file ends in a line whose rest is lost
};

}  // namespace acc::agent
