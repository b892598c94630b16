#pragma once

#include "rendezvous/messages.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace acc::rendezvous {

struct KvLimits {
  std::size_t keys = 64 * 1024;
  std::size_t bytes = 64 * 1024 * 1024;  ///< keys and values together
  std::size_t waiters = 4 * 1024;
};

/// The limits for a job: each worker may wait in a few places at the same time.
[[nodiscard]] KvLimits kv_limits_for(std::size_t workers);

/// Bytes of requests, or of replies, that the workers of one node can have on their way at once,
/// each connection of a worker one: all may wait for the same large value.
[[nodiscard]] std::size_t kv_bytes_in_flight(std::size_t workers);

/// Key-value store of one round (pure), in which workers exchange addresses and meet at barriers.
/// The owner numbers the askers; a reply carries the id of its request. Every operation costs O(log
/// n).
class KvStore {
 public:
  using PeerId = std::uint64_t;
  struct Answer {
    PeerId peer = 0;
    KvReply reply;
  };
  using Answers = std::vector<Answer>;

  explicit KvStore(KvLimits limits = {}) : limits_{limits} {}

  /// At least the limits for a job of so many workers, from now on.
  void allow_workers(std::size_t workers);

  /// @return the replies to send now, each with its peer; a wait that isn't over adds nothing.
  Answers request(PeerId peer, KvRequest request, Instant now);
  /// One part of an agent's replay after an election. Waiters whose condition it fulfils are
  /// answered.
  Answers restore(const KvRestore& told);
  /// Answers waits that timed out, and continues a large wake-up.
  Answers tick(Instant now);
  /// A new round: discards the contents, and answers all waiters.
  Answers reset(Epoch epoch);
  /// Its waits end without an answer; its writes stay.
  void peer_gone(PeerId peer);

  /// When tick() has something to do; a past instant: immediately.
  [[nodiscard]] std::optional<Instant> next_deadline() const;
  [[nodiscard]] const Epoch& epoch() const { return epoch_; }
  [[nodiscard]] std::size_t keys() const { return entries_.size(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t waiters() const { return waiters_.size(); }

 private:
  struct Entry {
    std::string value;
    bool only_shares = false;  ///< restored from counters; the initial value may follow
  };
  enum class Place : std::uint8_t { value, presence, barrier };  ///< what is waited for
  struct Waiter {
    PeerId peer = 0;
    std::uint64_t id = 0;
    Place place = Place::value;
    std::string key;
    Instant deadline;
  };
  using Numbers = std::set<std::uint64_t>;  ///< waiters in order of arrival
  struct Barrier {
    std::uint32_t count = 0;
    Numbers arrived;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  KvReply carry_out(KvRequest& request);
  KvReply set(std::string key, std::string value);
  KvReply add(const KvRequest& request);
  KvReply compare_set(KvRequest& request);
  KvReply remove(const std::string& key);
  void ask(PeerId peer, KvRequest& request, Instant now, Answers& out);
  void arrive(PeerId peer, KvRequest& request, Instant now, Answers& out);

  bool put(std::string key, std::string value, bool only_shares = false);
  void wake(std::string_view key, Answers& out);
  std::optional<std::uint64_t> start_waiting(PeerId peer, KvRequest& request, Place place,
                                             Instant now);
  Waiter take(std::uint64_t number);
  [[nodiscard]] KvReply late_answer(const Waiter& waiter, std::size_t others) const;
  std::size_t leave_group(std::uint64_t number, const Waiter& waiter);

  KvLimits limits_;
  Epoch epoch_;
  Entries entries_;
  std::size_t bytes_ = 0;
  std::uint64_t next_number_ = 0;
  std::map<std::uint64_t, Waiter> waiters_;
  std::map<std::string, Numbers, std::less<>> awaited_;  ///< by key
  std::map<std::string, Barrier, std::less<>> barriers_;
  std::set<std::pair<Instant, std::uint64_t>> deadlines_;
  std::set<std::pair<PeerId, std::uint64_t>> by_peer_;
  std::set<std::string, std::less<>> half_woken_;  ///< existing keys that still have waiters
};

}  // namespace acc::rendezvous
