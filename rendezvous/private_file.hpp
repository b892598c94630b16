#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Small files that only their owner may read: the cluster's secret, a password.
namespace acc::rendezvous {

/// Bytes that are wiped from memory when released.
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

struct PrivateFile {
  std::string path;
  std::string what;            ///< for messages: "secret file"
  std::string if_foreign;      ///< the cure if it belongs to another user
  bool is_credential = false;  ///< a systemd credential, which an access list may show to a group
};

/// At most 16 KiB. Refuses a file that other users can read or that belongs neither to us nor to
/// root, as ssh does.
Result<SecretBytes> read_private_file(const PrivateFile& file);

}  // namespace acc::rendezvous
