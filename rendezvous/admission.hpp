#pragma once

#include "common/duration.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

/// Which connections may try to prove themselves, how often and how many at once (P5). Pure: the
/// time is passed in. A node of the cluster names its key in its first bytes. That proves nothing,
/// but strangers don't know it: so they never evict a node that shares their address.
namespace acc::rendezvous {

struct AdmissionLimits {
  std::size_t half_open = 256;  ///< connections that have proved nothing yet
  std::size_t half_open_per_source = 64;
  Millis greeting{5000};  ///< for the handshake and the first frame together
  /// Of a source; beyond, for `penalty`, only those who name a key of ours get a handshake.
  std::uint32_t failures_per_second = 20;
  Millis penalty{1000};
  Millis log_every{60'000};    ///< one line a source
  std::size_t log_lines = 8;   ///< of all sources, in that time
  std::size_t sources = 4096;  ///< remembered; the ones quiet for longest go first
};

/// A connection, numbered as it came; never used twice.
using KnockId = std::uint64_t;

class Admission {
 public:
  explicit Admission(AdmissionLimits limits = {}) : limits_{limits} {}

  struct Verdict {
    /// false: its source failed too often. It is closed unless it names a key; at once where there
    /// are no keys.
    bool is_trusted = true;
    std::optional<KnockId> instead;  ///< this older one has to go
  };
  /// A connection from `source` (an address; the owner shortens IPv6 to its /64) was accepted.
  Verdict knock(KnockId id, const std::string& source, Instant now);
  /// Its first bytes name a key of ours: strangers don't evict it any more.
  /// @return an older one of its source that has to go, as too many name a key
  std::optional<KnockId> named(KnockId id);
  /// Closed as it was not trusted and named no key: that counts as no failure, or a flood would
  /// keep its source out long after its end.
  void dismissed(KnockId id) { remove(id); }
  /// It proved who it is and sent its first frame.
  void passed(KnockId id);
  /// It did neither, or not in time.
  /// @return how many of that source failed since the last line about it, if now is the time for
  /// one
  std::optional<std::uint64_t> failed(KnockId id, Instant now);

  /// One was closed unseen, as this process is out of descriptors.
  /// @return how many since the last line about that, if now is the time for one
  std::optional<std::uint64_t> no_descriptors(Instant now);

  /// The oldest has to have passed until then; nothing: nobody is waiting.
  [[nodiscard]] std::optional<Instant> next_due() const;
  /// The oldest one whose time is over.
  [[nodiscard]] std::optional<KnockId> overdue(Instant now) const;

  [[nodiscard]] std::size_t half_open() const noexcept { return knocks_.size(); }
  [[nodiscard]] std::size_t sources() const noexcept { return sources_.size(); }

 private:
  struct Source {
    std::set<KnockId> nameless;
    std::set<KnockId> named;
    [[nodiscard]] bool has_knocks() const { return !nameless.empty() || !named.empty(); }
    double failures = 0;            ///< a bucket that empties with failures_per_second
    Instant seen = Instant::min();  ///< its last failure; min: it never failed
    Instant blocked_until = Instant::min();
    Instant logged = Instant::min();
    std::uint64_t unlogged = 0;
  };
  struct Knock {
    std::string source;
    Instant due;
  };

  void remove(KnockId id);
  void forget_old(Instant now);
  [[nodiscard]] bool is_forgettable(const Source& source, Instant now) const;
  bool may_log(Source& source, Instant now);

  AdmissionLimits limits_;
  std::map<KnockId, Knock> knocks_;  ///< in the order of arrival, so also of due times
  std::set<KnockId> nameless_;       ///< of all sources
  std::map<std::string, Source> sources_;
  std::deque<Instant> lines_;  ///< written lately
  Source nobody_;              ///< of no_descriptors()
};

/// The source that an address counts as: IPv4 as it is, IPv6 its /64, as one host owns all of that.
[[nodiscard]] std::string source_of(const std::string& numeric_address);

}  // namespace acc::rendezvous
