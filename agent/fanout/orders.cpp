#include "agent/fanout/orders.hpp"

#include "common/exit_status.hpp"
#include "common/passed_signals.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace acc::agent {

namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte != '%' && byte != 0x7f) {
      out += c;
      continue;
    }
    out += '%';
    out += kHexDigits[byte >> 4U];
    out += kHexDigits[byte & 15U];
  }
  return out;
}

std::optional<std::string> unescaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (text.front() != '%') {
      out += text.front();
      text.remove_prefix(1);
      continue;
    }
    if (text.size() < 3) return std::nullopt;
    const auto high = kHexDigits.find(text[1]);
    const auto low = kHexDigits.find(text[2]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    const auto byte = static_cast<unsigned char>(high * 16 + low);
    if (byte == 0) return std::nullopt;  // neither a path nor a variable can hold it
    out += static_cast<char>(byte);
    text.remove_prefix(3);
  }
  return out;
}

struct Encoder {
  std::string operator()(const SetFolder& o) const { return "folder " + escaped(o.path); }
  std::string operator()(const SetVariable& o) const {
    return "env " + escaped(o.name) + "=" + escaped(o.value);
  }
  std::string operator()(const Prepare& o) const { return "prepare " + escaped(o.token); }
  std::string operator()(const SendEvents&) const { return "events"; }
  std::string operator()(const Go&) const { return "go"; }
  std::string operator()(const PassSignal& o) const {
    return "signal " + signal_name(o.signo).substr(3);
  }
  std::string operator()(const Leave&) const { return "leave"; }
  std::string operator()(const AskContact&) const { return "ask"; }
  std::string operator()(const WaitLonger&) const { return "wait"; }
};

std::string mark_prefix(std::string_view token) {
  return kMarkBegin + std::string{"acc-node "} + std::string{token} + " ";
}

Error malformed(std::string_view line) {
  return {Errc::malformed, "the life line brought " + in_quotes(line, 60) + ", which is no order"};
}

std::optional<LaunchOrder> decode_variable(std::string_view text) {
  const auto equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos) return std::nullopt;
  auto name = unescaped(text.substr(0, equals));
  auto value = unescaped(text.substr(equals + 1));
  if (!name || !value || name->find('=') != std::string::npos) return std::nullopt;
  return SetVariable{std::move(*name), std::move(*value)};
}

std::optional<OutputLost> decode_losses(std::string_view text) {
  const auto parts = split(text, '\t');
  if (parts.size() != 4) return std::nullopt;
  const auto lines = parse_number<std::uint64_t>(parts[0]);
  const auto bytes = parse_number<std::uint64_t>(parts[1]);
  auto where = unescaped(parts[2]);
  auto why = unescaped(parts[3]);
  if (!lines || !bytes || !where || !why) return std::nullopt;
  return OutputLost{*lines, *bytes, std::move(*where), std::move(*why)};
}

std::optional<LaunchOrder> decode_passed_signal(std::string_view name) {
  const auto found = std::ranges::find_if(
      kPassedSignals, [&](int signo) { return signal_name(signo).substr(3) == name; });
  if (found == kPassedSignals.end()) return std::nullopt;
  return PassSignal{*found};
}

}  // namespace

std::string encode(const LaunchOrder& order) { return std::visit(Encoder{}, order) + "\n"; }

Result<LaunchOrder> decode_order(std::string_view line) {
  const auto space = std::min(line.find(' '), line.size());
  const auto word = line.substr(0, space);
  const auto rest = line.substr(std::min(space + 1, line.size()));
  std::optional<LaunchOrder> order;
  if (word == "go" && rest.empty()) order = Go{};
  if (word == "leave" && rest.empty()) order = Leave{};
  if (word == "events" && rest.empty()) order = SendEvents{};
  if (word == "ask" && rest.empty()) order = AskContact{};
  if (word == "wait" && rest.empty()) order = WaitLonger{};
  if (word == "signal") order = decode_passed_signal(rest);
  if (word == "env") order = decode_variable(rest);
  if (word == "folder" || word == "prepare") {
    auto text = unescaped(rest);
    if (text && !text->empty()) {
      if (word == "folder") {
        order = SetFolder{std::move(*text)};
      } else {
        order = Prepare{std::move(*text)};
      }
    }
  }
  if (!order) return malformed(line);
  return std::move(*order);
}

std::string encode(const LaunchMark& mark, std::string_view token) {
  std::string line{kMarkBegin};
  line.append("acc-node ").append(token);
  if (const auto* prepared = std::get_if<Prepared>(&mark))
    line += " prepared " + escaped(prepared->version) +
            (prepared->daemon.empty() ? "" : "\t" + escaped(prepared->daemon));
  if (const auto* started = std::get_if<JobStarted>(&mark))
    line += " started " + escaped(started->id);
  if (const auto* ended = std::get_if<JobEnded>(&mark))
    line += " ended " + std::to_string(ended->exit_code);
  if (const auto* event = std::get_if<HostEvent>(&mark)) line += " event " + escaped(event->line);
  if (const auto* lost = std::get_if<ContactLost>(&mark))
    line += " lost " + std::to_string(lost->silent.count()) + "/" +
            std::to_string(lost->limit.count());
  if (std::holds_alternative<ContactBack>(mark)) line += " back";
  if (const auto* lost = std::get_if<OutputLost>(&mark))
    line += " losses " + std::to_string(lost->lines) + "\t" + std::to_string(lost->bytes) + "\t" +
            escaped(lost->where) + "\t" + escaped(lost->why);
  if (std::holds_alternative<Here>(mark)) line += " here";
  return line + "\n";
}

std::optional<LaunchMark> decode_mark(std::string_view line, std::string_view token) {
  if (!begins_mark(line, token)) return std::nullopt;
  line.remove_prefix(mark_prefix(token).size());
  const auto space = std::min(line.find(' '), line.size());
  const auto word = line.substr(0, space);
  const auto rest = line.substr(std::min(space + 1, line.size()));
  if ((word == "prepared" || word == "started" || word == "event") && !rest.empty()) {
    const auto tab = word == "prepared" ? std::min(rest.find('\t'), rest.size()) : rest.size();
    auto text = unescaped(rest.substr(0, tab));
    auto daemon = unescaped(rest.substr(std::min(tab + 1, rest.size())));
    if (text && word == "prepared")
      return Prepared{std::move(*text), std::move(daemon).value_or("")};
    if (text && word == "event") return HostEvent{std::move(*text)};
    if (text) return JobStarted{std::move(*text)};
  }
  if (word == "back" && rest.empty()) return ContactBack{};
  if (word == "here" && rest.empty()) return Here{};
  if (word == "lost") {
    const auto slash = std::min(rest.find('/'), rest.size());
    const auto silent = parse_number<std::uint32_t>(rest.substr(0, slash));
    const auto limit = parse_number<std::uint32_t>(rest.substr(std::min(slash + 1, rest.size())));
    if (silent && limit) return ContactLost{Millis{*silent}, Millis{*limit}};
  }
  if (word == "losses") {
    if (auto lost = decode_losses(rest)) return std::move(*lost);
  }
  const auto code = parse_number<std::uint8_t>(rest);
  if (word == "ended" && code) return JobEnded{*code};
  return std::nullopt;
}

bool begins_mark(std::string_view text, std::string_view token) {
  return !token.empty() && text.starts_with(mark_prefix(token));
}

}  // namespace acc::agent
