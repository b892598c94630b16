#include "launcher/secret_file.hpp"

#include "common/text.hpp"
#include "rendezvous/secret.hpp"

namespace acc::launcher {

/// Where root's acc-agent looks (agent/daemon/cluster_secret.cpp).
static constexpr std::string_view kSecretOfService = "/etc/acc/secret";

std::string secret_path_for(const std::string& wanted) {
  return wanted.empty() ? rendezvous::default_secret_path(rendezvous::secret_places()) : wanted;
}

Result<std::string> make_secret_file(const std::string& wanted, const std::string& how) {
  const auto path = secret_path_for(wanted);
  if (path.empty())
    return Error{Errc::bad_usage,
                 "HOME isn't set and this user has no home folder to put it in: name a file, " +
                     how + ", and give it to all machines with --secret_file FILE"};
  const auto key_id = rendezvous::make_secret(path);
  if (!key_id) return key_id.error();
  std::string next = "; name it there and here with --secret_file or ACC_SECRET_FILE.\n";
  if (wanted.empty()) next = ": acc-launch finds it in the same place there.\n";
  if (path == kSecretOfService) next = ": root's acc-agent finds it in the same place there.\n";
  return "made the secret " + *key_id + " in " + printable(path) +
         "\nCopy that file to the other machines, for you alone to read (mode 0600)" + next;
}

}  // namespace acc::launcher
