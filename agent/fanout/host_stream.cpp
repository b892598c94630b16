#include "agent/fanout/host_stream.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

HostStream::HostStream(Targets targets, std::string token, OnMark on_mark)
    : WorkerStream{std::move(targets), tail_},
      token_{std::move(token)},
      on_mark_{std::move(on_mark)} {}

void HostStream::take(std::string_view bytes, DropPolicy::Origin origin) {
  heard_ = clock_now();
  while (!bytes.empty()) {
    if (mark_.empty()) {
      const auto begin = on_mark_ ? std::min(bytes.find(kMarkBegin), bytes.size()) : bytes.size();
      pass(bytes.substr(0, begin), origin);
      bytes.remove_prefix(begin);
      if (bytes.empty()) return;
    }
    const auto end = std::min(bytes.find('\n') + 1, bytes.size());  // npos + 1 is 0
    const auto length = end == 0 ? bytes.size() : end;
    mark_.append(bytes.substr(0, length));
    bytes.remove_prefix(length);
    const auto most = begins_mark(mark_, token_) ? kMaxEventMark : kMaxMark;
    if (mark_.back() == '\n' || mark_.size() > most) take_mark(origin);
  }
}

void HostStream::take_mark(DropPolicy::Origin origin) {
  const auto text = std::exchange(mark_, {});
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
