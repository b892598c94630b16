#include "rendezvous/etcd_json.hpp"

#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace acc::rendezvous {

namespace {

using Json = nlohmann::json;

Error not_understood(std::string_view what, std::string_view json) {
  return {Errc::malformed, std::string{what} + " in \"" + printable(json, 120) + '"'};
}

/// The object under `name`; an empty one if there is none: the gateway omits empty ones.
const Json& part(const Json& object, const char* name) {
  static const Json kNothing = Json::object();
  const auto at = object.is_object() ? object.find(name) : object.end();
  return at != object.end() ? *at : kNothing;
}

/// 64-bit numbers are sent as text, and omitted when they are 0.
std::optional<std::int64_t> number(const Json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end()) return 0;
  if (at->is_string()) return parse_number<std::int64_t>(at->get_ref<const std::string&>());
  if (at->is_number_integer()) return at->get<std::int64_t>();
  return std::nullopt;
}

std::optional<std::string> bytes(const Json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end()) return std::string{};
  if (!at->is_string()) return std::nullopt;
  return from_base64(at->get_ref<const std::string&>());
}

std::optional<bool> flag(const Json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end()) return false;
  if (!at->is_boolean()) return std::nullopt;
  return at->get<bool>();
}

std::optional<EtcdEntry> entry_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  auto key = bytes(json, "key");
  auto value = bytes(json, "value");
  const auto created = number(json, "create_revision");
  const auto modified = number(json, "mod_revision");
  const auto lease = number(json, "lease");
  if (!key || !value || !created || !modified || !lease) return std::nullopt;
  return EtcdEntry{std::move(*key), std::move(*value), *created, *modified, *lease};
}

/// The first key of a range; `understood`: the answer was well-formed.
struct First {
  bool understood = false;
  std::optional<EtcdEntry> entry;
};
First first_of(const Json& range) {
  if (!range.is_object()) return {};
  const auto found = range.find("kvs");
  if (found == range.end()) return {true, std::nullopt};
  if (!found->is_array()) return {};
  if (found->empty()) return {true, std::nullopt};
  auto entry = entry_of(found->front());
  if (!entry || entry->created <= 0 || entry->modified <= 0) return {};
  return {true, std::move(entry)};
}

std::optional<std::int64_t> revision_of(const Json& answer) {
  const Json& header = part(answer, "header");
  const auto revision = header.is_object() ? number(header, "revision") : std::nullopt;
  return revision && *revision > 0 ? revision : std::nullopt;  // an empty store has 1
}

Json parsed(std::string_view text) { return Json::parse(text, nullptr, false); }

Json compare_json(const EtcdCompare& compare) {
  Json json{{"key", to_base64(compare.key)}, {"result", "EQUAL"}};
  switch (compare.of) {
    case EtcdCompare::Of::created:
      json["target"] = "CREATE";
      json["create_revision"] = std::to_string(compare.revision);
      break;
    case EtcdCompare::Of::modified:
      json["target"] = "MOD";
      json["mod_revision"] = std::to_string(compare.revision);
      break;
    case EtcdCompare::Of::value:
      json["target"] = "VALUE";
      json["value"] = to_base64(compare.value);
      break;
  }
  return json;
}

Json put_json(std::string_view key, std::string_view value, std::int64_t lease) {
  Json json{{"key", to_base64(key)}, {"value", to_base64(value)}};
  if (lease != 0) json["lease"] = std::to_string(lease);
  return json;
}

Json operation_json(const EtcdOperation& one) {
  switch (one.kind) {
    case EtcdOperation::Kind::put:
      return {{"request_put", put_json(one.key, one.value, one.lease)}};
    case EtcdOperation::Kind::remove:
      return {{"request_delete_range", {{"key", to_base64(one.key)}}}};
    case EtcdOperation::Kind::get:
      break;
  }
  return {{"request_range", {{"key", to_base64(one.key)}}}};
}

}  // namespace

std::string etcd_range_request(std::string_view key) {
  return Json{{"key", to_base64(key)}}.dump();
}

