#pragma once

#include "agent/output/losses.hpp"
#include "agent/output/output_options.hpp"
#include "common/alive.hpp"
#include "common/duration.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace boost::asio {
class io_context;
}

namespace acc::agent {

class EventFileQueue;

/// The file of --events: lines go through a bounded queue and a thread, as all output does. A disk
/// that is full or slow holds up nothing; lines are dropped and counted.
///
/// Used on the loop's thread only. The io_context outlives it.
class EventLog {
 public:
  /// @param largest  bytes of the file, then it is renamed to PATH.1; 0: any
  /// @param on_degraded  called on the loop, once, when the file begins to lose lines
  EventLog(boost::asio::io_context& io, const std::string& path, std::uint64_t largest,
           Millis patience, std::function<void(const Losses&)> on_degraded);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// @param line  without its end. Never blocks.
  void write(std::string_view line);
  /// Waits until all is written, within the limits; what isn't is given up and counted.
  /// @return whether nothing was given up for want of time
  bool finish(FlushLimits limits);
  [[nodiscard]] std::optional<Losses> losses() const;

 private:
  void tell_news();

  std::shared_ptr<EventFileQueue> queue_;
  std::function<void(const Losses&)> on_degraded_;
  Alive alive_;
};

}  // namespace acc::agent
