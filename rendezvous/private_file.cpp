#include "rendezvous/private_file.hpp"

#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

namespace acc::rendezvous {

namespace {

constexpr std::size_t kMaxPrivateFile = std::size_t{16} << 10U;

/// Wiped at the end of its scope, on every path.
struct Buffer {
  std::array<char, kMaxPrivateFile + 1> bytes{};
  std::size_t size = 0;
  ~Buffer() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
};

std::string quoted(const PrivateFile& file) { return file.what + " '" + file.path + "'"; }

std::string owner_and_mode(const struct stat& found) {
  char text[64];
  std::snprintf(text, sizeof text, "mode %04o, owner uid %u", unsigned{found.st_mode & 07777U},
                unsigned{found.st_uid});
  return text;
}

// systemd gives a credential to the service's user through an access list, whose mask appears as
// the group bits; the enclosing folder belongs to that user alone.
Result<void> check_access(const PrivateFile& place, const struct stat& found) {
  const std::string file = quoted(place);
  if (!S_ISREG(found.st_mode)) return Error{Errc::bad_config, file + " is not a regular file"};
  if (found.st_uid != ::geteuid() && found.st_uid != 0)
    return Error{Errc::not_permitted, file + " belongs to another user (" + owner_and_mode(found) +
                                          "); it must be yours or root's: chown it, or " +
                                          place.if_foreign};
  const unsigned forbidden = place.is_credential ? 0027U : 0077U;
  if ((found.st_mode & forbidden) != 0)
    return Error{Errc::not_permitted, file + " is open to others (" + owner_and_mode(found) +
                                          "), so it is no secret: chmod 600 " + place.path +
                                          "; if others may have read it, make a new one"};
  return {};
}

Result<void> read_into(const PrivateFile& place, Buffer& into) {
  const std::string file = quoted(place);
  // O_NONBLOCK: a pipe in its place must not block us.
  const UniqueFd fd{::open(place.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (!fd) return system_error(errno, "open " + file);
  struct stat found {};
  if (::fstat(fd.get(), &found) != 0) return system_error(errno, "look at " + file);
  if (auto access = check_access(place, found); !access) return access.error();
  while (into.size < into.bytes.size()) {
    const ssize_t n =
        ::read(fd.get(), into.bytes.data() + into.size, into.bytes.size() - into.size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(errno, "read " + file);
    if (n == 0) return {};
    into.size += static_cast<std::size_t>(n);
  }
  return Error{Errc::bad_config, file + " is larger than 16 KiB: that is no " + place.what};
}

}  // namespace

SecretBytes::~SecretBytes() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

Result<SecretBytes> read_private_file(const PrivateFile& file) {
  Buffer text;
  if (auto done = read_into(file, text); !done) return done.error();
  return SecretBytes{{text.bytes.data(), text.size}};
}

}  // namespace acc::rendezvous
