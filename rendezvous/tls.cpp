#include "rendezvous/tls.hpp"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <stdexcept>

namespace acc::rendezvous {

namespace {

// The key is 256 bits for HKDF-SHA256, and TLS 1.3 binds a key to its hash: this is the only suite.
constexpr const char* kSuite = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteId[] = {0x13, 0x01};

// ---- the socket as OpenSSL sees it: its own socket BIO writes with write(), which raises SIGPIPE

int fd_of(BIO* bio) { return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio))); }

int bio_result(BIO* bio, ssize_t n, int flag) {
  BIO_clear_retry_flags(bio);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    BIO_set_flags(bio, flag | BIO_FLAGS_SHOULD_RETRY);
  if (n == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(n);
}

int bio_write(BIO* bio, const char* bytes, int size) {
  return bio_result(bio, ::send(fd_of(bio), bytes, static_cast<std::size_t>(size), MSG_NOSIGNAL),
                    BIO_FLAGS_WRITE);
}

int bio_read(BIO* bio, char* into, int size) {
  return bio_result(bio, ::recv(fd_of(bio), into, static_cast<std::size_t>(size), 0),
                    BIO_FLAGS_READ);
}

long bio_control(BIO* bio, int command, long /*number*/, void* /*pointer*/) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return 0;
}

int bio_create(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

BIO_METHOD* socket_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_ctrl(made, bio_control);
    BIO_meth_set_create(made, bio_create);
    return made;
  }();
  return method;
}

// ---- the key

SSL_SESSION* session_of(SSL* ssl, const JobKey& key) {
  SSL_SESSION* const session = SSL_SESSION_new();
  const SSL_CIPHER* const suite = SSL_CIPHER_find(ssl, kSuiteId);
  if (session != nullptr && suite != nullptr &&
      SSL_SESSION_set1_master_key(session, key.data(), key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, suite) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  SSL_SESSION_free(session);
  return nullptr;
}

const TlsContext& context_of(const SSL* ssl) {
  return *static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

Stream& stream_of(const SSL* ssl) { return *static_cast<Stream*>(SSL_get_app_data(ssl)); }

// OpenSSL asks for the identity and the key to dial with. It copies neither, so the identity lives
// in the context.
int give_key(SSL* ssl, const EVP_MD* /*hash*/, const unsigned char** identity, size_t* size,
             SSL_SESSION** session) {
  const TlsContext& context = context_of(ssl);
  const std::string& text = context.identity();
  JobKey key = job_key(context.secret().keys.front(), context.job());
  *session = session_of(ssl, key);
  OPENSSL_cleanse(key.data(), key.size());
  *identity = reinterpret_cast<const unsigned char*>(text.data());
  *size = text.size();
  stream_of(ssl).note_claim(context.secret().keys.front().id, context.job());
  return *session != nullptr ? 1 : 0;
}

// An identity that names no key of ours gets a random key: it is refused exactly like one that
// names our key without having it.
int find_key(SSL* ssl, const unsigned char* identity, size_t size, SSL_SESSION** session) {
  const auto named = parse_psk_identity({reinterpret_cast<const char*>(identity), size});
  const auto& keys = context_of(ssl).secret().keys;
  const auto ours = std::find_if(keys.begin(), keys.end(),
                                 [&](const SecretKey& key) { return key.id == named.key_id; });
  JobKey key{};
  if (ours != keys.end() && !named.job.empty()) {
    key = job_key(*ours, named.job);
  } else if (RAND_bytes(key.data(), static_cast<int>(key.size())) != 1) {
    return 0;
  }
  *session = session_of(ssl, key);
  OPENSSL_cleanse(key.data(), key.size());
  stream_of(ssl).note_claim(named.key_id, named.job);
  return *session != nullptr ? 1 : 0;
}

SSL_CTX* make_context(const TlsContext* owner) {
  const bool listens = owner->role() == TlsContext::Role::listens;
  SSL_CTX* const context = SSL_CTX_new(listens ? TLS_server_method() : TLS_client_method());
  if (context == nullptr) throw std::bad_alloc{};
  SSL_CTX_set_app_data(context, const_cast<TlsContext*>(owner));
  const bool is_set = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                      SSL_CTX_set_ciphersuites(context, kSuite) == 1 &&
                      SSL_CTX_set1_groups_list(context, "X25519") == 1 &&
                      SSL_CTX_set_num_tickets(context, 0) == 1;
  if (!is_set) throw std::runtime_error{"this OpenSSL has no TLS 1.3 with X25519"};
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT | SSL_OP_ALLOW_NO_DHE_KEX);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context, 1);  // one recv per record instead of two
  if (listens) {
    SSL_CTX_set_psk_find_session_callback(context, find_key);
  } else {
    SSL_CTX_set_psk_use_session_callback(context, give_key);
    // A server that offers a certificate instead of the key has none that we would trust.
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  }
  return context;
}

StreamFault fault_of(unsigned long reason, bool is_in_handshake) {
  switch (ERR_GET_REASON(reason)) {
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
      return StreamFault::other_is_plain;
    case SSL_R_TLSV1_ALERT_USER_CANCELLED:
      return is_in_handshake ? StreamFault::busy : StreamFault::broken;
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_BAD_RECORD_TYPE:
      return is_in_handshake ? StreamFault::not_tls : StreamFault::broken;
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return StreamFault::reset;
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_CIPHER:
      return StreamFault::not_ours;
    default:
      return is_in_handshake ? StreamFault::authentication : StreamFault::broken;
  }
}

}  // namespace

