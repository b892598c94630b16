#include "runtime/tcp/rounds.hpp"

#include <algorithm>
#include <cstring>

namespace acc::runtime::hosts {

namespace {

/// Smaller pieces aren't worth several carriers.
constexpr std::size_t kUndivided = 16 * 1024;
constexpr std::size_t kAlign = 64;

struct Part {
  std::size_t begin = 0, end = 0;
};

/// What a carrier moves of `bytes` that belong to rank `owner`.
Part part_of(const Placement& placement, int owner, std::size_t bytes) {
  if (bytes <= kUndivided) return placement.carries(owner) ? Part{0, bytes} : Part{};
  const auto columns = static_cast<std::size_t>(placement.columns);
  const auto each = (bytes / columns + kAlign - 1) / kAlign * kAlign;
  return {std::min(bytes, each * placement.index),
          placement.index + 1 == columns ? bytes : std::min(bytes, each * (placement.index + 1))};
}

std::size_t length_at(const Rounds::Piece& piece, std::size_t offset, std::size_t slot) {
  return piece.bytes > offset ? std::min(slot, piece.bytes - offset) : 0;
}

std::size_t slot_for(const std::vector<Rounds::Piece>& pieces) {
  return Room::kBoard / std::max<std::size_t>(pieces.size(), 1) / kAlign * kAlign;
}

std::size_t longest(const std::vector<Rounds::Piece>& pieces) {
  std::size_t most = 0;
  for (const auto& piece : pieces) most = std::max(most, piece.bytes);
  return most;
}

}  // namespace

void Rounds::begin(Turn& turn) {
  turn.number = ++number_;
  is_first_ = true;
  room_.check_well(turn);
  room_.arrive(turn);
}

void Rounds::run(Turn& turn, const Step& step) {
  const auto round = ++round_;
  const bool first = std::exchange(is_first_, false);
  // The turn of the board before the last is free when nobody reads it any more.
  if (round > 2) room_.await_all(turn, &Place::taken, round - 2);
  auto* board = room_.board(round);
  // Other calls have other places on the board: nothing is laid there before all call the same.
  const bool agreed = !first || calls_agree_here(turn);
  if (step.stage && agreed) step.stage(board);
  post(room_.mine().staged, round * shm::kStep);
  if (courier_ != nullptr) {
    if (first) exchange_calls(turn);
    if (step.carry) {
      room_.await_all(turn, &Place::staged, round);
      step.carry(*courier_, board);
    }
    courier_->finish(turn);
    post(room_.mine().carried, round * shm::kStep);
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(placement_.columns); ++i)
    room_.await(turn, &Place::carried, i, round);
  // The carriers waited for all to stage only where they had to.
  if (step.take) {
    room_.await_all(turn, &Place::staged, round);
    step.take(board);
  }
  post(room_.mine().taken, round * shm::kStep);
}

// ---- what is called ----

bool Rounds::calls_agree_here(Turn& turn) {
  room_.await_arrivals(turn);
  for (std::size_t i = 0; i < room_.size(); ++i)
    if (check_ && !(room_.place(i).what[turn.number % 2] == turn.call.what)) return false;
  return true;
}

void Rounds::exchange_calls(Turn& turn) {
  calls_.resize(placement_.hosts.size());
  auto& ours = calls_[placement_.host];
  ours.clear();
  for (std::size_t i = 0; i < room_.size(); ++i)
    ours.push_back(room_.place(i).what[turn.number % 2]);
  for (std::size_t h = 0; h < calls_.size(); ++h) {
    if (h == placement_.host) continue;
    calls_[h].resize(placement_.hosts[h].ranks.size());
    courier_->send(h, reinterpret_cast<const std::byte*>(ours.data()),
                   ours.size() * sizeof(Descriptor));
    courier_->receive(h, reinterpret_cast<std::byte*>(calls_[h].data()),
                      calls_[h].size() * sizeof(Descriptor));
  }
  courier_->receive_all(turn);
  if (check_) compare(turn);
}

void Rounds::compare(Turn& turn) {
  const auto same = [&](const Descriptor& what) { return what == turn.call.what; };
  if (std::all_of(calls_.begin(), calls_.end(), [&](const auto& of_host) {
        return std::all_of(of_host.begin(), of_host.end(), same);
      }))
    return;
  std::vector<Descriptor> by_rank;
  for (int r = 0; r < placement_.size(); ++r)
    by_rank.push_back(calls_[placement_.host_of(r)][placement_.index_of(r)]);
  room_.fail(turn, mismatch(by_rank, group_));
}

// ---- pieces ----

void Rounds::carry_pieces(const std::vector<Piece>& pieces, std::size_t slot, std::size_t offset,
                          Courier& courier, std::byte* board) const {
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const auto& piece = pieces[p];
    const auto [begin, end] = part_of(placement_, piece.owner, length_at(piece, offset, slot));
    if (end <= begin) continue;
    auto* at = board + p * slot + begin;
    const auto from = placement_.host_of(piece.owner);
    const auto wanted = [&](std::size_t host) {
      return piece.reader < 0 || placement_.host_of(piece.reader) == host;
    };
    if (from != placement_.host) {
      if (wanted(placement_.host)) courier.receive(from, at, end - begin);
      continue;
    }
    for (std::size_t h = 0; h < placement_.hosts.size(); ++h)
      if (h != from && wanted(h)) courier.send(h, at, end - begin);
  }
}

