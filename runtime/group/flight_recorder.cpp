#include "runtime/group/flight_recorder.hpp"

#include <nlohmann/json.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace acc::runtime {

FlightRecorder::FlightRecorder() {
  void* memory = ::mmap(nullptr, kCalls * sizeof(Slot), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc{};
  slots_.reset(static_cast<Slot*>(memory));
}

void FlightRecorder::Freeing::operator()(Slot* slots) const noexcept {
  ::munmap(slots, kCalls * sizeof(Slot));
}

std::optional<FlightRecorder::Entry> FlightRecorder::read(const Slot& slot,
                                                          const ticks::Scale& scale) const {
  Entry entry;
  entry.ticket = slot.ticket.load(std::memory_order_acquire);
  if (entry.ticket == 0) return std::nullopt;
  entry.what.sequence = slot.sequence.load(std::memory_order_acquire);
  entry.what.count = slot.count.load(std::memory_order_acquire);
  const auto kinds = slot.kinds.load(std::memory_order_acquire);
  entry.what.root = static_cast<std::int32_t>(static_cast<std::uint32_t>(kinds >> 32));
  entry.what.within = static_cast<UserCall>((kinds >> 24) & 0xffU);
  entry.what.operation = static_cast<Operation>((kinds >> 16) & 0xffU);
  entry.what.dtype = static_cast<DType>((kinds >> 8) & 0xffU);
  entry.what.reduce = static_cast<ReduceOp>(kinds & 0xffU);
  entry.peer = slot.peer.load(std::memory_order_acquire);
  entry.begin = scale.time_of(slot.begin.load(std::memory_order_acquire));
  entry.state = slot.state.load(std::memory_order_acquire);
  if (entry.state > State::running)
    entry.end = scale.time_of(slot.end.load(std::memory_order_acquire));
  if (slot.ticket.load(std::memory_order_acquire) != entry.ticket) return std::nullopt;
  return entry;
}

std::vector<FlightRecorder::Entry> FlightRecorder::entries() const {
  const ticks::Scale scale{made_, ticks::Scale::Mark{}};
  std::vector<Entry> found;
  const std::size_t used = std::min<std::uint64_t>(calls() + 1, kCalls);
  for (std::size_t i = 0; i < used; ++i)
    if (auto entry = read(slots_[i], scale)) found.push_back(*entry);
  std::sort(found.begin(), found.end(),
            [](const Entry& a, const Entry& b) { return a.ticket < b.ticket; });
  return found;
}

std::optional<FlightRecorder::Entry> FlightRecorder::oldest_running() const {
  std::optional<Entry> oldest;
  for (auto& entry : entries())
    if (entry.state == State::running && (!oldest || entry.begin < oldest->begin)) oldest = entry;
  return oldest;
}

std::string_view to_string(FlightRecorder::State state) noexcept {
  using State = FlightRecorder::State;
  switch (state) {
    case State::queued:
      return "queued";
    case State::running:
      return "running";
    case State::enqueued:
      return "enqueued";
    case State::done:
      return "done";
    case State::failed:
      return "failed";
  }
  return "unknown";
}

std::string to_json(const FlightRecorder::Entry& entry, std::string_view group, int rank) {
  const auto nanos = [](Clock::time_point t) { return t.time_since_epoch().count(); };
  nlohmann::ordered_json line{{"group", group},
                              {"rank", rank},
                              {"call", entry.ticket},
                              {"sequence", entry.what.sequence},
                              {"operation", to_string(entry.what.operation)},
                              {"dtype", to_string(entry.what.dtype)},
                              {"count", entry.what.count}};
  const auto operation = entry.what.operation;
  if (operation == Operation::all_reduce || operation == Operation::reduce ||
      operation == Operation::reduce_scatter)
    line["reduce"] = to_string(entry.what.reduce);
  if (entry.what.root >= 0) line["root"] = entry.what.root;
  if (entry.peer >= 0) line["peer"] = entry.peer;
  if (const auto user = to_string(entry.what.within); !user.empty()) line["in"] = user;
  line["state"] = to_string(entry.state);
  line["begin_ns"] = nanos(entry.begin);
  if (entry.end != Clock::time_point{}) line["end_ns"] = nanos(entry.end);
  return line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string to_json_lines(const FlightRecorder& record, std::string_view group, int rank) {
  std::string lines;
  for (const auto& entry : record.entries()) lines += to_json(entry, group, rank) + "\n";
  return lines;
}

}  // namespace acc::runtime
