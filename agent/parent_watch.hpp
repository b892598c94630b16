#pragma once

#include "agent/guardian_board.hpp"
#include "agent/guardian_watch.hpp"
#include "agent/life_line_watch.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace acc::agent {

struct LifeLine;

/// Notices that what started this job is gone: the guardian, or, behind the life line, the
/// acc-launch of another host. The workers must not outlive it.
///
/// Used on the loop's thread only. The io_context outlives it.
class ParentWatch {
 public:
  struct Hooks {
    /// @param why  of a life line's end; empty: the guardian is gone
    std::function<void(const std::string& why)> on_lost;
    /// A signal from the launching host, where there is no guardian to pass it to.
    std::function<void(int signo)> on_signal;
    /// The launching host wants to hear from us.
    std::function<void()> on_ask;
  };
  ParentWatch(boost::asio::io_context& io, const GuardianLink& guardian, Hooks hooks);

  void begin(const std::optional<LifeLine>& life_line);

 private:
  void pass_on(int signo);

  boost::asio::io_context& io_;
  GuardianLink guardian_;
  Hooks hooks_;
  GuardianWatch guardian_watch_;
  std::unique_ptr<LifeLineWatch> life_line_;
};

}  // namespace acc::agent
