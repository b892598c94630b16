// SHA-256 by its own functions. HMAC() and EVP_Q_mac start all of OpenSSL for one digest: 1.7 ms of
// processor time in each process that only names a key.
#define OPENSSL_SUPPRESS_DEPRECATED

#include "rendezvous/secret.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <poll.h>
#include <pwd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

namespace acc::rendezvous {

namespace {

constexpr std::string_view kCredentialName = "acc-secret";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string to_hex(const unsigned char* bytes, std::size_t size) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    text += kDigits[bytes[i] >> 4U];
    text += kDigits[bytes[i] & 15U];
  }
  return text;
}

struct ChosenPlace {
  std::string path;
  bool is_credential = false;
};

ChosenPlace choose_place(const SecretPlaces& places) {
  if (!places.flag.empty()) return {places.flag};
  if (!places.variable.empty()) return {places.variable};
  if (!places.credentials_directory.empty()) {
    std::string path = places.credentials_directory + "/" + std::string{kCredentialName};
    // A service may have other credentials and no secret of ours.
    if (::access(path.c_str(), F_OK) == 0) return {std::move(path), true};
  }
  return {default_secret_path(places)};
}

bool is_text(std::string_view line) {
  return std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

/// RFC 2104 with SHA-256. What depends on the key is wiped, but for the result.
JobKey hmac_sha256(std::string_view key, std::string_view message) {
  SHA256_CTX hash;
  std::array<unsigned char, SHA256_CBLOCK> block{};
  if (key.size() > block.size()) {
    SHA256_Init(&hash);
    SHA256_Update(&hash, key.data(), key.size());
    SHA256_Final(block.data(), &hash);
  } else {
    std::ranges::copy(key, block.begin());
  }
  constexpr unsigned char kInner = 0x36;
  constexpr unsigned char kOuter = 0x5c;
  JobKey digest;
  for (auto& byte : block) byte ^= kInner;
  SHA256_Init(&hash);
  SHA256_Update(&hash, block.data(), block.size());
  SHA256_Update(&hash, message.data(), message.size());
  SHA256_Final(digest.data(), &hash);
  for (auto& byte : block) byte ^= kInner ^ kOuter;
  SHA256_Init(&hash);
  SHA256_Update(&hash, block.data(), block.size());
  SHA256_Update(&hash, digest.data(), digest.size());
  SHA256_Final(digest.data(), &hash);
  OPENSSL_cleanse(block.data(), block.size());
  OPENSSL_cleanse(&hash, sizeof hash);
  return digest;
}

std::string key_id_of(std::string_view secret) {
  const JobKey digest = hkdf_sha256(secret, "", "acc-key-id/1");
  return to_hex(digest.data(), 4);
}

Result<std::vector<SecretKey>> parse_keys(const std::string& path, std::string_view text) {
  std::vector<SecretKey> keys;
  const std::string cure = "; acc-launch --make_secret FILE makes a good one";
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    const std::string where = "secret file '" + path + "', line " + std::to_string(number);
    if (!is_text(line)) return Error{Errc::bad_config, where + " is not plain text" + cure};
    if (line.size() < kMinSecret)
      return Error{Errc::bad_config, where + " is too short: " + std::to_string(line.size()) +
                                         " characters, at least " + std::to_string(kMinSecret) +
                                         " are needed" + cure};
    if (keys.size() == kMaxSecretKeys)
      return Error{Errc::bad_config,
                   where + ": more than " + std::to_string(kMaxSecretKeys) + " secrets"};
    keys.push_back({key_id_of(line), SecretBytes{line}});
  }
  if (keys.empty()) return Error{Errc::bad_config, "secret file '" + path + "' is empty" + cure};
  return keys;
}

