#pragma once

#include "agent/output/batch_queue.hpp"

#include <string>
#include <string_view>

namespace acc::agent {

/// Writes to a descriptor that we share with others, stdout or stderr: its flags are left alone,
/// whatever it is.
class ConsoleQueue final : public BatchQueue {
 public:
  /// @param fd  stays the caller's and open
  ConsoleQueue(std::string where, int fd, DropPolicy::Limits limits, std::function<void()> wake)
      : BatchQueue{std::move(where), limits, std::move(wake)}, fd_{fd} {}

 private:
  std::size_t write_once(std::string_view bytes) override;
  void open() override;
  [[nodiscard]] bool is_gone(int error) const;

  int fd_;        // what we were given, or own_
  UniqueFd own_;  // the same terminal or pipe, opened anew, so that O_NONBLOCK is ours alone
  std::size_t piece_ = std::size_t{256} << 10U;  // at most so much in one write
  bool regular_ = true;
  bool gone_ = false;  // of the writer thread; its reader went away: it is never tried again
};

}  // namespace acc::agent
