#include "rendezvous/etcd_records.hpp"

#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <limits>

namespace acc::rendezvous {

namespace {

using Json = nlohmann::json;

template <class T>
std::optional<T> unsigned_of(const Json& json, const char* name) {
  const auto at = json.find(name);
  if (at == json.end() || !at->is_number_unsigned()) return std::nullopt;
  const auto value = at->get<std::uint64_t>();
  if (value > std::numeric_limits<T>::max()) return std::nullopt;
  return static_cast<T>(value);
}

/// Made safe for a terminal, as the texts of any peer.
std::optional<std::string> text_of(const Json& json, const char* name) {
  const auto at = json.find(name);
  if (at == json.end() || !at->is_string()) return std::nullopt;
  auto text = printable(at->get_ref<const std::string&>(), std::string::npos);
  if (text.size() > kMaxText) return std::nullopt;
  return text;
}

Error not_ours(std::string_view what, std::string_view value) {
  return {Errc::bad_config, std::string{what} + " \"" + printable(value, 120) +
                                "\" isn't one of ours: remove the key with 'etcdctl del', or "
                                "choose another --rdzv_id"};
}

}  // namespace

EtcdKeys::EtcdKeys(std::string_view prefix, std::string_view job) {
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  const std::string base = std::string{prefix} + '/' + std::string{job} + '/';
  leader = base + "leader";
  term = base + "term";
  table = base + "table";
}

std::string to_etcd(const Leader& leader) {
  // The incarnation as text: many JSON readers keep only 53 bits of a number.
  return Json{{"node", leader.node.name},
              {"incarnation", std::to_string(leader.node.incarnation)},
              {"host", leader.at.host},
              {"port", leader.at.port},
              {"term", leader.term}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Leader> parse_leader(std::string_view value) {
  const Json json = Json::parse(value, nullptr, false);
  if (!json.is_object()) return not_ours("the leader's entry", value);
  const auto node = text_of(json, "node");
  const auto incarnation = text_of(json, "incarnation");
  const auto number = incarnation ? parse_number<std::uint64_t>(*incarnation) : std::nullopt;
  const auto host = text_of(json, "host");
  const auto port = unsigned_of<std::uint16_t>(json, "port");
  const auto term = unsigned_of<std::uint32_t>(json, "term");
  if (!node || !number || !host || host->empty() || !port || *port == 0 || !term || *term == 0)
    return not_ours("the leader's entry", value);
  return Leader{{*node, *number}, {*host, *port}, *term};
}

Result<RoundRecord> parse_table(std::string_view value) {
  auto record = parse_round_record(value);
  if (record) return record;
  const Error foreign = not_ours("the table", value);
  return Error{foreign.code, foreign.what + " (" + record.error().what + ')'};
}

Result<std::uint32_t> parse_term(std::string_view value) {
  const auto term = parse_number<std::uint32_t>(value);
  if (!term) return not_ours("the term", value);
  return *term;
}

}  // namespace acc::rendezvous
