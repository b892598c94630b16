#include "agent/fanout/host_stream.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

// What may follow the beginning of a mark: its end, or the beginning of another one.
static constexpr std::string_view kEndsOrBegins = "\n\x1e";
static_assert(kEndsOrBegins.back() == kMarkBegin);

HostStream::HostStream(Targets targets, std::string token, OnMark on_mark)
    : WorkerStream{std::move(targets), tail_},
      token_{std::move(token)},
      on_mark_{std::move(on_mark)} {}

void HostStream::take(std::string_view bytes, DropPolicy::Origin origin) {
  heard_ = clock_now();
  if (is_skipping_) bytes = skip(bytes);
  while (!bytes.empty()) {
    if (mark_.empty()) {
      const auto begin = on_mark_ ? std::min(bytes.find(kMarkBegin), bytes.size()) : bytes.size();
      pass(bytes.substr(0, begin), origin);
      bytes.remove_prefix(begin);
      if (bytes.empty()) return;
      mark_ = kMarkBegin;
      bytes.remove_prefix(1);
    }
    const auto end = std::min(bytes.find_first_of(kEndsOrBegins), bytes.size());
    mark_.append(bytes.substr(0, end));
    bytes.remove_prefix(end);
    const bool is_whole = !bytes.empty() && bytes.front() == '\n';
    if (is_whole) {
      mark_.push_back('\n');
      bytes.remove_prefix(1);
    }
    const auto most = begins_mark(mark_, token_) ? kMaxEventMark : kMaxMark;
    // A second beginning: the first one was a worker's own output, which has no line's end before
    // the mark that follows it.
    if (is_whole || !bytes.empty() || mark_.size() > most) take_mark(origin);
    if (is_skipping_) bytes = skip(bytes);
  }
}

void HostStream::finish() {
  const auto text = std::exchange(mark_, {});
  // A mark whose end was lost with the connection is no output.
  if (!begins_mark(text, token_)) pass(text, DropPolicy::Origin::worker_end);
  WorkerStream::finish();
}

std::string_view HostStream::skip(std::string_view bytes) {
  const auto end = bytes.find_first_of(kEndsOrBegins);
  if (end == std::string_view::npos) return {};
  is_skipping_ = false;
  return bytes.substr(bytes[end] == '\n' ? end + 1 : end);
}

void HostStream::take_mark(DropPolicy::Origin origin) {
  const auto text = std::exchange(mark_, {});
  if (text.size() > kMaxEventMark && begins_mark(text, token_)) {
    is_skipping_ = text.back() != '\n';
    return;
  }
  const auto mark = text.back() == '\n'
                        ? decode_mark(std::string_view{text}.substr(0, text.size() - 1), token_)
                        : std::nullopt;
  if (!mark) return pass(text, origin);
  if (std::holds_alternative<Prepared>(*mark)) is_open_ = true;
  on_mark_(*mark);
}

void HostStream::pass(std::string_view bytes, DropPolicy::Origin origin) {
  if (bytes.empty()) return;
  if (is_open_) return WorkerStream::take(bytes, origin);
  tail_.append(bytes);
}

void HostStream::open() {
  if (std::exchange(is_open_, true)) return;
  const auto said = tail_.text();
  tail_.clear();
  if (!said.empty()) WorkerStream::take(said, DropPolicy::Origin::agent);
}

}  // namespace acc::agent
