#include "launcher/host_list.hpp"

#include "common/text.hpp"
#include "launcher/node_list.hpp"
#include "launcher/setting_parsers.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <unordered_map>
#include <utility>

namespace acc::launcher {

namespace {

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r\f\v";
  std::vector<std::string_view> words;
  for (auto begin = line.find_first_not_of(kBlanks); begin != std::string_view::npos;
       begin = line.find_first_not_of(kBlanks)) {
    line.remove_prefix(begin);
    const auto end = std::min(line.find_first_of(kBlanks), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return words;
}

bool is_user(std::string_view text) {
  return !text.empty() && text.front() != '-' && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view{"-_.+"}.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

/// Without brackets; "a:29701:1" is none.
bool is_ipv6_host(std::string_view text) {
  constexpr auto kColons = 6;  // with an IPv4 address at its end
  const bool is_whole = std::ranges::count(text, ':') >= kColons;
  return (is_whole || text.find("::") != text.npos) &&
         std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) != 0 ||
                  std::string_view{":.%"}.find(static_cast<char>(c)) != std::string_view::npos;
         });
}

class HostReader {
 public:
  explicit HostReader(HostList& into) : into_{into} {}

  /// One host, or several by ranges; `slots` stand in another word of the line.
  void entry(std::string_view text, std::optional<std::uint32_t> slots, const std::string& where) {
    std::string_view rest = text;
    std::string user;
    if (const auto at = rest.rfind('@'); at != std::string_view::npos) {
      if (!is_user(rest.substr(0, at)))
        return complain(where, text, "what stands before '@' is no name of a user");
      user = rest.substr(0, at + 1);
      rest.remove_prefix(at + 1);
    }
    if (rest.starts_with('[') && rest.substr(0, rest.find(']')).find(':') != std::string_view::npos)
      return bracketed(text, rest, user, slots, where);
    const auto colon = rest.find(':');
    if (colon != std::string_view::npos && rest.find(':', colon + 1) != std::string_view::npos)
      return complain(where, text,
                      is_ipv6_host(rest)
                          ? "an IPv6 address stands in brackets: [" + std::string{rest} + "]"
                          : "slots stand behind one colon, and a port is named nowhere here: "
                            "node1:8");
    if (!read_slots(text, rest, colon, slots, where)) return;
    const auto names = expand_node_list(rest.substr(0, colon));
    if (!names)
      return complain(where, text,
                      rest.substr(0, colon).empty()
                          ? "a host's name is missing"
                          : "it is no host name, and no range as node[1-3,07-09]");
    for (const auto& name : *names) {
      if (name.starts_with('-'))
        return complain(where, text, "a host's name can't begin with a dash");
      add({user + name, name, slots, where}, text);
    }
  }

  void complain(const std::string& where, std::string_view text, const std::string& why) {
    constexpr std::size_t kEnough = 100;
    if (into_.complaints.size() == kEnough) return;
    into_.complaints.push_back({Errc::bad_config, where + ": " + in_quotes(text, 80) + ": " + why});
  }

  void add(Host host, std::string_view text) {
    const auto known = places_.find(host.login);
    if (known == places_.end()) {
      if (into_.hosts.size() == kMaxHosts)
        return complain(host.where, text, "more than " + std::to_string(kMaxHosts) + " hosts");
      places_.emplace(host.login, into_.hosts.size());
      counts_.push_back(1);
      is_given_.push_back(host.slots.has_value());
      into_.hosts.push_back(std::move(host));
      return;
    }
    auto& first = into_.hosts[known->second];
    if (is_given_[known->second] != host.slots.has_value())
      return complain(host.where, text,
                      "this host stands in " + first.where +
                          (host.slots ? " without slots, and here with some"
                                      : " with slots, and here without"));
    const auto sum = host.slots ? std::uint64_t{first.slots.value_or(0)} + *host.slots
                                : std::uint64_t{++counts_[known->second]};
    if (sum > kMaxSlots)
      return complain(host.where, text, "more than " + std::to_string(kMaxSlots) + " slots");
    first.slots = static_cast<std::uint32_t>(sum);
  }

  std::optional<std::uint32_t> slots_in(std::string_view number) {
    const auto slots = parse_number<std::uint32_t>(number);
    if (!slots || *slots == 0 || *slots > kMaxSlots) return std::nullopt;
    return slots;
  }