void Rounds::stage_pieces(const std::vector<Piece>& pieces, std::size_t slot, std::size_t offset,
                          const From& from, std::byte* board) const {
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const auto bytes = length_at(pieces[p], offset, slot);
    if (pieces[p].owner == placement_.rank && bytes > 0)
      std::memcpy(board + p * slot, from(p) + offset, bytes);
  }
}

void Rounds::spread(Turn& turn, const std::vector<Piece>& pieces, const From& from, const To& to) {
  if (placement_.alone()) return spread_directly(turn, pieces, from, to);
  const auto slot = slot_for(pieces);
  const auto most = longest(pieces);
  std::size_t offset = 0;
  do {
    Step step;
    step.stage = [&](std::byte* board) { stage_pieces(pieces, slot, offset, from, board); };
    step.carry = [&](Courier& courier, std::byte* board) {
      carry_pieces(pieces, slot, offset, courier, board);
    };
    step.take = [&](const std::byte* board) {
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        const auto bytes = length_at(pieces[p], offset, slot);
        if (bytes > 0 && (pieces[p].reader < 0 || pieces[p].reader == placement_.rank))
          std::memcpy(to(p) + offset, board + p * slot, bytes);
      }
    };
    run(turn, step);
    offset += slot;
  } while (offset < most);
}

// One rank a host: its memory itself is what is sent and written to.
void Rounds::spread_directly(Turn& turn, const std::vector<Piece>& pieces, const From& from,
                             const To& to) {
  const auto reads = [&](const Piece& piece, int rank) {
    return piece.reader < 0 || piece.reader == rank;
  };
  Step step;
  step.carry = [&](Courier& courier, std::byte*) {
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      const auto& piece = pieces[p];
      if (piece.owner == placement_.rank) {
        for (std::size_t h = 0; h < placement_.hosts.size(); ++h)
          if (h != placement_.host && reads(piece, placement_.hosts[h].ranks.front()))
            courier.send(h, from(p), piece.bytes);
      } else if (reads(piece, placement_.rank)) {
        courier.receive(placement_.host_of(piece.owner), to(p), piece.bytes);
      }
    }
  };
  run(turn, step);
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const auto& piece = pieces[p];
    if (piece.owner == placement_.rank && reads(piece, placement_.rank) && piece.bytes > 0)
      std::memmove(to(p), from(p), piece.bytes);
  }
}

void Rounds::gather(Turn& turn, const std::vector<Piece>& pieces, const From& from,
                    const Reduce& reduce) {
  const auto slot = slot_for(pieces);
  const auto most = longest(pieces);
  std::size_t offset = 0;
  do {
    Step step;
    step.stage = [&](std::byte* board) { stage_pieces(pieces, slot, offset, from, board); };
    step.carry = [&](Courier& courier, std::byte* board) {
      carry_pieces(pieces, slot, offset, courier, board);
    };
    step.take = [&](const std::byte* board) {
      std::vector<const void*> at;
      for (std::size_t p = 0; p < pieces.size(); ++p) at.push_back(board + p * slot);
      if (most > offset) reduce(offset, std::min(slot, most - offset), at.data());
    };
    run(turn, step);
    offset += slot;
  } while (offset < most);
}

}  // namespace acc::runtime::hosts
