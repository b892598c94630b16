#pragma once

#include "agent/accept_loop.hpp"
#include "agent/daemon/access_token.hpp"
#include "agent/daemon/api_call.hpp"
#include "agent/daemon/http_server.hpp"
#include "agent/daemon/loopback_rules.hpp"
#include "agent/daemon/token_issuer.hpp"
#include "rendezvous/socket_users.hpp"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <string>

namespace acc::agent::daemon {

/// The API at a loopback port, for browsers and programs that speak no unix socket: each request
/// has a token, and may do what the token's user may, or only read.
/// docs/decisions/0039-loopback-door.md has what it defends against.
class LoopbackDoor final : public TokenIssuer {
 public:
  /// @param api, owners  outlive this
  LoopbackDoor(boost::asio::io_context& io, ApiContext& api, QuotaOwners* owners = nullptr,
               const HttpLimits& limits = kLoopbackLimits);

  /// Binds and accepts. @param key_file  of the tokens; made if it is missing
  [[nodiscard]] Result<void> listen(const NodeAddress& at, const std::string& key_file);
  [[nodiscard]] bool is_listening() const { return accepting_.is_accepting(); }
  /// The key anew: another one, or none, ends all tokens.
  [[nodiscard]] Result<void> reload();
  /// As HttpServer's.
  void stop(std::function<void()> done);
  [[nodiscard]] std::size_t connections() const { return server_.connections(); }

  [[nodiscard]] Result<IssuedToken> issue(const Principal& who, const TokenWish& wish) override;

 private:
  void take(UniqueFd socket);
  boost::asio::awaitable<HttpReply> answer_client(Principal door, HttpRequest request);
  /// Who asks; nothing: `refusal` is the answer.
  std::optional<TokenClaims> identify(uid_t source, const HttpRequest& request, HttpReply& refusal);
  HttpReply open_session(uid_t source, std::string_view ticket);
  HttpReply refuse_token(uid_t source, const AccessTokens::Verdict& verdict);
  [[nodiscard]] std::string cookie_name() const;

  boost::asio::io_context& io_;
  ApiContext& api_;
  HttpServer server_;
  NodeAddress at_;
  std::string key_file_;
  std::optional<AccessTokens> tokens_;
  UsedTickets used_;
  WrongTokens wrong_;
  IssuedTokensLog issued_;
  rendezvous::SocketUsers users_;
  AcceptLoop accepting_;
};

}  // namespace acc::agent::daemon
