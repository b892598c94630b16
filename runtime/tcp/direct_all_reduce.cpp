#include "runtime/tcp/direct_all_reduce.hpp"

#include "runtime/shm/reduce.hpp"

#include <algorithm>

namespace acc::runtime::tcp {

namespace {

constexpr std::size_t kChunk = 128 * 1024;
/// Chunks of values sent before the first result.
constexpr std::size_t kLag = 2;
/// Chunks of one rank's values buffered for the slowest rank. More than the lag, else two ranks
/// could wait for each other's results behind values that they have no space for.
constexpr std::size_t kHeld = 6;

struct Span {
  std::size_t at = 0, bytes = 0;
};

/// One run. In each direction the k-th pair on a socket is chunk k of the receiver's slice, in
/// values, and chunk k - kLag of the sender's slice, in results.
class DirectRun {
 public:
  DirectRun(ActiveCall& active, const RankPlacement& placement, SocketMux& mux,
            AbortableWait& abortable, std::vector<std::byte>& scratch)
      : active_{active},
        placement_{placement},
        mux_{mux},
        abortable_{abortable},
        scratch_{scratch},
        kernels_{reduction(active.call.what.dtype, active.call.what.reduce)},
        all_{active.call.bytes()},
        slice_{(all_ / placement.hosts.size() / kAlign + 1) * kAlign},
        chunks_{(std::min(slice_, all_) + kChunk - 1) / kChunk},
        peers_(placement.hosts.size()) {
    scratch_.resize(std::max(scratch_.size(), peers_.size() * kHeld * kChunk));
  }

  void run() {
    std::vector<pollfd> waits;
    for (;;) {
      bool moved = reduce(), done = reduced_ == chunks_;
      for (std::size_t h = 0; h < peers_.size(); ++h) {
        if (h == placement_.host) continue;
        moved = move_out(h) || moved;
        moved = move_in(h) || moved;
        done = done && peers_[h].out.item == items() && peers_[h].in.item == items();
      }
      if (done) return;
      if (moved) continue;
      collect_waits(waits);
      abortable_.wait(active_, waits);
    }
  }

 private:
  static constexpr std::size_t kAlign = 64;

  /// Position in a stream, whose items alternate between values and results.
  struct Cursor {
    std::size_t item = 0;
    std::size_t moved = 0;  ///< bytes of it
  };
  struct Peer {
    Cursor out, in;
  };

  [[nodiscard]] std::size_t items() const { return 2 * (chunks_ + kLag); }
  static bool is_values(std::size_t item) { return item % 2 == 0; }
  /// The chunk of an item: of values possibly past the last, of results possibly before the first
  /// (a large number).
  static std::size_t chunk_of(std::size_t item) {
    return is_values(item) ? item / 2 : item / 2 - kLag;
  }

  /// A chunk of a host's slice; empty: there is none.
  [[nodiscard]] Span chunk(std::size_t host, std::size_t k) const {
    if (k >= chunks_) return {};
    const auto end = std::min(all_, (host + 1) * slice_);
    const auto at = host * slice_ + k * kChunk;
    return at < end ? Span{at, std::min(kChunk, end - at)} : Span{};
  }

  [[nodiscard]] std::byte* held(std::size_t host, std::size_t k) const {
    return scratch_.data() + (host * kHeld + k % kHeld) * kChunk;
  }
  [[nodiscard]] const std::byte* send() const {
    return static_cast<const std::byte*>(active_.call.send);
  }
  [[nodiscard]] std::byte* recv() const { return static_cast<std::byte*>(active_.call.recv); }

  bool reduce() {
    bool any = false;
    while (reduced_ < chunks_ && all_have_sent(reduced_)) {
      const auto [at, bytes] = chunk(placement_.host, reduced_);
      if (bytes > 0) {
        std::vector<const void*> inputs;
        for (std::size_t h = 0; h < peers_.size(); ++h)
          inputs.push_back(h == placement_.host ? send() + at : held(h, reduced_));
        kernels_.all(recv() + at, nullptr, inputs.data(), static_cast<int>(inputs.size()),
                     bytes / size_of(active_.call.what.dtype), placement_.size());
      }
      ++reduced_;
      any = true;
    }
    return any;
  }