 private:
  bool read_slots(std::string_view text, std::string_view rest, std::size_t colon,
                  std::optional<std::uint32_t>& slots, const std::string& where) {
    if (colon == std::string_view::npos) return true;
    const auto number = slots_in(rest.substr(colon + 1));
    if (!number) {
      complain(where, text, "slots are a number from 1 to " + std::to_string(kMaxSlots));
    } else if (slots && *slots != *number) {
      complain(where, text,
               "it says " + std::to_string(*number) +
                   " slots, and slots=" + std::to_string(*slots) + " behind it");
    }
    slots = number;
    return number.has_value();
  }

  void bracketed(std::string_view text, std::string_view rest, const std::string& user,
                 std::optional<std::uint32_t> slots, const std::string& where) {
    const auto close = rest.find(']');
    const auto address = rest.substr(1, std::min(close, rest.size()) - 1);
    if (close == std::string_view::npos || !is_ipv6_host(address))
      return complain(where, text, "it is no IPv6 address in brackets");
    const auto behind = rest.substr(close + 1);
    if (!behind.empty() && behind.front() != ':')
      return complain(where, text, "behind an address in brackets only :SLOTS may stand");
    if (!read_slots(text, behind, behind.empty() ? std::string_view::npos : 0, slots, where))
      return;
    add({user + std::string{address}, std::string{address}, slots, where}, text);
  }

  HostList& into_;
  std::unordered_map<std::string, std::size_t> places_;
  std::vector<std::uint32_t> counts_;  ///< mentions of each host
  std::vector<bool> is_given_;         ///< its slots, at the first mention
};

/// "slots=8", "max_slots=8" …: false if the word is none of them.
bool read_setting(HostReader& reader, std::string_view word, const std::string& where,
                  std::optional<std::uint32_t>& slots, std::optional<std::uint32_t>& most) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const auto name = word.substr(0, equals);
  const bool is_most = name == "max_slots" || name == "max-slots";
  if (!is_most && name != "slots") return false;
  const auto number = reader.slots_in(word.substr(equals + 1));
  if (!number)
    reader.complain(where, word, "slots are a number from 1 to " + std::to_string(kMaxSlots));
  (is_most ? most : slots) = number;
  return true;
}

}  // namespace

HostList parse_hosts(std::string_view text) {
  HostList list;
  HostReader reader{list};
  for (const auto entry : list_entries(text)) {
    if (trim(entry).empty()) {
      reader.complain("--hosts", text, "a host's name is missing");
      continue;
    }
    reader.entry(trim(entry), std::nullopt, "--hosts");
  }
  return list;
}

HostList parse_hostfile(std::string_view text, const std::string& path) {
  HostList list;
  HostReader reader{list};
  if (text.size() > kMaxHostfileBytes) {
    reader.complain(path, "", "the file is longer than 16 MiB");
    return list;
  }
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const auto end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const auto words = words_of(line);
    if (words.empty()) continue;
    const auto where = path + ":" + std::to_string(number);
    std::optional<std::uint32_t> slots;
    std::optional<std::uint32_t> most;
    for (auto word = words.begin() + 1; word != words.end(); ++word) {
      if (read_setting(reader, *word, where, slots, most)) continue;
      reader.complain(where, *word,
                      "behind a host only slots=N and max_slots=N may stand, one host a line");
      break;
    }
    if (slots && most && *slots > *most)
      reader.complain(where, line, "slots are more than max_slots");
    if (!slots && most) slots = most;
    for (const auto entry : list_entries(words.front())) reader.entry(entry, slots, where);
  }
  if (list.hosts.empty() && list.complaints.empty())
    reader.complain(path, "", "there is no host in it");
  return list;
}

HostList merge_hosts(HostList one, HostList other) {
  HostList list;
  list.complaints = std::move(one.complaints);
  std::ranges::move(other.complaints, std::back_inserter(list.complaints));
  HostReader reader{list};
  for (auto* source : {&one, &other}) {
    for (auto& host : source->hosts) {
      const auto text = host.login;
      reader.add(std::move(host), text);
    }
  }
  return list;
}

bool is_this_machine(const Host& host, std::string_view host_name) {
  return host.login == host.address && (is_loopback(host.address) || host.address == host_name);
}

}  // namespace acc::launcher
