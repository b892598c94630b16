#include "agent/output/worker_stream.hpp"

#include "agent/output/journal_queue.hpp"

#include <algorithm>
#include <utility>

namespace acc::agent {

// A datagram must fit into the socket's buffer.
constexpr std::size_t kMaxRecord = std::size_t{64} << 10U;

WorkerStream::WorkerStream(Targets targets, TailBuffer& tail)
    : targets_{std::move(targets)},
      tail_{tail},
      // Only on a terminal: elsewhere each step of a progress bar would become a line of its own.
      lines_{targets_.is_terminal && targets_.show == Show::prefixed,
             is_journal() ? kMaxRecord : kMaxLine} {}

DropPolicy::Verdict WorkerStream::ask(Instant now) {
  using Verdict = DropPolicy::Verdict;
  const bool is_shown = targets_.show != Show::nothing;
  const Verdict console = is_shown ? targets_.console->ask(now) : Verdict::accept;
  const Verdict file = targets_.slot ? targets_.files->ask(now) : Verdict::accept;
  if (console != Verdict::hold && file != Verdict::hold) return Verdict::accept;
  hold_until_ = console != Verdict::hold ? targets_.files->hold_until()
                : file != Verdict::hold
                    ? targets_.console->hold_until()
                    : std::min(targets_.console->hold_until(), targets_.files->hold_until());
  return Verdict::hold;
}

void WorkerStream::take(std::string_view bytes, DropPolicy::Origin origin) {
  if (targets_.totals != nullptr) {
    targets_.totals->bytes += bytes.size();
    targets_.totals->lines += static_cast<std::uint64_t>(std::ranges::count(bytes, '\n'));
  }
  tail_.append(bytes);
  if (targets_.slot) targets_.files->put(targets_.slot, bytes, origin);
  if (targets_.show == Show::nothing) return;
  std::string& batch = targets_.console->batch();
  const std::size_t mark = batch.size();
  show(bytes, batch);
  commit(mark, origin);
}

void WorkerStream::show(std::string_view bytes, std::string& batch) {
  if (passes_through()) return whole_.feed(bytes, batch);
  lines_.feed(bytes, [&](std::string_view text, bool newline) { put_line(text, newline, batch); });
}

void WorkerStream::put_line(std::string_view text, bool newline, std::string& batch) const {
  if (is_journal()) {
    if (targets_.prefix.empty()) return append_record(batch, text, targets_.journal_fields);
    return append_record(batch, targets_.prefix + std::string{text}, targets_.journal_fields);
  }
  batch.append(targets_.prefix).append(text);
  if (newline) batch.push_back('\n');
}

void WorkerStream::commit(std::size_t mark, DropPolicy::Origin origin) {
  targets_.console->commit(mark, {this, targets_.show == Show::prefixed}, origin);
}

void WorkerStream::release() {
  if (!holds()) return;
  std::string& batch = targets_.console->batch();
  const std::size_t mark = batch.size();
  whole_.release(batch);
  commit(mark, DropPolicy::Origin::worker);
}

void WorkerStream::finish() {
  if (std::exchange(is_finished_, true)) return;
  if (targets_.slot) targets_.files->end(std::move(targets_.slot));
  if (targets_.show == Show::nothing) return;
  std::string& batch = targets_.console->batch();
  const std::size_t mark = batch.size();
  whole_.finish(batch);
  lines_.finish([&](std::string_view text, bool newline) { put_line(text, newline, batch); });
  commit(mark, DropPolicy::Origin::worker);
  targets_.console->ended(this);
}

}  // namespace acc::agent
