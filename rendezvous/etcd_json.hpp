#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// JSON of etcd's HTTP gateway (v3, etcd 3.4 and later), with keys and values in base64 and 64-bit
/// numbers as text. Pure; every parser is total: any bytes give a value or an error.
namespace acc::rendezvous {

/// One key as stored in etcd. Revisions count all changes of the whole store.
struct EtcdEntry {
  std::string key;
  std::string value;
  std::int64_t created = 0;   ///< revision that created the key
  std::int64_t modified = 0;  ///< revision of its last change
  std::int64_t lease = 0;     ///< the key is deleted when this lease ends; 0: permanent
  friend bool operator==(const EtcdEntry&, const EtcdEntry&) = default;
};

struct EtcdRead {
  std::int64_t revision = 0;  ///< of the store, when it was read
  std::optional<EtcdEntry> entry;
};

/// A condition of a transaction; a missing key has the revisions 0.
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
  /// One for each operation done, which are those of `then` where no condition was set; only a get
  /// has one.
  std::vector<std::optional<EtcdEntry>> reads;
};

struct EtcdLease {
  std::int64_t id = 0;
  std::int64_t ttl_s = 0;  ///< granted, maybe more than requested; 0: the lease is gone
};

/// A request refused by etcd, or answered by something that isn't etcd.
struct EtcdRefusal {
  Errc code = Errc::system;
  std::string what;           ///< including the cure
  bool elsewhere = false;     ///< another member of the cluster may answer better
  bool needs_login = false;   ///< the token expired, or there is none
  bool has_no_users = false;  ///< no login is required
};

[[nodiscard]] std::string to_base64(std::string_view bytes);
/// Padding is required, as in RFC 4648; spaces are not allowed.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

[[nodiscard]] std::string etcd_range_request(std::string_view key);
[[nodiscard]] std::string etcd_put_request(std::string_view key, std::string_view value,
                                           std::int64_t lease);
[[nodiscard]] std::string etcd_transaction_request(const EtcdTransaction& transaction);
[[nodiscard]] std::string etcd_grant_request(std::int64_t ttl_s);
[[nodiscard]] std::string etcd_login_request(std::string_view user, std::string_view password);
/// For keep-alive and revoke.
[[nodiscard]] std::string etcd_lease_request(std::int64_t id);

[[nodiscard]] Result<EtcdRead> parse_etcd_range(std::string_view json);
/// The revision of the change.
[[nodiscard]] Result<std::int64_t> parse_etcd_revision(std::string_view json);
/// @param asked  the transaction that was sent.
[[nodiscard]] Result<EtcdTransactionReply> parse_etcd_transaction(std::string_view json,
                                                                  const EtcdTransaction& asked);
/// From a grant or a keep-alive.
[[nodiscard]] Result<EtcdLease> parse_etcd_lease(std::string_view json);
/// From a login.
[[nodiscard]] Result<std::string> parse_etcd_token(std::string_view json);
/// @param status  HTTP status, not 200.
[[nodiscard]] EtcdRefusal parse_etcd_refusal(unsigned status, std::string_view body);

}  // namespace acc::rendezvous
