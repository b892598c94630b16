#include "runtime/tcp/chain.hpp"

#include <algorithm>

namespace acc::runtime::tcp {

namespace {

/// Bytes reduced at a time, if available: they stay in the processor's cache.
constexpr std::size_t kPiece = 64 * 1024;
/// Partial sums buffered while the next host is busy.
constexpr std::size_t kRing = 16 * kPiece;

/// One run of a chain. Positions count bytes of partial sums (through the ring) or of results, and
/// only increase.
class ChainRun {
 public:
  ChainRun(const Chain::Work& work, const RankPlacement& placement, SocketMux& mux,
           AbortableWait& abortable, ActiveCall& active, std::vector<std::byte>& ring)
      : work_{work},
        mux_{mux},
        abortable_{abortable},
        active_{active},
        reduction_{reduction(work.type, work.op)},
        plain_{partial_type(work.type) == work.type},
        size_{size_of(work.type)},
        partial_{size_of(partial_type(work.type))},
        first_{placement.host == 0},
        last_{placement.host + 1 == placement.hosts.size()},
        direct_{first_ && plain_ && work.inputs.size() == 1},
        prev_{placement.host - 1},
        next_{placement.host + 1},
        ring_{ring} {
    if (ring_.empty()) ring_.resize(kRing);
    if (direct_) reduced_ = sums();
  }

  void run() {
    std::vector<pollfd> waits;
    while (!done()) {
      bool moved = false;
      if (!first_) moved = receive_sums() || moved;
      moved = reduce() || moved;
      if (!last_) {
        moved = send_sums() || moved;
        moved = receive_results() || moved;
      }
      if (!first_) moved = send_results() || moved;
      if (moved) continue;
      collect_waits(waits);
      abortable_.wait(active_, waits);
    }
  }

 private:
  [[nodiscard]] std::size_t sums() const { return work_.count * partial_; }
  [[nodiscard]] std::size_t results() const { return work_.count * size_; }
  [[nodiscard]] bool done() const {
    return results_there() == results() && (first_ || returned_ == results());
  }
  /// Bytes of the result available on this host.
  [[nodiscard]] std::size_t results_there() const {
    return last_ ? reduced_ / partial_ * size_ : results_in_;
  }
  /// Position of the oldest partial sum still needed in the ring.
  [[nodiscard]] std::size_t kept() const { return last_ ? reduced_ : sent_; }
  /// Bytes of the ring from a position on, without wrapping.
  static std::size_t straight(std::size_t position, std::size_t bytes) {
    return std::min(bytes, kRing - position % kRing);
  }
  [[nodiscard]] std::byte* ring(std::size_t position) { return ring_.data() + position % kRing; }

  [[nodiscard]] std::size_t space_for_sums() const {
    return std::min(sums() - received_, kRing - (received_ - kept()));
  }

  bool receive_sums() {
    const auto room = straight(received_, space_for_sums());
    if (room == 0) return false;
    const auto n = receive_some(mux_.socket(prev_), ring(received_), room, active_, abortable_,
                                mux_.rank_at(prev_));
    received_ += n;
    return n > 0;
  }

  // Reduces the whole elements received; the first host starts with its own.
  bool reduce() {
    if (direct_) return false;
    auto there =
        first_ ? std::min(sums() - reduced_, kRing - (reduced_ - sent_)) : received_ - reduced_;
    there = std::min(straight(reduced_, there), kPiece) / partial_ * partial_;
    // Small pieces cost more in system calls than they gain by being early.
    const bool more_comes = (first_ ? reduced_ + there : received_) < sums();
    if (there == 0 || (more_comes && there < kPiece / 4 && !at_edge(there))) return false;
    const auto count = there / partial_;
    const auto offset = reduced_ / partial_ * size_;
    last_ ? finish(ring(reduced_), offset, count) : add(ring(reduced_), offset, count);
    reduced_ += there;
    return true;
  }
  /// The ring ends or is full here, so no larger piece can arrive.
  [[nodiscard]] bool at_edge(std::size_t there) const {
    return (reduced_ + there) % kRing == 0 || received_ - kept() == kRing ||
           (first_ && reduced_ + there - sent_ == kRing);
  }

  void add(std::byte* sum, std::size_t offset, std::size_t count) const {
    std::size_t from = 0;
    if (first_) reduction_.begin(sum, work_.inputs[from++] + offset, count);
    for (; from < work_.inputs.size(); ++from)
      reduction_.add(sum, work_.inputs[from] + offset, count);
  }

  void finish(std::byte* sum, std::size_t offset, std::size_t count) const {
    auto* out = work_.result + offset;
    if (plain_ && work_.inputs.size() == 1) {  // in one pass
      const void* const both[] = {sum, work_.inputs[0] + offset};
      return reduction_.all(out, nullptr, both, 2, count, work_.ranks);
    }
    add(sum, offset, count);
    reduction_.finish(out, sum, count, work_.ranks);
  }

  bool send_sums() {
    const auto bytes = direct_ ? sums() - sent_ : straight(sent_, reduced_ - sent_);
    if (bytes == 0) return false;
    const auto* from = direct_ ? work_.inputs[0] + sent_ : ring(sent_);
    const auto n =
        send_some(mux_.socket(next_), from, bytes, active_, abortable_, mux_.rank_at(next_));
    sent_ += n;
    return n > 0;
  }

  bool receive_results() {
    const auto bytes = results() - results_in_;
    if (bytes == 0) return false;
    const auto n = receive_some(mux_.socket(next_), work_.result + results_in_, bytes, active_,
                                abortable_, mux_.rank_at(next_));
    results_in_ += n;
    return n > 0;
  }

  bool send_results() {
    const auto bytes = results_there() - returned_;
    if (bytes == 0) return false;
    const auto n = send_some(mux_.socket(prev_), work_.result + returned_, bytes, active_,
                             abortable_, mux_.rank_at(prev_));
    returned_ += n;
    return n > 0;
  }

  void collect_waits(std::vector<pollfd>& waits) const {
    waits.clear();
    const auto add_wait = [&](std::size_t host, bool in, bool out) {
      const int events = (in ? POLLIN : 0) | (out ? POLLOUT : 0);
      if (events != 0) waits.push_back({mux_.socket(host), static_cast<short>(events), 0});
    };
    if (!first_) add_wait(prev_, space_for_sums() > 0, results_there() > returned_);
    if (!last_) add_wait(next_, results_in_<results(), reduced_> sent_);
  }

  const Chain::Work& work_;
  SocketMux& mux_;
  AbortableWait& abortable_;
  ActiveCall& active_;
  const Reduction& reduction_;
  bool plain_;
  std::size_t size_, partial_;
  bool first_, last_;
  bool direct_;  ///< the one input is the partial sum, and is sent from where it is
  std::size_t prev_, next_;
  std::vector<std::byte>& ring_;
  std::size_t received_ = 0;    ///< of sums, from the previous host
  std::size_t reduced_ = 0;     ///< of sums, this host's values included
  std::size_t sent_ = 0;        ///< of sums, to the next host
  std::size_t results_in_ = 0;  ///< of results, from the next host
  std::size_t returned_ = 0;    ///< of results, to the previous host
};

}  // namespace

void Chain::run(ActiveCall& active, const Work& work) {
  ChainRun{work, placement_, mux_, abortable_, active, ring_}.run();
}

}  // namespace acc::runtime::tcp
