#include "launcher/ctl/top/log_text.hpp"

#include "common/plain_text.hpp"

#include <utility>

namespace acc::ctl::top {

namespace {

/// What is kept of a line without an end: a progress bar may go on for ever.
constexpr std::size_t kLongestOpen = std::size_t{64} << 10U;

}  // namespace

void LogText::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    open_ += bytes.substr(0, end);
    if (open_.size() > kLongestOpen) open_.erase(0, open_.size() - kLongestOpen / 2);
    if (end == std::string_view::npos) return;
    put({plain_line(open_, kLongestLine), false});
    open_.clear();
    bytes.remove_prefix(end + 1);
  }
}

void LogText::note(std::string text) {
  finish_open();
  put({std::move(text), true});
}

LogText::Entry LogText::at(std::uint64_t number) const {
  const auto index = static_cast<std::size_t>(number - first_);
  if (index < lines_.size()) return lines_[index];
  return {plain_line(open_, kLongestLine), false};
}

void LogText::put(Entry entry) {
  lines_.push_back(std::move(entry));
  if (lines_.size() <= kMostLines) return;
  lines_.pop_front();
  ++first_;
}

void LogText::finish_open() {
  if (!open_.empty()) put({plain_line(open_, kLongestLine), false});
  open_.clear();
}

}  // namespace acc::ctl::top
