#include "runtime/shm/collectives.hpp"

namespace acc::runtime::shm {

Collectives::Collectives(Peers& peers, const Regions& regions)
    : peers_{peers},
      regions_{regions},
      segment_{peers.segment()},
      rank_{peers.rank()},
      size_{peers.size()},
      inputs_(static_cast<std::size_t>(size_)),
      staged_{peers} {}

void Collectives::run(ActiveCall& active) {
  const Work work{active};
  if (size_ == 1) {
    alone(work);
  } else if (active.call.by_pairs()) {
    staged_.all_to_all_v(work);
  } else if (work.staged_bytes(size_) <= segment_.layout().small) {
    small(work);
  } else if (const auto at = addresses(work); at.send != 0 || at.recv != 0 || arrives_first(work)) {
    peers_.arrive(active, at.send, at.recv);
    peers_.await_arrivals(active);
    agreed(work);
  } else {
    staged_.run(work, false);
  }
  peers_.complete();
}

/// Most calls stage their first chunk before arriving. Not those that write into slots of other
/// ranks, which may be in another call: then nothing may happen but the report of the mismatch.
bool Collectives::arrives_first(const Work& work) noexcept {
  if (work.is(Operation::scatter)) return true;
  const PullTrial* const pulls = trial(work);
  return pulls != nullptr &&
         !pulls->is_over();  // both ways start alike, so that they can be compared
}

void Collectives::alone(const Work& work) {
  peers_.arrive(work.active);
  if (work.is(Operation::barrier) || work.is(Operation::split)) return;
  copy_bytes(work.recv, work.send, work.bytes_of(0));
}

}  // namespace acc::runtime::shm
