#pragma once

#include "common/error.hpp"
#include "rendezvous/private_file.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The cluster's secret: one file that every node has and no other user may read. It yields a key
/// per job, which proves to both ends of a connection that they belong together.
namespace acc::rendezvous {

struct SecretKey {
  std::string id;  ///< 8 hex digits; not confidential
  SecretBytes bytes;
};

struct Secret {
  std::string path;
  /// The first is used for dialling, all are accepted: a secret can be replaced node by node.
  std::vector<SecretKey> keys;
};

inline constexpr std::size_t kMinSecret = 32;  ///< characters of a line
inline constexpr std::size_t kMaxSecretKeys = 8;
inline constexpr std::size_t kMaxJobName = 200;  ///< of the job's name in an identity

/// Places to look for the secret; empty: not set. The first one set is used, even if its file is
/// missing.
struct SecretPlaces {
  std::string flag{};                   ///< --secret_file
  std::string variable{};               ///< ACC_SECRET_FILE
  std::string credentials_directory{};  ///< of systemd's LoadCredential=acc-secret:…
  std::string config_home{};            ///< $XDG_CONFIG_HOME
  std::string home{};                   ///< $HOME, else what the system's list of users says
};
/// True if the user named a secret. It is then used on loopback, too, where none is required.
[[nodiscard]] bool is_secret_named(const SecretPlaces& places);
/// The places from this process's environment.
[[nodiscard]] SecretPlaces secret_places(std::string flag = {});
/// Default path of this user's secret, for loading and creating; empty without a home.
[[nodiscard]] std::string default_secret_path(const SecretPlaces& places);

/// Refuses a file that other users can read or that belongs neither to us nor to root, as ssh does.
/// @return Errc::not_found if there is none; `what` names the places and the cure.
Result<Secret> load_secret(const SecretPlaces& places);

/// What follows the secret in its descriptor.
enum class Behind {
  nothing,  ///< it is read in pieces
  orders,   ///< not a byte of them is read
};
/// Reads one line of at most 4 KiB from `fd`. Blocks for 30 s at most.
Result<Secret> read_secret(int fd, Behind behind);
/// 32 random bytes in hex, for one job.
Result<SecretBytes> random_secret();

/// Writes 32 random bytes in hex with mode 0600, in a folder that is created with 0700 if it is
/// missing. Never overwrites.
/// @return the new key's id
Result<std::string> make_secret(const std::string& path);

using JobKey = std::array<unsigned char, 32>;
/// HKDF-SHA256(secret, salt = job, info = "acc-rdzv/1"): a leaked job key gives access to that job
/// only. The caller wipes it.
[[nodiscard]] JobKey job_key(const SecretKey& key, std::string_view job);

/// "acc1:<key id>:<job>": sent in clear by the dialling side before anything is proved.
[[nodiscard]] std::string psk_identity(std::string_view key_id, std::string_view job);
struct PskIdentity {
  std::string_view key_id;
  std::string_view job;
};
/// Total: an empty key id means "not one of ours".
[[nodiscard]] PskIdentity parse_psk_identity(std::string_view identity) noexcept;

/// True if the first message of a TLS handshake names one of these keys. The identity is sent in
/// clear: this is a filter before any computation, not a proof.
[[nodiscard]] bool names_key(const Secret& secret, std::string_view hello);

/// RFC 5869 with SHA-256, one block of output.
[[nodiscard]] JobKey hkdf_sha256(std::string_view secret, std::string_view salt,
                                 std::string_view info);

}  // namespace acc::rendezvous
