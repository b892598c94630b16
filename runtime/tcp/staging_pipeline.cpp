#include "runtime/tcp/staging_pipeline.hpp"

#include <algorithm>
#include <cstring>

namespace acc::runtime::tcp {

namespace {

/// Bytes up to which a piece is moved by one proxy alone.
constexpr std::size_t kUndivided = 16 * 1024;
constexpr std::size_t kAlign = NodeSegment::kAlign;

struct Part {
  std::size_t begin = 0, end = 0;
};

/// The part of a piece of rank `owner` that this proxy moves.
Part part_of(const RankPlacement& placement, int owner, std::size_t bytes) {
  if (bytes <= kUndivided) return placement.is_proxy(owner) ? Part{0, bytes} : Part{};
  const auto rails = static_cast<std::size_t>(placement.rails);
  const auto each = (bytes / rails + kAlign - 1) / kAlign * kAlign;
  return {std::min(bytes, each * placement.index),
          placement.index + 1 == rails ? bytes : std::min(bytes, each * (placement.index + 1))};
}

std::size_t length_at(const StagingPipeline::Piece& piece, std::size_t offset, std::size_t slot) {
  return piece.bytes > offset ? std::min(slot, piece.bytes - offset) : 0;
}

std::size_t longest(const std::vector<StagingPipeline::Piece>& pieces) {
  std::size_t most = 0;
  for (const auto& piece : pieces) most = std::max(most, piece.bytes);
  return most;
}

}  // namespace

void StagingPipeline::begin(ActiveCall& active) {
  is_first_ = true;
  node_.check_healthy(active);
  peers_.arrive(active);
  active.number = peers_.number();
}

void StagingPipeline::run(ActiveCall& active, const Step& step) {
  const auto pass = ++pass_;
  const bool first = std::exchange(is_first_, false);
  // The half of the staging buffer is free once all ranks have copied out of the pass before the
  // last.
  if (pass > 2) peers_.await_all(active, Count::taken, pass - 2);
  auto* staging = node_.staging(pass);
  // Other calls lay out the buffer differently: nothing is staged before all call the same.
  const bool agreed = !first || calls_agree_here(active);
  if (step.stage && agreed) step.stage(staging);
  post(peers_.mine().staged, pass * shm::kStep);
  if (mux_ != nullptr) {
    if (first) exchange_calls(active);
    if (step.exchange) {
      peers_.await_all(active, Count::staged, pass);
      step.exchange(*mux_, staging);
    }
    mux_->finish(active);
    post(peers_.mine().processed, pass * shm::kStep);
  }
  for (int carrier = 0; carrier < placement_.rails; ++carrier)
    peers_.await(active, carrier, Count::processed, pass);
  // The proxies waited for all ranks to stage only where they had to.
  if (step.copy_out) {
    peers_.await_all(active, Count::staged, pass);
    step.copy_out(staging);
  }
  post(peers_.mine().taken, pass * shm::kStep);
}

// ---- what is called ----

bool StagingPipeline::calls_agree_here(ActiveCall& active) {
  peers_.await_arrivals(active);
  for (int i = 0; i < peers_.size(); ++i)
    if (check_ && !(peers_.arrival(i).what == active.call.what)) return false;
  return true;
}

void StagingPipeline::exchange_calls(ActiveCall& active) {
  mux_->require_open(active);
  calls_.resize(placement_.hosts.size());
  auto& ours = calls_[placement_.host];
  ours.clear();
  for (int i = 0; i < peers_.size(); ++i) ours.push_back(peers_.arrival(i).what);
  for (std::size_t h = 0; h < calls_.size(); ++h) {
    if (h == placement_.host) continue;
    calls_[h].resize(placement_.hosts[h].ranks.size());
    mux_->send(h, reinterpret_cast<const std::byte*>(ours.data()),
               ours.size() * sizeof(Descriptor));
    mux_->receive(h, reinterpret_cast<std::byte*>(calls_[h].data()),
                  calls_[h].size() * sizeof(Descriptor));
  }
  mux_->finish(active);
  if (check_) compare(active);
}

void StagingPipeline::compare(ActiveCall& active) {
  const auto same = [&](const Descriptor& what) { return what == active.call.what; };
  if (std::all_of(calls_.begin(), calls_.end(), [&](const auto& of_host) {
        return std::all_of(of_host.begin(), of_host.end(), same);
      }))
    return;
  std::vector<Descriptor> by_rank;
  for (int r = 0; r < placement_.size(); ++r)
    by_rank.push_back(calls_[placement_.host_of(r)][placement_.index_of(r)]);
  node_.fail(active, mismatch(by_rank, group_));
}

// ---- pieces ----

void StagingPipeline::exchange_pieces(const std::vector<Piece>& pieces, std::size_t slot,
                                      std::size_t offset, SocketMux& mux,
                                      std::byte* staging) const {
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const auto& piece = pieces[p];
    const auto [begin, end] = part_of(placement_, piece.owner, length_at(piece, offset, slot));
    if (end <= begin) continue;
    auto* at = staging + p * slot + begin;
    const auto from = placement_.host_of(piece.owner);
    const auto wanted = [&](std::size_t host) {
      return piece.reader < 0 || placement_.host_of(piece.reader) == host;
    };
    if (from != placement_.host) {
      if (wanted(placement_.host)) mux.receive(from, at, end - begin);
      continue;
    }
    for (std::size_t h = 0; h < placement_.hosts.size(); ++h)
      if (h != from && wanted(h)) mux.send(h, at, end - begin);
  }
}

