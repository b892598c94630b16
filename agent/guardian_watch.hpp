#pragma once

#include "agent/guardian_board.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>

namespace acc::agent {

/// Our parent-death signal, SIGTERM, can't be told from any other SIGTERM; where pidfd_open is
/// refused there is no other notification. False without a guardian.
[[nodiscard]] bool is_guardian_gone(const GuardianLink& guardian);

/// Notices on the loop that the guardian, our parent, is gone.
class GuardianWatch {
 public:
  GuardianWatch(boost::asio::io_context& io, const GuardianLink& guardian)
      : guardian_{guardian}, pidfd_{io} {}

  /// @param on_gone  at most once; never without a guardian. It must not destroy the watch.
  void begin(std::function<void()> on_gone);

 private:
  void await_end();

  GuardianLink guardian_;
  std::function<void()> on_gone_;
  boost::asio::posix::stream_descriptor pidfd_;
};

}  // namespace acc::agent
