#include "rendezvous/round_record.hpp"

#include "common/text.hpp"
#include "rendezvous/message_fields.hpp"
#include "rendezvous/wire.hpp"

namespace acc::rendezvous {

namespace {

constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kMostRows = 100'000;

}  // namespace

template <class A>
void fields(A& a, Is<RoundRecord::Row> auto& part) {
  auto& [node, ranks] = part;
  a(node, ranks.first, ranks.count);
}
template <class A>
void fields(A& a, Is<RoundRecord> auto& part) {
  auto& [epoch, ledger, rows] = part;
  a(epoch, ledger, limited(rows, kMostRows));
}

std::string to_bytes(const RoundRecord& record) {
  std::string bytes;
  FieldWriter{bytes}(kFormat, record);
  return bytes;
}

Result<RoundRecord> parse_round_record(std::string_view bytes) {
  FieldReader reader{bytes, 0};
  std::uint32_t format = 0;
  RoundRecord record;
  if (reader(format) && format != kFormat) {
    return Error{Errc::malformed, "the record of a round has format " + std::to_string(format) +
                                      ", this acc-launch knows " + std::to_string(kFormat)};
  }
  if (!reader(record)) return Error{Errc::malformed, "the record of a round: " + reader.problem()};
  if (record.rows.empty()) return Error{Errc::malformed, "the record of a round names no node"};
  // Made safe for a terminal, as the names in a peer's message: any program may write to etcd.
  for (auto& row : record.rows) {
    row.node.name = printable(row.node.name, std::string::npos);
    if (row.node.name.size() > kMaxText)
      return Error{Errc::malformed, "the record of a round has a name that is too long"};
  }
  return record;
}

}  // namespace acc::rendezvous
