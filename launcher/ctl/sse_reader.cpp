#include "launcher/ctl/sse_reader.hpp"

#include <utility>

namespace acc::ctl {

void SseReader::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {  // the second half of CRLF
      bytes.remove_prefix(1);
      continue;
    }
    const auto end = bytes.find_first_of("\r\n");
    const auto part = bytes.substr(0, end);
    is_line_too_long_ = is_line_too_long_ || line_.size() + part.size() > kMaxEvent;
    if (is_line_too_long_) {
      line_.clear();
    } else {
      line_ += part;
    }
    if (end == std::string_view::npos) return;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    const auto line = std::exchange(line_, {});
    if (std::exchange(is_line_too_long_, false)) {
      is_event_too_long_ = true;
    } else {
      take_line(line);
    }
  }
}

std::optional<ServerEvent> SseReader::next() {
  if (ready_.empty()) return std::nullopt;
  auto event = std::move(ready_.front());
  ready_.pop_front();
  return event;
}

void SseReader::begin_again() {
  line_.clear();
  after_cr_ = false;
  is_line_too_long_ = false;
  is_event_too_long_ = false;
  has_data_ = false;
  event_ = {};
  id_ = last_id_;
}

void SseReader::take_line(std::string_view line) {
  if (line.empty()) return dispatch();
  const auto colon = line.find(':');
  if (colon == 0) return;  // a comment
  const auto field = line.substr(0, colon);
  auto value = colon == std::string_view::npos ? std::string_view{} : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "event") {
    event_.name = value;
  } else if (field == "id") {
    if (value.find('\0') == std::string_view::npos) id_ = value;
  } else if (field == "data") {
    if (event_.data.size() + value.size() > kMaxEvent) {
      is_event_too_long_ = true;
    } else {
      if (has_data_) event_.data += '\n';
      event_.data += value;
      has_data_ = true;
    }
  }
}

void SseReader::dispatch() {
  last_id_ = id_;
  auto event = std::exchange(event_, {});
  const bool is_whole = !std::exchange(is_event_too_long_, false);
  if (!std::exchange(has_data_, false) || !is_whole) return;
  if (event.name.empty()) event.name = "message";
  ready_.push_back(std::move(event));
}

}  // namespace acc::ctl
