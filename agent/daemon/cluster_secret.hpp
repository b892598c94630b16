#pragma once

#include "common/error.hpp"
#include "rendezvous/secret.hpp"
#include "rendezvous/tls.hpp"

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

namespace acc::agent::daemon {

/// The cluster's secret of this daemon: read when it is first needed, and again when its file has
/// changed, so that it can be replaced without a restart. OpenSSL isn't touched before.
class ClusterSecret {
 public:
  /// @param file  of the settings; empty: as for acc-launch, and for root /etc/acc/secret if there
  /// is one
  ClusterSecret(std::string file, bool is_root) : file_{std::move(file)}, is_root_{is_root} {}

  [[nodiscard]] Result<std::shared_ptr<const rendezvous::Secret>> secret();
  /// False for a key that was taken out of the file since it proved a connection.
  [[nodiscard]] bool accepts(std::string_view key_id);
  [[nodiscard]] Result<std::shared_ptr<const rendezvous::TlsContext>> for_dialling();
  [[nodiscard]] Result<std::shared_ptr<const rendezvous::TlsContext>> for_listening();

 private:
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    std::int64_t changed_ns = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  [[nodiscard]] static Stamp stamp_of(const std::string& path);

  std::string file_;
  bool is_root_;
  std::shared_ptr<const rendezvous::Secret> secret_;
  Stamp stamp_;
  std::string served_;  ///< where it was read last; empty: nowhere yet
  std::shared_ptr<const rendezvous::TlsContext> dials_;
  std::shared_ptr<const rendezvous::TlsContext> listens_;
};

/// The secret of one user's launch, the same on all nodes of the cluster, in hex: HKDF-SHA256 of
/// the key with this id (empty: the first), salted with the user's name and the launch's id.
/// Another user that takes the same id gets another secret.
[[nodiscard]] Result<rendezvous::SecretBytes> launch_secret(const rendezvous::Secret& secret,
                                                            std::string_view key_id,
                                                            std::string_view user,
                                                            std::string_view launch_id);

}  // namespace acc::agent::daemon
