#include "runtime/tcp/room.hpp"

#include "common/text.hpp"
#include "runtime/bootstrap/member.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace acc::runtime::hosts {

using namespace std::chrono_literals;
using shm::kStep;
using shm::reached;

namespace {

/// A sleeper is woken by what it waits for and by a break; it looks round by itself too, for a peer
/// that was killed while it woke others.
constexpr auto kLookRound = 100ms;
constexpr std::size_t kCauseBytes = 16 * 1024;

std::size_t places_at() { return 32 * 1024; }
std::size_t board_at(std::size_t near_ranks) {
  return (places_at() + near_ranks * sizeof(Place) + 4095) / 4096 * 4096;
}

}  // namespace

struct Room::Header {
  std::atomic<shm::Health> health;
  std::uint32_t cause_size;
  std::array<char, kCauseBytes> cause;
};

std::size_t Room::bytes(std::size_t near_ranks) { return board_at(near_ranks) + 2 * kBoard; }

Room::Room(UniqueFd memory, const Placement& placement, std::vector<RankFacts> ranks,
           std::function<void()> broke)
    : placement_{placement},
      ranks_{std::move(ranks)},
      broke_{std::move(broke)},
      mapping_{shm::Mapping::of(std::move(memory), bytes(placement.near().size()))} {
  static_assert(sizeof(Header) <= 32 * 1024);
  auto* base = mapping_->data();
  header_ = reinterpret_cast<Header*>(base);  // zeroes are a good one, as of all that is in there
  places_ = reinterpret_cast<Place*>(base + places_at());
  board_ = base + board_at(size());
  cpu_set_t cpus;
  const bool known = ::sched_getaffinity(0, sizeof cpus, &cpus) == 0;
  const int cores = std::min(known ? CPU_COUNT(&cpus) : 1, shm::quota_cores());
  patience_ = shm::patience(static_cast<int>(size()), cores);
  mine().presence.store(Presence::here);
  watch_processes();
}

Room::~Room() {
  for (const auto id : watched_) watch_->forget(id);
  mine().presence.store(Presence::left);
  wake_all();
}

void Room::watch_processes() {
  for (std::size_t i = 0; i < size(); ++i) {
    const int rank = placement_.near()[i];
    const auto pid = ranks_[static_cast<std::size_t>(rank)].pid;
    if (pid == ::getpid()) continue;  // a thread of ours ends with us
    if (!watch_) watch_ = shm::ProcessWatch::shared();
    watched_.push_back(watch_->watch(static_cast<pid_t>(pid), [this, i,
                                                               rank](const std::string& how) {
      if (place(i).presence.load() == Presence::left) return;
      place(i).presence.store(Presence::gone);
      break_with(
          {ErrorCode::peer_lost, describe(rank) + " " + how + "; " + describe_state(i), {rank}});
    }));
  }
}

// ---- meeting ----

void Room::arrive(Turn& turn) noexcept {
  mine().what[turn.number % 2] = turn.call.what;
  post(mine().arrived, turn.number * kStep);
}

void Room::complete(const Turn& turn) noexcept { mine().completed.store(turn.number); }

void Room::await_arrivals(Turn& turn) { await_all(turn, &Place::arrived, turn.number); }

void Room::await(Turn& turn, Word Place::*word, std::size_t of, std::uint32_t target) {
  auto& there = place(of).*word;
  if (!reached(there, target * kStep)) wait(turn, there, of, target * kStep);
}

void Room::await_all(Turn& turn, Word Place::*word, std::uint32_t target) {
  for (std::size_t i = 0; i < size(); ++i) await(turn, word, i, target);
}

void Room::wait(Turn& turn, Word& word, std::size_t of, std::uint32_t target) {
  for (int i = 0; i < patience_.pauses; ++i) {
    if (reached(word, target)) return;
    __builtin_ia32_pause();
  }
  for (int i = 0; i < patience_.yields; ++i) {
    if (reached(word, target)) return;
    ::sched_yield();
  }
  struct Asleep {
    std::atomic<std::uint32_t>&waits, &sleepers;
    Asleep(Place& place, Word& on) : waits{place.waits}, sleepers{on.sleepers} {
      waits.fetch_add(1);
      sleepers.fetch_add(1);
    }
    ~Asleep() {
      sleepers.fetch_sub(1);
      waits.fetch_sub(1);
    }
  } const asleep{mine(), word};
  for (;;) {
    const auto seen = word.count.load();
    if (reached(seen, target)) return;
    check_well(turn);
    if (place(of).presence.load() == Presence::left && !reached(word, target)) {
      const int leaver = placement_.near()[of];
      shm::await_end_of_leaver(static_cast<pid_t>(ranks_[static_cast<std::size_t>(leaver)].pid));
      fail(turn, {ErrorCode::peer_lost,
                  describe(leaver) + " has left the group; " + describe_state(of),
                  {leaver}});
    }
    const auto now = Clock::now();
    if (now >= turn.deadline()) give_up(turn);
    shm::sleep_on(word, seen,
                  std::min<std::chrono::nanoseconds>(kLookRound, turn.deadline() - now));
  }
}

