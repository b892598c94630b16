#pragma once

#include "common/duration.hpp"
#include "launcher/ctl/bridge_command.hpp"
#include "launcher/ctl/nonblocking_exchange.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace acc::ctl {

/// The complete lines of `held`, which it loses, as marks (agent/fanout/orders.hpp); pure. What is
/// about the file (`file_continued`) and what is too long for a mark are left out.
[[nodiscard]] std::string take_event_marks(std::string& held, const std::string& token);

/// The daemon's stream of one job's events, whose lines become marks: opened when there is a job,
/// and again behind what was read when it broke.
class EventFollower {
 public:
  void want() { is_wanted_ = true; }
  [[nodiscard]] bool is_open() const { return static_cast<bool>(exchange_); }
  [[nodiscard]] const NonblockingExchange& exchange() const { return *exchange_; }
  /// When follow() is due; nothing: not by time.
  [[nodiscard]] std::optional<Instant> tries_again() const { return again_; }

  /// Opens the stream if it is wanted and due.
  /// @param job      empty: there is none yet
  /// @param is_over  not any more
  void follow(const std::string& socket, const BridgeWish& wish, const std::string& job,
              bool is_over, Instant now);

  /// Reads what the descriptor is ready for. @return marks
  std::string read(const std::string& token, Instant now);

 private:
  bool is_wanted_ = false;
  bool is_whole_ = false;
  bool has_begun_ = false;  ///< the answer's header is there
  std::unique_ptr<NonblockingExchange> exchange_;
  std::string held_;  ///< of a line without its end
  std::uint64_t offset_ = 0;
  std::optional<Instant> again_;
};

}  // namespace acc::ctl
