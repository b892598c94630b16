#include "rendezvous/admission.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace acc::rendezvous {

Admission::Verdict Admission::accepted(ConnectionId id, const std::string& source, Instant now) {
  if (sources_.size() >= limits_.sources && sources_.count(source) == 0) forget_old(now);
  Source& from = sources_[source];
  Verdict verdict;
  verdict.is_trusted = now >= from.blocked_until;
  if (from.nameless.size() >= limits_.half_open_per_source)
    verdict.instead = *from.nameless.begin();
  else if (half_open_.size() >= limits_.half_open)
    verdict.instead = nameless_.empty() ? half_open_.begin()->first : *nameless_.begin();
  from.nameless.insert(id);
  nameless_.insert(id);
  half_open_.emplace(id, HalfOpen{source, now + limits_.greeting});
  return verdict;
}

std::optional<ConnectionId> Admission::named(ConnectionId id) {
  const auto connection = half_open_.find(id);
  if (connection == half_open_.end()) return std::nullopt;
  Source& from = sources_[connection->second.source];
  from.nameless.erase(id);
  nameless_.erase(id);
  from.named.insert(id);
  if (from.named.size() <= limits_.named_per_source.value_or(limits_.half_open_per_source))
    return std::nullopt;
  return *from.named.begin();
}

void Admission::remove(ConnectionId id) {
  const auto connection = half_open_.find(id);
  if (connection == half_open_.end()) return;
  const auto source = sources_.find(connection->second.source);
  if (source != sources_.end()) {
    source->second.nameless.erase(id);
    source->second.named.erase(id);
    // A source that never failed needs no entry.
    if (!source->second.has_half_open() && source->second.seen == Instant::min())
      sources_.erase(source);
  }
  nameless_.erase(id);
  half_open_.erase(connection);
}

void Admission::passed(ConnectionId id) { remove(id); }

std::optional<std::uint64_t> Admission::failed(ConnectionId id, Instant now) {
  const auto connection = half_open_.find(id);
  if (connection == half_open_.end()) return std::nullopt;
  Source& source = sources_[connection->second.source];
  const double rate = limits_.failures_per_second;
  if (source.seen != Instant::min())
    source.failures -= std::chrono::duration<double>(now - source.seen).count() * rate;
  source.failures = std::max(0.0, source.failures) + 1;
  source.seen = now;
  if (source.failures > rate) source.blocked_until = now + limits_.penalty;
  ++source.unlogged;
  remove(id);
  if (!may_log(source, now)) return std::nullopt;
  return std::exchange(source.unlogged, 0);
}

std::optional<std::uint64_t> Admission::no_descriptors(Instant now) {
  ++nobody_.unlogged;
  if (!may_log(nobody_, now)) return std::nullopt;
  return std::exchange(nobody_.unlogged, 0);
}

bool Admission::may_log(Source& source, Instant now) {
  if (source.logged != Instant::min() && now - source.logged < limits_.log_every) return false;
  while (!lines_.empty() && now - lines_.front() >= limits_.log_every) lines_.pop_front();
  if (lines_.size() >= limits_.log_lines) return false;
  lines_.push_back(now);
  source.logged = now;
  return true;
}

std::optional<Instant> Admission::next_due() const {
  if (half_open_.empty()) return std::nullopt;
  return half_open_.begin()->second.due;
}

std::optional<ConnectionId> Admission::overdue(Instant now) const {
  if (half_open_.empty() || half_open_.begin()->second.due > now) return std::nullopt;
  return half_open_.begin()->first;
}

bool Admission::is_forgettable(const Source& source, Instant now) const {
  return !source.has_half_open() && now >= source.blocked_until &&
         (source.logged == Instant::min() || now - source.logged >= limits_.log_every);
}

// Erases sources without recent failures; if that frees nothing, the one whose last failure is the
// oldest.
void Admission::forget_old(Instant now) {
  std::erase_if(sources_, [&](const auto& entry) { return is_forgettable(entry.second, now); });
  if (sources_.size() < limits_.sources) return;
  auto oldest = sources_.end();
  for (auto it = sources_.begin(); it != sources_.end(); ++it)
    if (!it->second.has_half_open() &&
        (oldest == sources_.end() || it->second.seen < oldest->second.seen))
      oldest = it;
  if (oldest != sources_.end()) sources_.erase(oldest);
}

std::string source_of(const std::string& address) {
  in6_addr six{};
  if (::inet_pton(AF_INET6, address.substr(0, address.find('%')).c_str(), &six) != 1)
    return address;
  std::memset(six.s6_addr + 8, 0, 8);
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET6, &six, text, sizeof text);
  return std::string{text} + "/64";
}

}  // namespace acc::rendezvous
