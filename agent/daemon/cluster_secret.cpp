#include "agent/daemon/cluster_secret.hpp"

#include "agent/daemon/peer_rules.hpp"
#include "common/host_name.hpp"
#include "common/text.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace acc::agent::daemon {

using rendezvous::SecretBytes;
using rendezvous::TlsContext;

namespace {

constexpr const char* kRootFile = "/etc/acc/secret";
constexpr std::string_view kLaunchInfo = "acc-launch-secret/1";

rendezvous::SecretPlaces places_of(const std::string& file, bool is_root) {
  auto places = rendezvous::secret_places(file);
  const bool has_own_place =
      rendezvous::is_secret_named(places) ||
      (!places.credentials_directory.empty() &&
       ::access((places.credentials_directory + "/acc-secret").c_str(), F_OK) == 0);
  if (is_root && !has_own_place && ::access(kRootFile, F_OK) == 0) places.flag = kRootFile;
  return places;
}

}  // namespace

ClusterSecret::Stamp ClusterSecret::stamp_of(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return {};
  constexpr std::int64_t kSecond = 1'000'000'000;
  return {file.st_dev, file.st_ino, file.st_size,
          file.st_ctim.tv_sec * kSecond + file.st_ctim.tv_nsec};
}

Result<std::shared_ptr<const rendezvous::Secret>> ClusterSecret::secret() {
  if (secret_ && stamp_ != Stamp{} && stamp_of(secret_->path) == stamp_) return secret_;
  secret_.reset();
  dials_.reset();
  listens_.reset();
  auto places = places_of(file_, is_root_);
  auto loaded = rendezvous::load_secret(places);
  if (!loaded && loaded.error().code == Errc::not_found && !served_.empty()) {
    // Gone from where it was: that is the place to put it, not the last of the usual ones.
    places.flag = served_;
    loaded = rendezvous::load_secret(places);
  }
  if (!loaded) {
    // Named: a launch shows it in the line of the host that it couldn't ask.
    const std::string node = "this node (" + host_name() + ")";
    Error error = loaded.error();
    if (error.code != Errc::not_found)
      error.what = node + " can't read the cluster's secret: " + error.what;
    else
      error.what = node + " has no cluster secret: " + error.what +
                   "; acc-agent finds it by --secret-file" +
                   (is_root_ ? ", or at " + std::string{kRootFile} : std::string{});
    return error;
  }
  // Of what is read now: a file that was replaced meanwhile is read again at the next call.
  stamp_ = stamp_of(loaded->path);
  loaded = rendezvous::load_secret(places);
  if (!loaded) return loaded.error();
  served_ = loaded->path;
  secret_ = std::make_shared<const rendezvous::Secret>(std::move(*loaded));
  return secret_;
}

bool ClusterSecret::accepts(std::string_view key_id) {
  const auto loaded = secret();
  return loaded &&
         std::ranges::any_of((*loaded)->keys, [&](const auto& key) { return key.id == key_id; });
}

Result<std::shared_ptr<const TlsContext>> ClusterSecret::for_dialling() {
  const auto loaded = secret();
  if (!loaded) return loaded.error();
  if (!dials_) dials_ = TlsContext::for_dialling(**loaded, std::string{kPeerJob});
  return dials_;
}

Result<std::shared_ptr<const TlsContext>> ClusterSecret::for_listening() {
  const auto loaded = secret();
  if (!loaded) return loaded.error();
  if (!listens_) listens_ = TlsContext::for_listening(**loaded);
  return listens_;
}

Result<SecretBytes> launch_secret(const rendezvous::Secret& secret, std::string_view key_id,
                                  std::string_view user, std::string_view launch_id) {
  const auto key = key_id.empty()
                       ? secret.keys.begin()
                       : std::ranges::find(secret.keys, key_id, &rendezvous::SecretKey::id);
  if (key == secret.keys.end())
    return Error{Errc::not_found, "the secret file '" + secret.path + "' has no key with the id " +
                                      printable(key_id, 20) + " any more"};
  // An id has no slash, so that no other pair makes the same text.
  const std::string salt = std::string{user} + '/' + std::string{launch_id};
  auto bytes = rendezvous::hkdf_sha256(key->bytes.view(), salt, kLaunchInfo);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  SecretBytes result{text};
  static_assert(2 * std::tuple_size_v<rendezvous::JobKey> >= rendezvous::kMinSecret);
  ::explicit_bzero(text.data(), text.size());
  ::explicit_bzero(bytes.data(), bytes.size());
  return result;
}

}  // namespace acc::agent::daemon
