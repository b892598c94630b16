#pragma once

#include <string>

namespace acc::rendezvous {

/// Files and variables with the credentials for an etcd that requires them.
struct EtcdAccess {
  std::string ca_file;    ///< CAs to trust instead of the system's; empty: the system's
  std::string cert_file;  ///< of this client; empty, as key_file: none is presented
  std::string key_file;
  std::string user_file;  ///< one line NAME:PASSWORD; empty: the variable ACC_ETCD_USER
};

}  // namespace acc::rendezvous
