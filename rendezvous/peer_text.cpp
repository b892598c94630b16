#include "rendezvous/peer_text.hpp"

#include "common/plain_text.hpp"
#include "common/text.hpp"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace acc::rendezvous {
namespace {

/// One line.
void clean_name(std::string& name) { name = printable(name, std::string::npos); }
/// Line ends stay.
void clean_text(std::string& text) { text = safe_text(text); }

void clean(HostPort& at) { clean_name(at.host); }
void clean(NodeRanks& ranks) { clean_name(ranks.node); }
void clean(Standby& standby) {
  clean_name(standby.node);
  clean(standby.at);
}
void clean(TableRow& row) {
  for (auto* name : {&row.node, &row.host, &row.address}) clean_name(*name);
}
void clean(JobFact& fact) {
  clean_name(fact.name);
  clean_text(fact.value);
}
void clean(Failure& failure) {
  for (auto* name : {&failure.node, &failure.host, &failure.log_path, &failure.stacks_path,
                     &failure.no_restart, &failure.hint})
    clean_name(*name);
  clean_text(failure.cause);
}
template <class T>
void clean(std::optional<T>& part) {
  if (part) clean(*part);
}
template <class T>
void clean(std::vector<T>& parts) {
  for (auto& part : parts) clean(part);
}

void clean(Join& m) {
  for (auto* name : {&m.node.name, &m.host, &m.address}) clean_name(*name);
  clean(m.facts);
}
void clean(WorkerFailed& m) { clean(m.failure); }
void clean(Leave& m) { clean_text(m.why); }
void clean(Welcome& m) { clean_name(m.coordinator); }
void clean(Refused& m) {
  clean_text(m.what);
  clean(m.redirect);
}
void clean(Assigned& m) {
  clean_text(m.reason);
  clean(m.standbys);
}
void clean(Start& m) { clean(m.master); }
void clean(Stop& m) {
  clean_name(m.by);
  clean_text(m.reason);
  clean(m.failure);
  clean(m.lost);
}
void clean(Close& m) {
  clean_text(m.reason);
  clean(m.first);
  clean(m.finished);
}
void clean(Notice& m) { clean_text(m.text); }
void clean(Table& m) { clean(m.rows); }
void clean(RestartReply& m) { clean_text(m.why_not); }
void clean(LeaderMoved& m) { clean(m.to); }

}  // namespace

Result<Frame> decode_of_peer(std::string_view frame) {
  auto decoded = decode(frame);
  if (!decoded) return decoded;
  std::visit(
      []<class M>(M& m) {
        if constexpr (requires { clean(m); }) clean(m);
      },
      decoded->message);
  return decoded;
}

}  // namespace acc::rendezvous
