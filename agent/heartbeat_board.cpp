#include "agent/heartbeat_board.hpp"

#include "common/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace acc::agent {

void HeartbeatBoard::begin_round(Round round, std::uint32_t workers) {
  is_in_use_ = false;
  page_ = {};
  auto made = heartbeat::Mapping::make(workers, round.value());
  if (made) {
    page_ = std::move(*made);
  } else {
    log::info("no_heartbeat_page", {{"why", made.error().what}});
  }
}

std::string HeartbeatBoard::path() const {
  if (!page_) return {};
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(page_.fd());
}

std::vector<heartbeat::Beat> HeartbeatBoard::beats() const {
  std::vector<heartbeat::Beat> beats;
  beats.reserve(page_.slots());
  for (std::uint32_t i = 0; i < page_.slots(); ++i) beats.push_back(read(page_.slot(i)));
  return beats;
}

std::optional<heartbeat::Beat> HeartbeatBoard::beat(LocalRank worker) const {
  if (worker.value() >= page_.slots()) return std::nullopt;
  return read(page_.slot(worker.value()));
}

std::uint64_t HeartbeatBoard::checkpoints() const {
  std::uint64_t most = 0;
  for (std::uint32_t i = 0; i < page_.slots(); ++i)
    most = std::max(most, page_.slot(i).checkpoints.load(std::memory_order_acquire));
  return most;
}

heartbeat::Slot* HeartbeatBoard::slot_to_fill(LocalRank worker) const {
  if (worker.value() >= page_.slots()) return nullptr;
  auto& slot = page_.slot(worker.value());
  return slot.pid.load(std::memory_order_relaxed) == 0 ? &slot : nullptr;
}

void HeartbeatBoard::release(LocalRank worker, std::uint32_t pid) {
  if (worker.value() < page_.slots()) heartbeat::release(page_.slot(worker.value()), pid);
}

void HeartbeatBoard::note_sign() {
  if (std::exchange(is_in_use_, true)) return;
  if (on_first_sign_) on_first_sign_();
}

void HeartbeatBoard::on_beat(LocalRank worker, std::uint64_t step) {
  if (auto* const slot = slot_to_fill(worker)) write_beat(*slot, step);
  note_sign();
}

void HeartbeatBoard::on_section(LocalRank worker, const std::string& name, Millis limit) {
  if (auto* const slot = slot_to_fill(worker)) {
    const auto since = name.empty() ? 0 : heartbeat::coarse_now_ns();
    write_section(*slot, name, since, static_cast<std::uint64_t>(limit.count()));
  }
  note_sign();
}

void HeartbeatBoard::on_checkpoint(LocalRank worker, std::uint64_t step) {
  if (auto* const slot = slot_to_fill(worker)) write_checkpoint(*slot, step);
  if (on_checkpoint_told_) on_checkpoint_told_();
}

}  // namespace acc::agent