// ---- breaking ----

bool Room::is_well() const noexcept { return header_->health.load() == shm::Health::well; }

void Room::break_with(const Error& cause) noexcept {
  auto expected = shm::Health::well;
  if (!header_->health.compare_exchange_strong(expected, shm::Health::breaking)) return;
  try {
    const auto text = to_text(Error{cause.code(), printable(cause.what(), kCauseBytes / 2),
                                    cause.ranks(), cause.operation(), cause.sequence()});
    if (text.size() <= kCauseBytes) {
      std::memcpy(header_->cause.data(), text.data(), text.size());
      header_->cause_size = static_cast<std::uint32_t>(text.size());
    }
  } catch (const std::exception&) {
    header_->cause_size = 0;  // no memory for the words
  }
  header_->health.store(shm::Health::broken);
  wake_all();
  if (broke_) broke_();
}

void Room::wake_all() noexcept {
  for (std::size_t i = 0; i < size(); ++i) {
    for (auto* word : {&place(i).arrived, &place(i).staged, &place(i).carried, &place(i).taken})
      if (word->sleepers.load() != 0) poke(*word);
  }
}

std::optional<Error> Room::cause() const {
  const auto patience = Clock::now() + 50ms;
  while (header_->health.load() == shm::Health::breaking && Clock::now() < patience)
    ::sched_yield();
  if (is_well()) return std::nullopt;
  if (header_->health.load() == shm::Health::broken)
    if (auto error = parse_error({header_->cause.data(), header_->cause_size})) return error;
  return Error{ErrorCode::peer_lost, "the rank that broke the group couldn't say why"};
}

void Room::throw_cause(const Turn& turn) const {
  const auto first = cause().value_or(Error{ErrorCode::aborted, "the group is broken"});
  // A mismatch says itself what was called.
  std::string text = first.what();
  if (first.code() != ErrorCode::mismatch) text = to_string(turn.call.what) + ": " + text;
  throw Error{first.code(), text, first.ranks(), std::string{to_string(turn.call.what.operation)},
              turn.call.what.sequence};
}

void Room::give_up(Turn& turn) {
  mine().waits.fetch_add(1);
  if (give_up_) give_up_(turn);
  mine().waits.fetch_sub(1);
  fail(turn, {ErrorCode::timed_out, "timed out"});
}

// ---- telling ----

std::string Room::describe(int rank) const {
  const auto& facts = ranks_[static_cast<std::size_t>(rank)];
  return "rank " + std::to_string(rank) + " (host " + facts.host + ", pid " +
         std::to_string(facts.pid) + ")";
}

std::string Room::describe_state(std::size_t index) const {
  const auto& there = place(index);
  const auto completed = there.completed.load();
  std::string text = "it has completed nothing yet";
  if (completed != 0) text = "it last completed " + to_string(there.what[completed % 2]);
  return text + (is_stopped(index) ? "; it is stopped (process state T)" : "");
}

bool Room::is_stopped(std::size_t index) const {
  const auto pid = ranks_[static_cast<std::size_t>(placement_.near()[index])].pid;
  if (pid == ::getpid()) return false;
  const char state = shm::process_state(static_cast<pid_t>(pid));
  return state == 'T' || state == 't';
}

std::vector<Room::Late> Room::late(std::uint32_t number) const {
  std::vector<Late> absent, stuck;
  for (std::size_t i = 0; i < size(); ++i) {
    const int rank = placement_.near()[i];
    if (!reached(place(i).arrived, number * kStep))
      absent.push_back({rank, describe(rank) + " has not come; " + describe_state(i)});
    else if (place(i).completed.load() != number && (place(i).waits.load() == 0 || is_stopped(i)))
      stuck.push_back({rank, describe(rank) + " came, but does not get on; " + describe_state(i)});
  }
  return absent.empty() ? stuck : absent;
}

}  // namespace acc::runtime::hosts
