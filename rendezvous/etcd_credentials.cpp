#include "rendezvous/etcd_credentials.hpp"

#include "common/text.hpp"
#include "rendezvous/etcd_tls.hpp"

#include <algorithm>
#include <cstdlib>

namespace acc::rendezvous {

namespace {

constexpr const char* kUserVariable = "ACC_ETCD_USER";

Result<std::optional<EtcdUser>> load_user(const std::string& file) {
  if (file.empty()) {
    const char* const value = std::getenv(kUserVariable);
    if (value == nullptr || *value == '\0') return std::optional<EtcdUser>{};
    auto user = parse_etcd_user(value, kUserVariable);
    if (!user) return user.error();
    return std::optional{std::move(*user)};
  }
  const auto text = read_private_file({file, "etcd user file", "make your own copy"});
  if (!text) return text.error();
  auto user = parse_etcd_user(text->view(), "etcd user file '" + file + "'");
  if (!user) return user.error();
  return std::optional{std::move(*user)};
}

}  // namespace

Result<EtcdUser> parse_etcd_user(std::string_view text, const std::string& from) {
  const std::string_view line = trim(text);
  const auto colon = line.find(':');
  const bool is_text =
      std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!is_text || colon == std::string_view::npos || colon == 0 || colon + 1 == line.size())
    return Error{Errc::bad_config, from + ": one line NAME:PASSWORD is expected"};
  return EtcdUser{std::string{line.substr(0, colon)}, SecretBytes{line.substr(colon + 1)}, from};
}

Result<EtcdCredentials> load_etcd_credentials(const EtcdAccess& access, bool needs_tls) {
  EtcdCredentials credentials;
  auto user = load_user(access.user_file);
  if (!user) return user.error();
  credentials.user = std::move(*user);
  if (!needs_tls) return credentials;
  auto tls = EtcdTls::open(access);
  if (!tls) return tls.error();
  credentials.tls = std::move(*tls);
  return credentials;
}

}  // namespace acc::rendezvous
