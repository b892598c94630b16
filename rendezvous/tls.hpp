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

/// TLS 1.3 with a key that both sides have already (RFC 8446, 2.2: external PSK, psk_dhe_ke with
/// X25519), straight on a non-blocking socket: 13 KiB a connection, where asio's stream costs 72.
namespace acc::rendezvous {

/// Whom the other side proved to be.
struct Proof {
  std::string key_id;
  std::string job;
};

/// One side's settings; made once, shared by its connections, which may outlive the owner.
class TlsContext {
 public:
  enum class Role { dials, listens };
  /// Dials as a member of `job`, with the secret's first key.
  static std::shared_ptr<const TlsContext> for_dialling(const Secret& secret,
                                                        const std::string& job);
  /// Accepts every key of the secret, for any job: the job that was proved is in `Proof`.
  static std::shared_ptr<const TlsContext> for_listening(const Secret& secret);

  TlsContext(Role role, Secret secret, std::string job);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  [[nodiscard]] Role role() const noexcept { return role_; }
  [[nodiscard]] const Secret& secret() const noexcept { return secret_; }
  [[nodiscard]] const std::string& job() const noexcept { return job_; }
  /// What it says of itself when it dials.
  [[nodiscard]] const std::string& identity() const noexcept { return identity_; }
  [[nodiscard]] ssl_ctx_st* native() const noexcept { return context_; }

 private:
  Role role_;
  Secret secret_;
  std::string job_;
  std::string identity_;
  ssl_ctx_st* context_;
};

/// What became of an attempt to read, write or shake hands.
enum class Io { done, want_read, want_write, end, failed };

/// Why a stream failed, as far as it can be told from this side.
enum class StreamFault {
  none,
  reset,           ///< the connection broke: see errnum
  authentication,  ///< the secrets differ, or the other side refused ours
  other_is_plain,  ///< speaks our protocol, or says so, but without TLS
  not_tls,         ///< answers something that is no TLS
  not_ours,        ///< speaks TLS, but not with such a key
  broken,          ///< damaged or forged bytes after the handshake
};

/// The bytes of one connection, plain or through TLS. Never blocks, never throws, raises no
/// SIGPIPE.
class Stream {
 public:
  /// @param fd  a connected, non-blocking socket; outlives the stream
  explicit Stream(int fd) noexcept : fd_{fd} {}
  Stream(int fd, std::shared_ptr<const TlsContext> tls);
  Stream(Stream&&) = delete;
  ~Stream();

  [[nodiscard]] bool is_tls() const noexcept { return tls_ != nullptr; }
  /// Plain: done at once. TLS: to be called again when the socket is ready for what it wants.
  Io shake_hands();
  Io read(std::span<char> into, std::size_t& got);
  /// Takes a part or all of it. After want_…, the same bytes (and perhaps more) have to come again.
  Io write(std::string_view bytes, std::size_t& taken);
  /// Tells the other side that no more comes.
  void end_writing() noexcept;

  [[nodiscard]] StreamFault fault() const noexcept { return fault_; }
  [[nodiscard]] int errnum() const noexcept { return errnum_; }
  /// For the log: OpenSSL's reason or the system's.
  [[nodiscard]] std::string describe_fault() const;
  /// Empty without TLS. Nothing but the other side's word until the handshake is done.
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

/// A TLS alert in clear, so that a peer of the other kind learns why it is turned away.
/// To one who speaks TLS where none is spoken: "protocol_version".
inline constexpr std::string_view kAlertNoTls{"\x15\x03\x03\x00\x02\x02\x46", 7};
/// To one who speaks plain where TLS is spoken: "handshake_failure".
inline constexpr std::string_view kAlertNeedsTls{"\x15\x03\x03\x00\x02\x02\x28", 7};

/// What the first bytes of a peer look like.
enum class Speech { ours_or_unknown, tls_hello, tls_alert, http };
[[nodiscard]] Speech recognise(std::string_view first_bytes) noexcept;

}  // namespace acc::rendezvous