void start_openssl_for_keys() {
  OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_LOAD_CRYPTO_STRINGS |
                          OPENSSL_INIT_NO_ADD_ALL_CIPHERS | OPENSSL_INIT_NO_ADD_ALL_DIGESTS |
                          OPENSSL_INIT_NO_ATEXIT,
                      nullptr);
}

std::shared_ptr<const TlsContext> TlsContext::for_dialling(const Secret& secret,
                                                           const std::string& job) {
  return std::make_shared<const TlsContext>(Role::dials, secret, job);
}

std::shared_ptr<const TlsContext> TlsContext::for_listening(const Secret& secret) {
  return std::make_shared<const TlsContext>(Role::listens, secret, std::string{});
}

TlsContext::TlsContext(Role role, Secret secret, std::string job)
    : role_{role},
      secret_{std::move(secret)},
      job_{std::move(job)},
      identity_{role == Role::dials ? psk_identity(secret_.keys.front().id, job_) : ""},
      context_{make_context(this)} {}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Stream::Stream(int fd, std::shared_ptr<const TlsContext> tls) : fd_{fd}, tls_{std::move(tls)} {
  if (!tls_) return;
  ssl_ = SSL_new(tls_->native());
  BIO* const bio = ssl_ != nullptr ? BIO_new(socket_method()) : nullptr;
  if (bio == nullptr) {
    SSL_free(ssl_);
    throw std::bad_alloc{};
  }
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)));
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  tls_->role() == TlsContext::Role::listens ? SSL_set_accept_state(ssl_)
                                            : SSL_set_connect_state(ssl_);
}

Stream::~Stream() { SSL_free(ssl_); }

void Stream::note_claim(std::string_view key_id, std::string_view job) {
  proof_ = {std::string{key_id}, std::string{job}};
}

Io Stream::fail(StreamFault fault, int errnum) {
  fault_ = fault;
  errnum_ = errnum;
  return Io::failed;
}

// The meaning of OpenSSL's result. Its error queue belongs to the thread and was cleared before.
Io Stream::judge(int result) {
  const int errnum = errno;
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
      return Io::want_read;
    case SSL_ERROR_WANT_WRITE:
      return Io::want_write;
    case SSL_ERROR_ZERO_RETURN:
      return Io::end;
    case SSL_ERROR_SYSCALL:
      return fail(StreamFault::reset, errnum);
    default:
      reason_ = ERR_peek_last_error();
      return fail(fault_of(reason_, !is_ready_), 0);
  }
}

Io Stream::shake_hands() {
  if (ssl_ == nullptr) return Io::done;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  if (result != 1) return judge(result);
  // A handshake may succeed without our key, by a certificate: that peer is unknown.
  if (SSL_session_reused(ssl_) != 1) return fail(StreamFault::not_ours, 0);
  is_ready_ = true;
  return Io::done;
}

Io Stream::plain_result(long n, std::size_t& count) {
  if (n >= 0) {
    count = static_cast<std::size_t>(n);
    return Io::done;
  }
  return fail(StreamFault::reset, errno);
}

Io Stream::read(std::span<char> into, std::size_t& got) {
  got = 0;
  if (ssl_ == nullptr) {
    ssize_t n = 0;
    do n = ::recv(fd_, into.data(), into.size(), 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) return Io::want_read;
    return n == 0 ? Io::end : plain_result(n, got);
  }
  ERR_clear_error();
  const int result = SSL_read_ex(ssl_, into.data(), into.size(), &got);
  return result == 1 ? Io::done : judge(result);
}

Io Stream::write(std::string_view bytes, std::size_t& taken) {
  taken = 0;
  if (bytes.empty()) return Io::done;
  if (ssl_ == nullptr) {
    ssize_t n = 0;
    do n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) return Io::want_write;
    return plain_result(n, taken);
  }
  ERR_clear_error();
  const int result = SSL_write_ex(ssl_, bytes.data(), bytes.size(), &taken);
  return result == 1 ? Io::done : judge(result);
}

void Stream::end_writing() noexcept {
  if (ssl_ != nullptr && is_ready_ && fault_ == StreamFault::none) {
    ERR_clear_error();
    SSL_shutdown(ssl_);
  }
  ::shutdown(fd_, SHUT_WR);
}

std::string Stream::describe_fault() const {
  if (errnum_ != 0) return std::strerror(errnum_);
  if (reason_ != 0) {
    const char* const text = ERR_reason_error_string(reason_);
    return text != nullptr ? text : "TLS error " + std::to_string(ERR_GET_REASON(reason_));
  }
  return fault_ == StreamFault::not_ours ? "it did not use the key" : "closed in between";
}

Speech recognise(std::string_view bytes) noexcept {
  const auto begins = [&](std::string_view with) { return bytes.substr(0, with.size()) == with; };
  if (begins("\x16\x03")) return Speech::tls_hello;
  if (begins("\x15\x03")) return Speech::tls_alert;
  for (const std::string_view word : {"GET ", "POST", "HEAD", "PUT ", "HTTP", "OPTI", "CONN"})
    if (begins(word)) return Speech::http;
  return Speech::ours_or_unknown;
}

}  // namespace acc::rendezvous
