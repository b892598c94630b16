#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace acc::ctl {

struct ServerEvent {
  std::string name;  ///< "message" where the server named none
  std::string data;
  friend bool operator==(const ServerEvent&, const ServerEvent&) = default;
};

/// Server-sent events from the bytes of a stream, in pieces as they arrive (pure). Total: lines
/// that mean nothing are ignored; one event may have at most kMaxEvent bytes, a longer one is
/// dropped.
class SseReader {
 public:
  static constexpr std::size_t kMaxEvent = 4 * 1024 * 1024;

  void feed(std::string_view bytes);
  [[nodiscard]] std::optional<ServerEvent> next();
  /// Of the last event that was complete: where to go on after a lost connection.
  [[nodiscard]] const std::string& last_id() const { return last_id_; }
  /// A new connection: half an event of the old one is forgotten, last_id stays.
  void begin_again();

 private:
  void take_line(std::string_view line);
  void dispatch();

  std::string line_;
  bool after_cr_ = false;
  bool is_line_too_long_ = false;
  bool is_event_too_long_ = false;
  bool has_data_ = false;
  ServerEvent event_;
  std::string id_;
  std::string last_id_;
  std::deque<ServerEvent> ready_;
};

}  // namespace acc::ctl
