#pragma once

#include "common/duration.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

/// Rate and concurrency limits for unauthenticated connections (P5). Pure: the time is passed in. A
/// node of the cluster names its key in its first bytes. That proves nothing, as the key id goes over
/// the wire in clear; but a stranger who has never seen one can't evict a node that shares its
/// address.
namespace acc::rendezvous {

struct AdmissionLimits {
  std::size_t half_open = 256;  ///< connections that have proved nothing yet
  std::size_t half_open_per_source = 64;          ///< that named no key, and as many that did
  std::optional<std::size_t> named_per_source{};  ///< in place of it for those that named a key
  Millis greeting{5000};  ///< for the handshake and the first frame together
  /// Per source; above it, for `penalty`, only connections that name a key of ours get a handshake.
  std::uint32_t failures_per_second = 20;
  Millis penalty{1000};
  Millis log_every{60'000};    ///< one line per source
  std::size_t log_lines = 8;   ///< for all sources together, in that time
  std::size_t sources = 4096;  ///< remembered; the longest idle ones are dropped first
};

/// Connections are numbered in order of arrival; an id is never reused.
using ConnectionId = std::uint64_t;

class Admission {
 public:
  explicit Admission(AdmissionLimits limits = {}) : limits_{limits} {}

  struct Verdict {
    /// false: its source failed too often. The connection is closed unless it names a key;
    /// immediately if there are no keys.
    bool is_trusted = true;
    std::optional<ConnectionId> instead;  ///< this older one must be closed
  };
  /// A connection from `source` (an address; the owner shortens IPv6 to its /64) was accepted.
  Verdict accepted(ConnectionId id, const std::string& source, Instant now);
  /// Its first bytes name a key of ours: those that name none can't evict it any more.
  /// @return an older connection of its source to close, as too many name a key
  std::optional<ConnectionId> named(ConnectionId id);
  /// Closed because it was not trusted and named no key. That doesn't count as a failure: a flood
  /// would keep its source out long after its end.
  void dismissed(ConnectionId id) { remove(id); }
  /// It was authenticated and sent its first frame.
  void passed(ConnectionId id);
  /// It did neither, or not in time.
  /// @return the number of failures of that source since the last log line about it, if one is due
  std::optional<std::uint64_t> failed(ConnectionId id, Instant now);

  /// A connection was closed unseen because this process has no descriptor left.
  /// @return how many since the last log line about that, if one is due
  std::optional<std::uint64_t> no_descriptors(Instant now);

  /// Deadline of the oldest connection; nothing: there is none.
  [[nodiscard]] std::optional<Instant> next_due() const;
  /// The oldest connection past its deadline.
  [[nodiscard]] std::optional<ConnectionId> overdue(Instant now) const;

  [[nodiscard]] std::size_t half_open() const noexcept { return half_open_.size(); }
  [[nodiscard]] std::size_t sources() const noexcept { return sources_.size(); }

 private:
  struct Source {
    std::set<ConnectionId> nameless;
    std::set<ConnectionId> named;
    [[nodiscard]] bool has_half_open() const { return !nameless.empty() || !named.empty(); }
    double failures = 0;            ///< a bucket that empties with failures_per_second
    Instant seen = Instant::min();  ///< last failure; min: none
    Instant blocked_until = Instant::min();
    Instant logged = Instant::min();
    std::uint64_t unlogged = 0;
  };
  struct HalfOpen {
    std::string source;
    Instant due;
  };

  void remove(ConnectionId id);
  void forget_old(Instant now);
  [[nodiscard]] bool is_forgettable(const Source& source, Instant now) const;
  bool may_log(Source& source, Instant now);

  AdmissionLimits limits_;
  std::map<ConnectionId, HalfOpen> half_open_;  ///< in order of arrival, hence of deadlines
  std::set<ConnectionId> nameless_;             ///< of all sources
  std::map<std::string, Source> sources_;
  std::deque<Instant> lines_;  ///< written recently
  Source nobody_;              ///< for no_descriptors()
};

/// The source that an address counts as: IPv4 itself, IPv6 its /64, as one host owns all of that.
[[nodiscard]] std::string source_of(const std::string& numeric_address);

}  // namespace acc::rendezvous
