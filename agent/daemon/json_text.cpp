#include "agent/daemon/json_text.hpp"

#include "common/json_bounds.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

namespace acc::agent::daemon {

using nlohmann::json;

json parse_bounded(std::string_view text, int deepest, std::size_t most) {
  if (is_json_beyond(text, deepest, most)) return json(json::value_t::discarded);
  return json::parse(text, nullptr, false);
}

Foreign pass_through(std::string_view text, int deepest, std::size_t most) {
  // As the parser does, which skips it.
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (is_json_beyond(text, deepest, most))
    return {{},
            "it has more than " + std::to_string(most) + " values, or is nested more than " +
                std::to_string(deepest) + " deep"};
  if (!json::accept(text)) return {{}, "it is no JSON"};
  Foreign out;
  out.text.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (!in_string && is_space) continue;
    out.text += c;
    if (in_string && c == '\\')
      out.text += text[++i];  // there is one: it is JSON
    else if (c == '"')
      in_string = !in_string;
  }
  return out;
}

std::string json_text(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string error_in(std::string_view body) {
  const auto reply = parse_bounded(body, 4);
  const auto error = reply.is_object() ? reply.find("error") : reply.end();
  const bool is_said = reply.is_object() && error != reply.end() && error->is_string();
  return printable(is_said ? error->get<std::string>() : std::string{trim(body)}, 500);
}

}  // namespace acc::agent::daemon