void StagingPipeline::stage_pieces(const std::vector<Piece>& pieces, std::size_t slot,
                                   std::size_t offset, const From& from, std::byte* staging) const {
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const auto bytes = length_at(pieces[p], offset, slot);
    if (pieces[p].owner == placement_.rank && bytes > 0)
      std::memcpy(staging + p * slot, from(p) + offset, bytes);
  }
}

void StagingPipeline::distribute(ActiveCall& active, const std::vector<Piece>& pieces,
                                 const From& from, const To& to) {
  if (placement_.one_rank_per_host()) return distribute_directly(active, pieces, from, to);
  const auto slot = slot_bytes(pieces.size(), static_cast<std::size_t>(placement_.size()));
  const auto most = longest(pieces);
  std::size_t offset = 0;
  do {
    Step step;
    step.stage = [&](std::byte* staging) { stage_pieces(pieces, slot, offset, from, staging); };
    step.exchange = [&](SocketMux& mux, std::byte* staging) {
      exchange_pieces(pieces, slot, offset, mux, staging);
    };
    step.copy_out = [&](const std::byte* staging) {
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        const auto bytes = length_at(pieces[p], offset, slot);
        if (bytes > 0 && (pieces[p].reader < 0 || pieces[p].reader == placement_.rank))
          std::memcpy(to(p) + offset, staging + p * slot, bytes);
      }
    };
    run(active, step);
    offset += slot;
  } while (offset < most);
}

// One rank per host: sends from and receives into the user's memory.
void StagingPipeline::distribute_directly(ActiveCall& active, const std::vector<Piece>& pieces,
                                          const From& from, const To& to) {
  const auto reads = [&](const Piece& piece, int rank) {
    return piece.reader < 0 || piece.reader == rank;
  };
  Step step;
  step.exchange = [&](SocketMux& mux, std::byte*) {
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      const auto& piece = pieces[p];
      if (piece.owner == placement_.rank) {
        for (std::size_t h = 0; h < placement_.hosts.size(); ++h)
          if (h != placement_.host && reads(piece, placement_.hosts[h].ranks.front()))
            mux.send(h, from(p), piece.bytes);
      } else if (reads(piece, placement_.rank)) {
        mux.receive(placement_.host_of(piece.owner), to(p), piece.bytes);
      }
    }
  };
  run(active, step);
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const auto& piece = pieces[p];
    if (piece.owner == placement_.rank && reads(piece, placement_.rank) && piece.bytes > 0)
      std::memmove(to(p), from(p), piece.bytes);
  }
}

void StagingPipeline::gather(ActiveCall& active, const std::vector<Piece>& pieces, const From& from,
                             const Reduce& reduce) {
  const auto slot = slot_bytes(pieces.size(), static_cast<std::size_t>(placement_.size()));
  const auto most = longest(pieces);
  std::size_t offset = 0;
  do {
    Step step;
    step.stage = [&](std::byte* staging) { stage_pieces(pieces, slot, offset, from, staging); };
    step.exchange = [&](SocketMux& mux, std::byte* staging) {
      exchange_pieces(pieces, slot, offset, mux, staging);
    };
    step.copy_out = [&](const std::byte* staging) {
      std::vector<const void*> at;
      for (std::size_t p = 0; p < pieces.size(); ++p) at.push_back(staging + p * slot);
      if (most > offset) reduce(offset, std::min(slot, most - offset), at.data());
    };
    run(active, step);
    offset += slot;
  } while (offset < most);
}

}  // namespace acc::runtime::tcp
