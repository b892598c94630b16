#include "agent/daemon/access_token.hpp"

#include "common/text.hpp"
#include "rendezvous/secret.hpp"

#include <unistd.h>

#include <cstddef>
#include <iterator>
#include <utility>

namespace acc::agent::daemon {

namespace {

// acc1.<kind><r|w>.<uid>.<gid>.<expires>.<bound to>.<nonce>.<signature>: letters that need no
// escape in a header, a cookie or a link.
constexpr std::string_view kTokenPrefix = "acc1.";
constexpr std::size_t kTokenFields = 8;
constexpr std::size_t kLongestToken = 256;
constexpr std::ptrdiff_t kMostTickets = 64;  ///< of a user, a minute

/// Takes as long wherever they differ.
bool is_same(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    difference = static_cast<unsigned char>(difference | (one[i] ^ other[i]));
  return difference == 0;
}

std::string claims_text(const TokenClaims& claims) {
  std::string text{kTokenPrefix};
  text += static_cast<char>(claims.kind);
  text += claims.only_reads ? 'r' : 'w';
  for (const auto& number :
       {std::to_string(claims.uid), std::to_string(claims.gid), std::to_string(claims.expires_s),
        std::to_string(claims.bound_to), std::to_string(claims.nonce)})
    text += '.' + number;
  return text;
}

/// Of what is signed, and therefore written by sign().
std::optional<TokenClaims> parse_claims(std::string_view text) {
  const auto parts = split(text, '.');
  if (parts.size() != kTokenFields - 1 || parts[1].size() != 2) return std::nullopt;
  TokenClaims claims;
  claims.kind = static_cast<TokenKind>(parts[1][0]);
  claims.only_reads = parts[1][1] != 'w';
  const auto uid = parse_number<std::uint32_t>(parts[2]);
  const auto gid = parse_number<std::uint32_t>(parts[3]);
  const auto expires = parse_number<std::int64_t>(parts[4]);
  const auto bound_to = parse_number<std::int64_t>(parts[5]);
  const auto nonce = parse_number<std::uint64_t>(parts[6]);
  if (!uid || !gid || !expires || !bound_to || !nonce) return std::nullopt;
  claims.uid = *uid;
  claims.gid = *gid;
  claims.expires_s = *expires;
  claims.bound_to = *bound_to;
  claims.nonce = *nonce;
  return claims;
}

std::string hex_of(const rendezvous::JobKey& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const auto byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

}  // namespace

Result<AccessTokens> AccessTokens::open(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) {
    const auto made = rendezvous::make_secret(path);
    if (!made) return made.error();
  }
  const auto bytes = rendezvous::read_private_file(
      {path, "key of the tokens", "remove it: a new one is made, and all tokens end"});
  if (!bytes) return bytes.error();
  const auto key = trim(bytes->view());
  constexpr std::size_t kLeast = 32;
  if (key.size() < kLeast)
    return Error{Errc::bad_config, "the key of the tokens '" + path +
                                       "' is too short: remove it, and a new one is made"};
  return AccessTokens{key};
}

std::string AccessTokens::signature(std::string_view signed_part) const {
  return hex_of(
      rendezvous::hkdf_sha256(key_.view(), "", "acc-agent-token/1 " + std::string{signed_part}));
}

std::string AccessTokens::sign(const TokenClaims& claims) const {
  const auto text = claims_text(claims);
  return text + '.' + signature(text);
}

AccessTokens::Verdict AccessTokens::check(std::string_view token, TokenKind kind,
                                          std::int64_t now_s) const {
  const Verdict forged{std::nullopt, true,
                       "this token is none of this acc-agent: acc-ctl token makes one"};
  const auto last = token.rfind('.');
  if (token.size() > kLongestToken || !token.starts_with(kTokenPrefix) ||
      last == std::string_view::npos)
    return forged;
  const auto text = token.substr(0, last);
  if (!is_same(signature(text), token.substr(last + 1))) return forged;
  const auto claims = parse_claims(text);
  if (!claims) return forged;
  if (claims->kind != kind)
    return {std::nullopt, false,
            claims->kind == TokenKind::ticket
                ? "this is for a browser's address line, once: acc-ctl token makes one for headers"
                : "this is a token for another place: acc-ctl token makes one for headers, "
                  "acc-ctl token --browser a link"};
  if (now_s >= claims->expires_s)
    return {std::nullopt, false, "this token has expired: acc-ctl token makes a new one"};
  return {claims, false, {}};
}

bool UsedTickets::use(const TokenClaims& ticket, std::int64_t now_s) {
  std::erase_if(expiry_, [&](const auto& one) { return one.second <= now_s; });
  const auto first = expiry_.lower_bound({ticket.uid, 0});
  const auto last = expiry_.upper_bound({ticket.uid, UINT64_MAX});
  if (std::distance(first, last) >= kMostTickets) return false;
  return expiry_.emplace(std::pair{ticket.uid, ticket.nonce}, ticket.expires_s).second;
}

}  // namespace acc::agent::daemon