  [[nodiscard]] bool all_have_sent(std::size_t k) const {
    for (std::size_t h = 0; h < peers_.size(); ++h)
      if (h != placement_.host && peers_[h].in.item <= 2 * k) return false;
    return true;
  }

  [[nodiscard]] Span outgoing(std::size_t host) const {
    const auto item = peers_[host].out.item;
    return chunk(is_values(item) ? host : placement_.host, chunk_of(item));
  }
  [[nodiscard]] Span incoming(std::size_t host) const {
    const auto item = peers_[host].in.item;
    return chunk(is_values(item) ? placement_.host : host, chunk_of(item));
  }
  [[nodiscard]] bool may_send(std::size_t host) const {
    const auto item = peers_[host].out.item;
    if (item == items()) return false;
    return is_values(item) || outgoing(host).bytes == 0 || chunk_of(item) < reduced_;
  }
  [[nodiscard]] bool may_receive(std::size_t host) const {
    const auto item = peers_[host].in.item;
    if (item == items()) return false;
    return !is_values(item) || incoming(host).bytes == 0 || chunk_of(item) < reduced_ + kHeld;
  }

  bool move_out(std::size_t host) {
    auto& cursor = peers_[host].out;
    bool moved = false;
    while (may_send(host)) {
      const auto [at, bytes] = outgoing(host);
      const auto* from = (is_values(cursor.item) ? send() : recv()) + at + cursor.moved;
      const auto n = bytes == cursor.moved
                         ? 0
                         : send_some(mux_.socket(host), from, bytes - cursor.moved, active_,
                                     abortable_, mux_.rank_at(host));
      if (!advance(cursor, n, bytes)) return moved;
      moved = true;
    }
    return moved;
  }

  bool move_in(std::size_t host) {
    auto& cursor = peers_[host].in;
    bool moved = false;
    while (may_receive(host)) {
      const auto [at, bytes] = incoming(host);
      auto* to =
          (is_values(cursor.item) ? held(host, chunk_of(cursor.item)) : recv() + at) + cursor.moved;
      const auto n = bytes == cursor.moved
                         ? 0
                         : receive_some(mux_.socket(host), to, bytes - cursor.moved, active_,
                                        abortable_, mux_.rank_at(host));
      if (!advance(cursor, n, bytes)) return moved;
      moved = true;
    }
    return moved;
  }

  /// @return true: something moved. An empty item counts.
  static bool advance(Cursor& cursor, std::size_t n, std::size_t bytes) {
    cursor.moved += n;
    if (cursor.moved < bytes) return n > 0;
    ++cursor.item;
    cursor.moved = 0;
    return true;
  }

  void collect_waits(std::vector<pollfd>& waits) const {
    waits.clear();
    for (std::size_t h = 0; h < peers_.size(); ++h) {
      if (h == placement_.host) continue;
      const int events = (may_receive(h) ? POLLIN : 0) | (may_send(h) ? POLLOUT : 0);
      if (events != 0) waits.push_back({mux_.socket(h), static_cast<short>(events), 0});
    }
  }

  ActiveCall& active_;
  const RankPlacement& placement_;
  SocketMux& mux_;
  AbortableWait& abortable_;
  std::vector<std::byte>& scratch_;
  const Reduction& kernels_;
  std::size_t all_;
  std::size_t slice_;   ///< bytes; the last ones may be shorter or empty
  std::size_t chunks_;  ///< of a whole slice
  std::vector<Peer> peers_;
  std::size_t reduced_ = 0;  ///< chunks of the own slice
};

}  // namespace

void DirectAllReduce::run(ActiveCall& active) {
  DirectRun{active, placement_, mux_, abortable_, scratch_}.run();
}

}  // namespace acc::runtime::tcp
