// Any bytes from etcd, or from whatever sits at its address, give a value or an error in words.
#include "rendezvous/etcd_client.hpp"
#include "rendezvous/etcd_json.hpp"
#include "rendezvous/etcd_records.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

using namespace acc;
using namespace acc::rendezvous;

namespace {

template <class T>
bool is_sound(const Result<T>& result) {
  return result.has_value() || !result.error().what.empty();
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  static const std::vector<EtcdOperation> kReads{{EtcdOperation::Kind::get, "k", {}, 0},
                                                 {EtcdOperation::Kind::put, "k", "v", 0}};
  static const std::vector<EtcdCompare> kWhen{{"k", EtcdCompare::Of::created, 0, {}}};
  const auto range = parse_etcd_range(text);
  require(is_sound(range));
  if (range.has_value() && range->entry) {
    require(is_sound(parse_leader(range->entry->value)));
    require(is_sound(parse_table(range->entry->value)));
  }
  const auto reply = parse_etcd_transaction(text, {kWhen, kReads, kReads});
  require(is_sound(reply) && (!reply.has_value() || reply->reads.size() == kReads.size()));
  const auto looked = parse_etcd_transaction(text, {{}, kReads, {}});
  require(is_sound(looked) && (!looked.has_value() || looked->reads.size() == kReads.size()));
  require(is_sound(parse_etcd_lease(text)));
  require(is_sound(parse_etcd_revision(text)));
  require(is_sound(parse_etcd_token(text)));
  require(is_sound(parse_etcd_endpoints(text)));
  require(!parse_etcd_refusal(500, text).what.empty());
  const auto bytes = from_base64(text);
  require(!bytes || to_base64(*bytes) == text);
  const auto leader = parse_leader(text);
  require(is_sound(leader) && (!leader.has_value() || *parse_leader(to_etcd(*leader)) == *leader));
  const auto table = parse_table(text);
  require(is_sound(table) && (!table.has_value() || parse_table(to_bytes(*table)).has_value()));
  return 0;
}
