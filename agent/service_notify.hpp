#pragma once

#include "common/duration.hpp"
#include "common/unique_fd.hpp"

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace acc::agent {

/// systemd's notify protocol: one datagram per message to $NOTIFY_SOCKET. Without it, does nothing.
class ServiceNotifier {
 public:
  /// Reads NOTIFY_SOCKET and WATCHDOG_USEC; `main_pid`: WATCHDOG_PID must name it (the guardian is
  /// the main process).
  explicit ServiceNotifier(pid_t main_pid);
  [[nodiscard]] bool is_service() const { return static_cast<bool>(socket_); }
  /// One line for `systemctl status`.
  void status(const std::string& text) const { send("STATUS=" + text); }
  /// Waits up to half a second for a manager whose queue is full: a start or a reload that isn't
  /// told ends by a time-out of the manager.
  void ready(const std::string& text) const { send("READY=1\nSTATUS=" + text, Arrives::must); }
  void stopping(const std::string& text) const { send("STOPPING=1\nSTATUS=" + text); }
  /// Of a service with Type=notify-reload too: systemd waits for the next ready(). Waits as that.
  void reloading() const;
  void feed_watchdog() const { send("WATCHDOG=1"); }
  /// How often WATCHDOG=1 is due: half of the time that systemd waits.
  [[nodiscard]] std::optional<Millis> watchdog_period() const { return watchdog_period_; }

 private:
  enum class Arrives { must, may };
  void send(std::string_view state, Arrives arrives = Arrives::may) const;

  UniqueFd socket_;
  std::string address_;
  std::optional<Millis> watchdog_period_;
};

}  // namespace acc::agent
