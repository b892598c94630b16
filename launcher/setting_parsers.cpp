#include "launcher/setting_parsers.hpp"

#include "common/exit_status.hpp"
#include "common/passed_signals.hpp"
#include "common/text.hpp"

#include <arpa/inet.h>

#include <algorithm>

namespace acc::launcher {

namespace {

Error bad(std::string what) { return {Errc::bad_config, std::move(what)}; }

Result<agent::Streams> parse_stream(std::string_view text) {
  if (text.size() == 1 && text[0] >= '0' && text[0] <= '3')
    return static_cast<agent::Streams>(text[0] - '0');
  return bad(in_quotes(text) +
             " names no streams: 0 is none, 1 stdout, 2 stderr, 3 both; or RANK:N,RANK:N");
}

}  // namespace

Result<agent::StreamsPerRank> parse_streams(std::string_view text) {
  agent::StreamsPerRank streams;
  if (text.find(':') == std::string_view::npos) {
    const auto all = parse_stream(text);
    if (!all) return all.error();
    streams.all = *all;
    return streams;
  }
  for (const auto& part : split(text, ',')) {
    const auto colon = part.find(':');
    const auto rank = parse_number<std::uint32_t>(std::string_view{part}.substr(0, colon));
    if (colon == std::string::npos || !rank)
      return bad(in_quotes(part) + " is not RANK:N, as in 0:1,1:3");
    const auto one = parse_stream(std::string_view{part}.substr(colon + 1));
    if (!one) return one.error();
    streams.some[LocalRank{*rank}] = *one;
  }
  return streams;
}

Result<std::vector<LocalRank>> parse_ranks(std::string_view text) {
  std::vector<LocalRank> ranks;
  if (text.empty()) return ranks;
  for (const auto& part : split(text, ',')) {
    const auto rank = parse_number<std::uint32_t>(trim(part));
    if (!rank) return bad(in_quotes(part) + " is not a local rank: write numbers from 0, as 0,2");
    ranks.emplace_back(*rank);
  }
  return ranks;
}

Result<std::vector<agent::CodeRange>> parse_codes(std::string_view text) {
  std::vector<agent::CodeRange> codes;
  if (text.empty()) return codes;
  for (const auto& part : split(text, ',')) {
    const auto item = trim(part);
    const auto dash = item.find('-');
    const auto first = parse_number<int>(item.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : parse_number<int>(item.substr(dash + 1));
    if (!first || !last || *first < 0 || *last > 255 || *first > *last) {
      return bad(in_quotes(part) +
                 " is not an exit code or a range of them: write 0 to 255, as 2,64-78");
    }
    codes.push_back({*first, *last});
  }
  return codes;
}

Result<std::vector<int>> parse_signals(std::string_view text) {
  std::vector<int> signals;
  if (text.empty()) return signals;
  for (const auto& part : split(text, ',')) {
    const int signo = signal_number(trim(part));
    if (signo == 0) return bad(in_quotes(part) + " is not a signal: write names, as TERM,USR1");
    if (!is_passed_on(signo))
      return bad(in_quotes(part) + " isn't passed on to workers: name " + passed_signal_names());
    signals.push_back(signo);
  }
  return signals;
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kUnits = "KMG";
  std::uint64_t factor = 1;
  auto digits = text;
  if (!digits.empty()) {
    const auto unit = kUnits.find(to_upper(digits.substr(digits.size() - 1)));
    if (unit != std::string_view::npos) {
      factor = std::uint64_t{1} << (10 * (unit + 1));
      digits.remove_suffix(1);
    }
  }
  const auto number = parse_number<std::uint64_t>(digits);
  if (!number || *number > UINT64_MAX / factor) {
    return bad(in_quotes(text) + " is not a size: write bytes, or a number with K, M or G, as 64M");
  }
  return *number * factor;
}

Result<std::map<std::string, std::string>> parse_rendezvous_conf(std::string_view text) {
  std::map<std::string, std::string> conf;
  if (trim(text).empty()) return conf;
  for (const auto& part : split(text, ',')) {
    const auto equals = part.find('=');
    const std::string key{trim(std::string_view{part}.substr(0, equals))};
    if (equals == std::string::npos || key.empty()) {
      return bad("entry " + in_quotes(part) + " is not KEY=VALUE, as in timeout=60,is_host=1");
    }
    conf[key] = std::string{trim(std::string_view{part}.substr(equals + 1))};
  }
  return conf;
}

Result<NodeRange> parse_nodes(std::string_view text) {
  const auto colon = text.find(':');
  const auto min = parse_number<std::uint32_t>(text.substr(0, colon));
  const auto max =
      colon == std::string_view::npos ? min : parse_number<std::uint32_t>(text.substr(colon + 1));
  if (min && max && *min > *max)
    return bad(in_quotes(text) + ": the least number of machines is above the greatest: write " +
               "MIN:MAX, as " + std::to_string(*max) + ":" + std::to_string(*min));
  if (!min || !max || *min == 0) {
    return bad(in_quotes(text) + " is not a number of machines: write N or MIN:MAX, as 2 or 2:4");
  }
  return NodeRange{*min, *max};
}

namespace {

/// An IPv6 address without brackets; %eth0 may follow.
bool is_ipv6(std::string_view text) {
  const std::string address{text.substr(0, text.find('%'))};
  in6_addr unused{};
  return ::inet_pton(AF_INET6, address.c_str(), &unused) == 1;
}

/// "[::1]:29400" where ::1:29400 was written; empty if the text is nothing of the kind. ::1:2940 is
/// an address and stays one.
std::string in_brackets(std::string_view text) {
  const auto colon = text.rfind(':');
  if (is_ipv6(text) || colon == std::string_view::npos || !is_ipv6(text.substr(0, colon)) ||
      !parse_number<std::uint16_t>(text.substr(colon + 1)))
    return {};
  return "[" + std::string{text.substr(0, colon)} + "]" + std::string{text.substr(colon)};
}

}  // namespace

Result<std::string> parse_address(std::string_view text) {
  auto host = trim(text);
  const auto no_address = [&] {
    return bad(in_quotes(text) + " is no address: write a host name, 10.0.0.1 or fd00::1");
  };
  if (host.find_first_of(" \t/@,") != std::string_view::npos) return no_address();
  const bool has_brackets = host.starts_with('[') && host.ends_with(']');
  if (has_brackets) host = host.substr(1, host.size() - 2);
  const auto colons = std::ranges::count(host, ':');
  const auto port_at = host.rfind(':');
  const bool has_port = port_at != std::string_view::npos && !has_brackets &&
                        (colons == 1 || host.substr(0, port_at).ends_with(']'));
  if (has_port || !in_brackets(host).empty())
    return bad(in_quotes(text) + " holds a port: write the address alone, a port has its own flag");
  const bool is_bracketed_name = has_brackets && colons < 2;
  if (is_bracketed_name || host.find_first_of("[]") != std::string_view::npos) return no_address();
  return std::string{host};
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const auto wrong = [&] {
    return bad(in_quotes(text) + " is not HOST:PORT, as node1:29400 or [fd00::2]:29400");
  };
  Endpoint endpoint;
  std::string_view port;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return wrong();
    endpoint.host = text.substr(1, close - 1);
    port = text.substr(close + 1);
  } else if (text.find(':') != text.rfind(':')) {
    const auto meant = in_brackets(text);
    if (!meant.empty())
      return bad(in_quotes(text) + ": an IPv6 address in front of a port needs brackets: " + meant);
    if (!is_ipv6(text)) return wrong();
    endpoint.host = text;
  } else {
    endpoint.host = text.substr(0, text.find(':'));
    port = text.substr(endpoint.host.size());
  }
  if (endpoint.host.empty() || endpoint.host.find_first_of(" \t/@[]") != std::string::npos)
    return wrong();
  if (port.empty()) return endpoint;
  const auto number = parse_number<std::uint16_t>(port.substr(1));
  if (port[0] != ':' || !number || *number == 0) return wrong();
  endpoint.port = number;
  return endpoint;
}

bool is_loopback(std::string_view host) {
  const auto dots = std::ranges::count(host, '.');
  const bool numeric = dots == 3 && host.find_first_not_of("0123456789.") == std::string_view::npos;
  return host == "localhost" || host == "::1" || (numeric && host.starts_with("127."));
}

Result<bool> parse_yes_no(std::string_view text) {
  constexpr std::string_view kYes[] = {"1", "true", "t", "yes", "y"};
  constexpr std::string_view kNo[] = {"0", "false", "f", "no", "n"};
  const auto word = to_lower(text);
  if (std::ranges::find(kYes, word) != std::end(kYes)) return true;
  if (std::ranges::find(kNo, word) != std::end(kNo)) return false;
  return bad(in_quotes(text) + " is neither yes nor no: write true or false");
}

}  // namespace acc::launcher
