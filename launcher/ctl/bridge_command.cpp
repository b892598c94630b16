#include "launcher/ctl/bridge_command.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

namespace acc::ctl {

namespace {

/// @return whether it has a meaning
bool take_bridge_word(std::string_view word, BridgeCommand& command) {
  auto& wish = command.wish;
  const auto equals = std::min(word.find('='), word.size());
  const auto name = word.substr(0, equals);
  const std::string value{word.substr(std::min(equals + 1, word.size()))};
  const auto number = [&](auto& into) {
    const auto read = parse_number<unsigned>(value);
    if (read) into = *read;
    return read.has_value();
  };
  if (!word.starts_with("--")) return std::exchange(wish.name, std::string{word}).empty();
  if (name == "--nodes") return number(wish.nodes);
  if (name == "--node_rank") return number(wish.node_rank);
  if (name == "--slots") return number(wish.slots);
  if (name == "--socket") {
    command.socket = value;
  } else if (name == "--launch") {
    wish.launch = value;
  } else if (name == "--here") {
    wish.node = "-";
  } else if (name == "--secret") {
    wish.has_secret = true;
  } else if (name == "--detach") {
    wish.detaches = true;
  } else if (name == "--job") {
    wish.job = value;
  } else if (name == "--new") {
    wish.skips_old = true;
  } else if (name == "--away") {
    wish.is_away = true;
  } else if (name == "--look") {
    wish.only_looks = true;
  } else {
    return false;
  }
  return true;
}

}  // namespace

Result<BridgeCommand> parse_bridge_command(std::span<const std::string> words) {
  BridgeCommand command;
  auto& wish = command.wish;
  std::string complaint;
  std::size_t i = 0;
  for (; i < words.size() && words[i] != "--"; ++i) {
    if (!take_bridge_word(words[i], command))
      complaint = "bridge: " + in_quotes(words[i], 80) + " has no meaning";
  }
  if (i < words.size())
    wish.words.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
  wish.node = wish.node == "-" ? std::string{} : wish.name;
  const bool is_whole = !wish.name.empty() && !command.socket.empty() &&
                        (!wish.job.empty() || (!wish.launch.empty() && !wish.words.empty()));
  if (complaint.empty() && !is_whole)
    complaint = "bridge is started by acc-launch --hosts; not to be used by hand";
  if (!complaint.empty()) return Error{Errc::bad_usage, std::move(complaint)};
  return command;
}

}  // namespace acc::ctl