std::string etcd_put_request(std::string_view key, std::string_view value, std::int64_t lease) {
  return put_json(key, value, lease).dump();
}

std::string etcd_transaction_request(const EtcdTransaction& transaction) {
  Json json{{"compare", Json::array()}, {"success", Json::array()}, {"failure", Json::array()}};
  for (const auto& one : transaction.when) json["compare"].push_back(compare_json(one));
  for (const auto& one : transaction.then) json["success"].push_back(operation_json(one));
  for (const auto& one : transaction.otherwise) json["failure"].push_back(operation_json(one));
  return json.dump();
}

std::string etcd_grant_request(std::int64_t ttl_s) {
  return Json{{"TTL", std::to_string(ttl_s)}}.dump();
}

std::string etcd_lease_request(std::int64_t id) { return Json{{"ID", std::to_string(id)}}.dump(); }

std::string etcd_login_request(std::string_view user, std::string_view password) {
  return Json{{"name", user}, {"password", password}}.dump(-1, ' ', false,
                                                           Json::error_handler_t::replace);
}

Result<EtcdRead> parse_etcd_range(std::string_view text) {
  const Json json = parsed(text);
  const auto revision = revision_of(json);
  auto first = first_of(json);
  if (!json.is_object() || !revision || !first.understood)
    return not_understood("no range of keys", text);
  return EtcdRead{*revision, std::move(first.entry)};
}

Result<std::int64_t> parse_etcd_revision(std::string_view text) {
  const Json json = parsed(text);
  const auto revision = revision_of(json);
  if (!json.is_object() || !revision) return not_understood("no revision", text);
  return *revision;
}

Result<EtcdTransactionReply> parse_etcd_transaction(std::string_view text,
                                                    const EtcdTransaction& asked) {
  const Json json = parsed(text);
  if (!json.is_object()) return not_understood("no answer to a transaction", text);
  const auto revision = revision_of(json);
  const auto succeeded = flag(json, "succeeded");
  const bool must_succeed = asked.when.empty();
  if (!revision || !succeeded || (must_succeed && !*succeeded))
    return not_understood("no answer to a transaction", text);
  EtcdTransactionReply reply{*succeeded, *revision, {}};
  const auto& done = reply.succeeded ? asked.then : asked.otherwise;
  const Json& answers = part(json, "responses");
  if (answers.size() != done.size() || (!done.empty() && !answers.is_array()))
    return not_understood("another number of answers than of operations", text);
  for (std::size_t i = 0; i < done.size(); ++i) {
    if (done[i].kind != EtcdOperation::Kind::get) {
      reply.reads.emplace_back();
      continue;
    }
    const Json& answer = answers[i];
    if (!answer.is_object() || !answer.contains("response_range"))
      return not_understood("no answer to a read", text);
    auto first = first_of(answer["response_range"]);
    if (!first.understood) return not_understood("no range of keys", text);
    reply.reads.push_back(std::move(first.entry));
  }
  return reply;
}

Result<EtcdLease> parse_etcd_lease(std::string_view text) {
  const Json json = parsed(text);
  // Keep-alive is a stream in etcd, whose single answer is wrapped.
  const Json& lease = json.is_object() && json.contains("result") ? part(json, "result") : json;
  if (!lease.is_object()) return not_understood("no lease", text);
  const auto id = number(lease, "ID");
  const auto ttl = number(lease, "TTL");
  if (!id || *id == 0 || !ttl || *ttl < 0) return not_understood("no lease", text);
  return EtcdLease{*id, *ttl};
}

Result<std::string> parse_etcd_token(std::string_view text) {
  const Json json = parsed(text);
  const Json& token = part(json, "token");
  if (!token.is_string()) return Error{Errc::malformed, "no token in the answer to a login"};
  const auto& value = token.get_ref<const std::string&>();
  const bool is_word = !value.empty() && std::all_of(value.begin(), value.end(),
                                                     [](char c) { return c > ' ' && c <= '~'; });
  if (!is_word) return Error{Errc::malformed, "no token in the answer to a login"};
  return value;
}

}  // namespace acc::rendezvous