Result<void> write_new_file(const std::string& path, std::string_view text) {
  const std::string file = "secret file '" + path + "'";
  const UniqueFd fd{
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
  if (!fd && errno == EEXIST)
    return Error{Errc::bad_usage,
                 file +
                     " exists already and stays as it is; to replace it, see \"Changing the "
                     "secret\" in SECURITY.md (installed in /usr/share/doc/acc)",
                 EEXIST};
  if (!fd) return system_error(errno, "make " + file);
  // The umask must not remove our own permissions, and can't grant any to others.
  int failed = ::fchmod(fd.get(), 0600) != 0 ? errno : 0;
  while (failed == 0 && !text.empty()) {
    const ssize_t n = ::write(fd.get(), text.data(), text.size());
    if (n < 0 && errno != EINTR) failed = errno;
    if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (failed == 0 && ::fsync(fd.get()) != 0 && errno != EINVAL) failed = errno;
  if (failed == 0) return {};
  ::unlink(path.c_str());
  return system_error(failed, "write " + file);
}

// Creates only missing folders, private to the user; existing ones keep their mode.
Result<void> make_folders(const std::filesystem::path& folder) {
  if (folder.empty() || ::access(folder.c_str(), F_OK) == 0) return {};
  if (auto parent = make_folders(folder.parent_path()); !parent) return parent;
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return system_error(errno, "make folder '" + folder.string() + "'");
  return {};
}

}  // namespace

bool is_secret_named(const SecretPlaces& places) {
  return !places.flag.empty() || !places.variable.empty();
}

static std::string home_folder() {
  auto home = variable("HOME");
  if (!home.empty()) return home;
  const auto* user = ::getpwuid(::getuid());  // a service's environment may lack HOME
  return user != nullptr && user->pw_dir != nullptr ? user->pw_dir : "";
}

SecretPlaces secret_places(std::string flag) {
  return {std::move(flag), variable("ACC_SECRET_FILE"), variable("CREDENTIALS_DIRECTORY"),
          variable("XDG_CONFIG_HOME"), home_folder()};
}

std::string default_secret_path(const SecretPlaces& places) {
  if (!places.config_home.empty()) return places.config_home + "/acc/secret";
  if (!places.home.empty()) return places.home + "/.config/acc/secret";
  return {};
}

Result<Secret> load_secret(const SecretPlaces& places) {
  const ChosenPlace place = choose_place(places);
  if (place.path.empty())
    return Error{Errc::not_found,
                 "there is no cluster secret: give --secret_file FILE or set ACC_SECRET_FILE"};
  const auto text =
      read_private_file({place.path, "secret file",
                         "make your own with acc-launch --make_secret FILE", place.is_credential});
  if (!text) {
    Error error = text.error();
    if (error.code == Errc::not_found)
      error.what +=
          "; copy it from a node that has it, to the same place; where no node has one yet, "
          "'acc-launch --make_secret " +
          place.path + "' makes it";
    return error;
  }
  auto keys = parse_keys(place.path, text->view());
  if (!keys) return keys.error();
  return Secret{place.path, std::move(*keys)};
}

Result<std::string> make_secret(const std::string& path) {
  if (path.empty())
    return Error{Errc::bad_usage, "make a secret: there is no home folder, so name a file"};
  std::array<unsigned char, 32> random{};
  // Blocks until the pool is initialized, once, early in boot: a guessable secret would be worse.
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return system_error(errno, "make a secret");
  std::string text = to_hex(random.data(), random.size());
  std::string id = key_id_of(text);
  text += '\n';
  auto made = make_folders(std::filesystem::path{path}.parent_path());
  if (made) made = write_new_file(path, text);
  OPENSSL_cleanse(random.data(), random.size());
  OPENSSL_cleanse(text.data(), text.size());
  if (!made) return made.error();
  return id;
}

Result<Secret> read_secret(int fd, Behind behind) {
  constexpr std::size_t kLongest = 4096;
  constexpr std::chrono::seconds kPatience{30};
  const std::string where = "the secret from descriptor " + std::to_string(fd);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  // Neither is ever moved, so that wiping them leaves no copy.
  std::array<char, kLongest + 1> piece{};
  const std::size_t at_once = behind == Behind::nothing ? piece.size() : 1;
  std::string line;
  line.reserve(kLongest);
  std::optional<Error> failed;
  for (bool is_whole = false; !failed && !is_whole;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd ready{fd, POLLIN, 0};
    const int n = ::poll(&ready, 1, std::max(0, static_cast<int>(left.count())));
    const ssize_t got = n > 0 ? ::read(fd, piece.data(), at_once) : -1;
    const std::string_view bytes{piece.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
    const auto end = std::min(bytes.find('\n'), bytes.size());
    if (n == 0) {
      failed = Error{Errc::timed_out, where + " did not come within 30 s"};
    } else if (got < 0 && errno != EINTR && errno != EAGAIN) {
      failed = system_error(errno, "read " + where);
    } else if (got == 0) {
      failed = Error{Errc::unavailable, where + ": it was closed before the end of a line"};
    } else if (line.size() + end > kLongest) {
      failed = Error{Errc::bad_config, where + " is longer than 4096 bytes"};
    } else {
      line += bytes.substr(0, end);
      is_whole = end < bytes.size();
    }
  }
  OPENSSL_cleanse(piece.data(), piece.size());
  if (!failed && (!is_text(line) || line.size() < kMinSecret))
    failed = Error{Errc::bad_config, where + " is not plain text of " + std::to_string(kMinSecret) +
                                         " characters or more"};
  Secret secret{"descriptor " + std::to_string(fd), {}};
  if (!failed) secret.keys.push_back({key_id_of(line), SecretBytes{line}});
  OPENSSL_cleanse(line.data(), line.size());
  if (failed) return *failed;
  return secret;
}

Result<SecretBytes> random_secret() {
  std::array<unsigned char, 32> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return system_error(errno, "make a secret");
  std::string text = to_hex(random.data(), random.size());
  SecretBytes secret{text};
  OPENSSL_cleanse(random.data(), random.size());
  OPENSSL_cleanse(text.data(), text.size());
  return secret;
}

JobKey hkdf_sha256(std::string_view secret, std::string_view salt, std::string_view info) {
  // An empty salt is, by the RFC, a block of zeros; HMAC pads an empty key to the same.
  JobKey extracted = hmac_sha256(salt, secret);
  const std::string block = std::string{info} + '\x01';
  const std::string_view key{reinterpret_cast<const char*>(extracted.data()), extracted.size()};
  const JobKey derived = hmac_sha256(key, block);
  OPENSSL_cleanse(extracted.data(), extracted.size());
  return derived;
}

JobKey job_key(const SecretKey& key, std::string_view job) {
  return hkdf_sha256(key.bytes.view(), job, "acc-rdzv/1");
}

std::string psk_identity(std::string_view key_id, std::string_view job) {
  return "acc1:" + std::string{key_id} + ":" + std::string{job};
}

bool names_key(const Secret& secret, std::string_view hello) {
  return std::any_of(secret.keys.begin(), secret.keys.end(), [&](const SecretKey& key) {
    return hello.find(psk_identity(key.id, "")) != std::string_view::npos;
  });
}

PskIdentity parse_psk_identity(std::string_view identity) noexcept {
  constexpr std::string_view kPrefix = "acc1:";
  constexpr std::size_t kIdDigits = 8;
  if (identity.substr(0, kPrefix.size()) != kPrefix) return {};
  identity.remove_prefix(kPrefix.size());
  if (identity.size() <= kIdDigits || identity[kIdDigits] != ':') return {};
  const PskIdentity parsed{identity.substr(0, kIdDigits), identity.substr(kIdDigits + 1)};
  if (parsed.job.empty() || parsed.job.size() > kMaxJobName) return {};
  return parsed;
}

}  // namespace acc::rendezvous
