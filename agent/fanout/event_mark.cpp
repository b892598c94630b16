#include "agent/fanout/event_mark.hpp"

#include "agent/fanout/orders.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>

namespace acc::agent {

namespace {

using EventJson = nlohmann::ordered_json;

/// Bytes of the words. JSON and the mark's own escapes make at most six of one.
constexpr std::size_t kMostCommand = kMaxEventMark / 8;

std::string cut_text(const std::string& text, std::size_t most) {
  const auto is_inside = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U;
  };
  while (most > 0 && most < text.size() && is_inside(most)) --most;  // no character is cut
  return text.substr(0, most) + "…";
}

EventJson cut_words(const EventJson& words) {
  auto kept = EventJson::array();
  std::size_t room = kMostCommand;
  for (const auto& word : words) {
    if (!word.is_string()) return kept;
    const auto text = word.get<std::string>();
    if (text.size() >= room) {
      kept.push_back(cut_text(text, room));
      return kept;
    }
    kept.push_back(text);
    room -= text.size() + 1;
  }
  return kept;
}

}  // namespace

std::string event_mark(std::string_view line, std::string_view token) {
  auto mark = encode(HostEvent{std::string{line}}, token);
  if (mark.size() <= kMaxEventMark) return mark;
  auto event = EventJson::parse(line, nullptr, false);
  if (!event.is_object() || !event.contains("command")) return {};
  event["command"] = cut_words(event["command"]);
  mark = encode(HostEvent{event.dump(-1, ' ', false, EventJson::error_handler_t::replace)}, token);
  return mark.size() <= kMaxEventMark ? mark : std::string{};
}

}  // namespace acc::agent
