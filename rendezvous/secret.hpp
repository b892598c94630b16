#pragma once

#include "common/error.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The cluster's secret: one file that every node has and nobody else may read. From it comes a key
/// for each job, which proves to both ends of a connection that they belong together.
namespace acc::rendezvous {

/// Bytes that leave nothing behind in memory.
class SecretBytes {
 public:
  SecretBytes() = default;
  explicit SecretBytes(std::string_view bytes) : bytes_{bytes.begin(), bytes.end()} {}
  SecretBytes(const SecretBytes&) = default;
  SecretBytes(SecretBytes&& other) noexcept = default;
  SecretBytes& operator=(SecretBytes other) noexcept {
    bytes_.swap(other.bytes_);
    return *this;
  }
  ~SecretBytes();

  [[nodiscard]] std::string_view view() const noexcept {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

struct SecretKey {
  std::string id;  ///< 8 hex digits; may be shown and sent
  SecretBytes bytes;
};

struct Secret {
  std::string path;
  /// The first is used for dialling, all are accepted: so a secret is replaced node by node.
  std::vector<SecretKey> keys;
};

inline constexpr std::size_t kMinSecret = 32;  ///< characters of a line
inline constexpr std::size_t kMaxSecretKeys = 8;
inline constexpr std::size_t kMaxJobName = 200;  ///< of the job's name in an identity

/// Where to look; empty: not there. The first that is given counts, also when its file is missing.
struct SecretPlaces {
  std::string flag{};                   ///< --secret_file
  std::string variable{};               ///< ACC_SECRET_FILE
  std::string credentials_directory{};  ///< of systemd's LoadCredential=acc-secret:…
  std::string config_home{};            ///< $XDG_CONFIG_HOME
  std::string home{};
};
/// The places as this process's environment has them.
[[nodiscard]] SecretPlaces secret_places(std::string flag = {});
/// Where a secret for this user is looked for and made if nothing else is said; empty without a
/// home.
[[nodiscard]] std::string default_secret_path(const SecretPlaces& places);

/// Refuses a file that others can read or that is neither ours nor root's, as ssh does.
/// @return Errc::not_found if there is none; `what` names the places and the cure.
Result<Secret> load_secret(const SecretPlaces& places);

/// 32 random bytes in hex, mode 0600, in a folder that is made with 0700 if it is missing. Never
/// overwrites.
/// @return the new key's id
Result<std::string> make_secret(const std::string& path);

using JobKey = std::array<unsigned char, 32>;
/// HKDF-SHA256(secret, salt = job, info = "acc-rdzv/1"): a job's key, once leaked, opens that job
/// only. The caller wipes it.
[[nodiscard]] JobKey job_key(const SecretKey& key, std::string_view job);

/// "acc1:<key id>:<job>": what a dialler says in clear before anything is proved.
[[nodiscard]] std::string psk_identity(std::string_view key_id, std::string_view job);
struct PskIdentity {
  std::string_view key_id;
  std::string_view job;
};
/// Total: an empty key id is "not one of ours".
[[nodiscard]] PskIdentity parse_psk_identity(std::string_view identity) noexcept;

/// Does the first message of a TLS handshake, as it came, name one of these keys? The identity
/// stands in it in clear: this is a filter before anything is computed, and no proof.
[[nodiscard]] bool names_key(const Secret& secret, std::string_view hello);

/// RFC 5869 with SHA-256, one block of output.
[[nodiscard]] JobKey hkdf_sha256(std::string_view secret, std::string_view salt,
                                 std::string_view info);

}  // namespace acc::rendezvous
