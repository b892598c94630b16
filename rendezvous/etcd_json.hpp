#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What goes over etcd's HTTP gateway (v3, etcd 3.4 and later): JSON with keys and values in base64
/// and 64-bit numbers as text. Pure; every parser is total: any bytes give a value or an error.
namespace acc::rendezvous {

/// One key as etcd keeps it. Revisions count all changes of the whole store.
struct EtcdEntry {
  std::string key;
  std::string value;
  std::int64_t created = 0;   ///< revision that made the key
  std::int64_t modified = 0;  ///< revision of its last change
  std::int64_t lease = 0;     ///< the key goes when this lease ends; 0: stays
  friend bool operator==(const EtcdEntry&, const EtcdEntry&) = default;
};

struct EtcdRead {
  std::int64_t revision = 0;  ///< of the store, when it was read
  std::optional<EtcdEntry> entry;
};

/// A condition of a transaction; a key that isn't there has the revisions 0.
struct EtcdCompare {
  enum class Of : std::uint8_t { created, modified, value };
  std::string key;
  Of of = Of::created;
  std::int64_t revision = 0;
  std::string value;  ///< for Of::value
};

struct EtcdOperation {
  enum class Kind : std::uint8_t { get, put, remove };
  Kind kind = Kind::get;
  std::string key;
  std::string value;       ///< put
  std::int64_t lease = 0;  ///< put; 0: none
};

struct EtcdTransaction {
  std::vector<EtcdCompare> when;  ///< all must hold; empty: always
  std::vector<EtcdOperation> then;
  std::vector<EtcdOperation> otherwise;
};

struct EtcdTransactionReply {
  bool succeeded = false;     ///< the conditions held, `then` was done
  std::int64_t revision = 0;  ///< of the store afterwards; if it changed something: of that change
  std::vector<std::optional<EtcdEntry>> reads;  ///< one for each operation done; only a get has one
};

struct EtcdLease {
  std::int64_t id = 0;
  std::int64_t ttl_s = 0;  ///< granted, which may be more than was asked for; 0: the lease is gone
};

struct EtcdEvent {
  bool removed = false;
  EtcdEntry entry;  ///< if removed: only the key and, in `modified`, the revision of the removal
};

/// One line of a watch.
struct EtcdNews {
  bool created = false;        ///< the watch stands
  bool canceled = false;       ///< by etcd; nothing will follow
  std::int64_t compacted = 0;  ///< canceled because history before this revision is forgotten
  std::vector<EtcdEvent> events;
};

/// A request that etcd refused, or that something answered which isn't etcd.
struct EtcdRefusal {
  Errc code = Errc::system;
  std::string what;        ///< with the cure
  bool elsewhere = false;  ///< another member of the cluster may answer better
};

[[nodiscard]] std::string to_base64(std::string_view bytes);
/// Padding is required, as in RFC 4648; spaces are not allowed.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

[[nodiscard]] std::string etcd_range_request(std::string_view key);
[[nodiscard]] std::string etcd_put_request(std::string_view key, std::string_view value,
                                           std::int64_t lease);
[[nodiscard]] std::string etcd_transaction_request(const EtcdTransaction& transaction);
[[nodiscard]] std::string etcd_grant_request(std::int64_t ttl_s);
/// For keep-alive and revoke.
[[nodiscard]] std::string etcd_lease_request(std::int64_t id);
[[nodiscard]] std::string etcd_watch_request(std::string_view key, std::int64_t from_revision);

[[nodiscard]] Result<EtcdRead> parse_etcd_range(std::string_view json);
/// The revision of the change.
[[nodiscard]] Result<std::int64_t> parse_etcd_revision(std::string_view json);
/// @param asked  the transaction that this answers.
[[nodiscard]] Result<EtcdTransactionReply> parse_etcd_transaction(std::string_view json,
                                                                  const EtcdTransaction& asked);
/// Of a grant or a keep-alive.
[[nodiscard]] Result<EtcdLease> parse_etcd_lease(std::string_view json);
[[nodiscard]] Result<EtcdNews> parse_etcd_news(std::string_view line);
/// @param status  of HTTP, not 200.
[[nodiscard]] EtcdRefusal parse_etcd_refusal(unsigned status, std::string_view body);

/// Cuts a stream into lines, however it was cut before.
class EtcdLines {
 public:
  explicit EtcdLines(std::size_t longest) : longest_{longest} {}
  /// Complete lines, without their ends; an error for ever once a line is longer than allowed.
  Result<std::vector<std::string>> feed(std::string_view bytes);

 private:
  std::size_t longest_;
  std::string rest_;
};

}  // namespace acc::rendezvous
