#pragma once

#include "common/error.hpp"
#include "rendezvous/etcd_access.hpp"
#include "rendezvous/private_file.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace acc::rendezvous {

/// A user in etcd's own user database.
struct EtcdUser {
  std::string name;
  SecretBytes password;
  std::string from;  ///< source, for messages: "ACC_ETCD_USER"
};
/// "NAME:PASSWORD"; the password may hold colons.
/// @param from  its source, for messages.
[[nodiscard]] Result<EtcdUser> parse_etcd_user(std::string_view text, const std::string& from);

class EtcdTls;  // etcd_tls.hpp

/// The contents of the files that EtcdAccess names, checked.
struct EtcdCredentials {
  std::shared_ptr<EtcdTls> tls;  ///< for https endpoints; empty: plain
  std::optional<EtcdUser> user;
};
/// Touches OpenSSL only if `needs_tls`. The user's file must be as private as the secret's.
[[nodiscard]] Result<EtcdCredentials> load_etcd_credentials(const EtcdAccess& access,
                                                            bool needs_tls);

}  // namespace acc::rendezvous
