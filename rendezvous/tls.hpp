#pragma once

#include "common/error.hpp"
#include "rendezvous/secret.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct ssl_st;
struct ssl_ctx_st;

/// TLS 1.3 with a pre-shared key (RFC 8446, 2.2: external PSK, psk_dhe_ke with X25519), directly on
/// a non-blocking socket: 13 KiB per connection, where asio's stream takes 72.
namespace acc::rendezvous {

/// The peer's proven identity.
struct Proof {
  std::string key_id;
  std::string job;
};

/// Starts OpenSSL with what TLS by keys needs: without openssl.cnf, the names of old algorithms and
/// the texts of errors other than TLS's. To be called before the first TlsContext of a process that
/// lives shortly and has no certificates (of etcd); else the first use starts all of it, which
/// costs 0.9 ms of processor time more.
void start_openssl_for_keys();

/// Settings of one side; created once and shared by its connections, which may outlive the owner.
class TlsContext {
 public:
  enum class Role { dials, listens };
  /// Dials as a member of `job`, with the secret's first key.
  static std::shared_ptr<const TlsContext> for_dialling(const Secret& secret,
                                                        const std::string& job);
  /// Accepts every key of the secret, for any job: the proven job is in `Proof`.
  static std::shared_ptr<const TlsContext> for_listening(const Secret& secret);

  TlsContext(Role role, Secret secret, std::string job);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  [[nodiscard]] Role role() const noexcept { return role_; }
  [[nodiscard]] const Secret& secret() const noexcept { return secret_; }
  [[nodiscard]] const std::string& job() const noexcept { return job_; }
  /// The identity it sends when it dials.
  [[nodiscard]] const std::string& identity() const noexcept { return identity_; }
  [[nodiscard]] ssl_ctx_st* native() const noexcept { return context_; }

 private:
  Role role_;
  Secret secret_;
  std::string job_;
  std::string identity_;
  ssl_ctx_st* context_;
};

/// Result of an attempt to read, write or shake hands.
enum class Io { done, want_read, want_write, end, failed };

/// Why a stream failed, as far as this side can tell.
enum class StreamFault {
  none,
  reset,           ///< connection reset: see errnum
  authentication,  ///< the secrets differ, or the peer refused ours
  other_is_plain,  ///< uses our protocol, or says so, but without TLS
  not_tls,         ///< its answer is not TLS
  not_ours,        ///< uses TLS, but not with such a key
  busy,            ///< the peer takes no further handshake now, and says so
  broken,          ///< damaged or forged bytes after the handshake
};

/// The bytes of one connection, plain or through TLS. Never blocks, never throws, never raises
/// SIGPIPE.
/// SIGPIPE.
class Stream {
 public:
  /// @param fd  a connected, non-blocking socket; outlives the stream
  explicit Stream(int fd) noexcept : fd_{fd} {}
  Stream(int fd, std::shared_ptr<const TlsContext> tls);
  Stream(Stream&&) = delete;
  ~Stream();

  [[nodiscard]] bool is_tls() const noexcept { return tls_ != nullptr; }
  /// Plain: done immediately. TLS: to be called again when the socket is ready as indicated.
  Io shake_hands();
  Io read(std::span<char> into, std::size_t& got);
  /// Accepts all or a part. After want_…, the same bytes (and possibly more) must be passed again.
  Io write(std::string_view bytes, std::size_t& taken);
  /// Signals the end of our data to the peer.
  void end_writing() noexcept;

  [[nodiscard]] StreamFault fault() const noexcept { return fault_; }
  [[nodiscard]] int errnum() const noexcept { return errnum_; }
  /// For the log: the reason given by OpenSSL or the system.
  [[nodiscard]] std::string describe_fault() const;
  /// Empty without TLS. Only a claim of the peer until the handshake is complete.
  [[nodiscard]] const Proof& proof() const noexcept { return proof_; }
  void note_claim(std::string_view key_id, std::string_view job);

 private:
  Io judge(int result);
  Io fail(StreamFault fault, int errnum);
  Io plain_result(long n, std::size_t& count);

  int fd_;
  int errnum_ = 0;
  StreamFault fault_ = StreamFault::none;
  bool is_ready_ = false;
  unsigned long reason_ = 0;  ///< OpenSSL's
  ssl_st* ssl_ = nullptr;
  std::shared_ptr<const TlsContext> tls_;
  Proof proof_;
};

/// TLS alerts in clear, so that a peer of the other kind learns why it is rejected. To a peer that
/// uses TLS where none is expected: "protocol_version".
inline constexpr std::string_view kAlertNoTls{"\x15\x03\x03\x00\x02\x02\x46", 7};
/// To a peer without TLS where it is expected: "handshake_failure".
inline constexpr std::string_view kAlertNeedsTls{"\x15\x03\x03\x00\x02\x02\x28", 7};

/// To a peer whose handshake isn't begun, as there are too many at once: "user_canceled", which is
/// for reasons outside of the protocol. It may try again.
inline constexpr std::string_view kAlertBusy{"\x15\x03\x03\x00\x02\x02\x5a", 7};

/// Kind of protocol suggested by a peer's first bytes.
enum class Speech { ours_or_unknown, tls_hello, tls_alert, http };
[[nodiscard]] Speech recognise(std::string_view first_bytes) noexcept;

}  // namespace acc::rendezvous
