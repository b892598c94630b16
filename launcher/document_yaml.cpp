#include "common/text.hpp"
#include "launcher/document_builder.hpp"
#include "launcher/yaml_scalar.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

namespace acc::launcher {

namespace {

constexpr std::string_view kTagPrefix = "tag:yaml.org,2002:";

/// Takes the parser's events instead of its node tree: lines and tags are all there, and limits
/// apply while reading.
class YamlReader : public YAML::EventHandler {
 public:
  DocumentBuilder builder;

  /// Where the last scalar in quotes begins, or its anchor or tag.
  [[nodiscard]] const std::optional<YAML::Mark>& last_quoted() const { return last_quoted_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1)
      builder.refuse(line(mark), "a second document ('---') begins: a config file is one document");
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark&, const std::string&) override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    scalar(mark, Value{}, "", anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    if (tag == "!") last_quoted_ = mark;
    scalar(mark, tagged(mark, tag, text), text, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (builder.refused()) return;
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end())
      return builder.refuse(line(mark), "an alias refers to a value that contains it");
    if (builder.awaits_key()) return take_key(mark, found->second);
    builder.add(found->second);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_collection(mark, tag, "seq");
    open(mark, false, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_collection(mark, tag, "map");
    open(mark, true, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  static std::uint32_t line(const YAML::Mark& mark) {
    return static_cast<std::uint32_t>(mark.line + 1);
  }

  Value tagged(const YAML::Mark& mark, const std::string& tag, const std::string& text) {
    if (tag == "?" || tag.empty()) return resolve_yaml_scalar(text);
    if (tag == "!" || tag == std::string{kTagPrefix} + "str")
      return Value{text};  // quoted, or said to be text
    for (const std::string_view known : {"bool", "int", "float", "null"}) {
      if (tag == std::string{kTagPrefix} + std::string{known}) return resolve_yaml_scalar(text);
    }
    refuse_tag(mark, tag);
    return {};
  }

  /// @param own  "seq", "map": the tag that says what it is
  void check_collection(const YAML::Mark& mark, const std::string& tag, std::string_view own) {
    const bool is_plain = tag.empty() || tag == "?" || tag == "!";
    if (!is_plain && tag != std::string{kTagPrefix} + std::string{own}) refuse_tag(mark, tag);
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (builder.refused()) return;
    builder.refuse(line(mark), "unknown tag '" + printable(tag) + "': plain values need none");
  }

  void scalar(const YAML::Mark& mark, Value value, const std::string& text, YAML::anchor_t anchor) {
    if (builder.refused()) return;
    value.line = line(mark);
    value.spelled = text;
    if (anchor != 0) anchors_[anchor] = value;
    if (builder.awaits_key()) return take_key(mark, value);
    builder.add(std::move(value));
  }

  void take_key(const YAML::Mark& mark, const Value& value) {
    if (value.list() != nullptr || value.map() != nullptr)
      return builder.refuse(line(mark), "a key must be a word");
    // Python would keep True for an unquoted `on:`; the spelling is what the user has to look for.
    builder.key(value.spelled.empty() ? python_text(value) : value.spelled);
  }

  void open(const YAML::Mark& mark, bool is_map, YAML::anchor_t anchor) {
    if (builder.refused()) return;
    if (builder.awaits_key()) return builder.refuse(line(mark), "a key must be a word");
    builder.begin(is_map, line(mark));
    if (!builder.refused()) open_anchors_.push_back(anchor);
  }

  void close() {
    if (builder.refused()) return;
    auto value = builder.end();
    if (open_anchors_.back() != 0) anchors_[open_anchors_.back()] = std::move(value);
    open_anchors_.pop_back();
  }

  int documents_ = 0;
  std::optional<YAML::Mark> last_quoted_;
  std::map<YAML::anchor_t, Value> anchors_;
  std::vector<YAML::anchor_t> open_anchors_;
};

/// yaml-cpp recurses once or more for each bracket, so brackets are counted before it sees them.
/// Those in quotes and comments count too: no config comes near the limit.
bool too_many_brackets(std::string_view text) {
  std::size_t depth = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (depth > 200) return true;
  }
  return false;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

std::string_view content_of(std::string_view line) {
  const auto begin = line.find_first_not_of(" \t\r");
  return begin == std::string_view::npos || line[begin] == '#' ? std::string_view{}
                                                               : line.substr(begin);
}

std::string_view text_from(const YAML::Mark& mark, std::string_view text) {
  const auto lines = lines_of(text);
  const auto line = static_cast<std::size_t>(mark.line);
  if (line >= lines.size()) return {};
  const auto begin = static_cast<std::size_t>(lines[line].data() - text.data());
  return text.substr(std::min(begin + static_cast<std::size_t>(mark.column), text.size()));
}

/// Whether the scalar in quotes at the beginning of `text` has no end. yaml-cpp takes the rest of
/// the file for its value: the keys in it would be lost without a word.
bool is_unclosed(std::string_view text) {
  while (text.starts_with('&') || text.starts_with('!')) {  // an anchor, a tag
    text.remove_prefix(std::min(text.find_first_of(" \t\r\n"), text.size()));
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  }
  const char quote = text.empty() ? '\0' : text.front();
  if (quote != '"' && quote != '\'') return false;
  for (std::size_t i = 1; i < text.size(); ++i) {
    const bool is_escape = quote == '"' ? text[i] == '\\' : text.substr(i).starts_with("''");
    if (!is_escape && text[i] == quote) return false;
    if (is_escape) ++i;
  }
  return true;
}

/// "4: column 1: …". The parser names the place where it could not go on; what has to be mended is
/// often the line before.
std::string describe(const YAML::Exception& error, std::string_view text) {
  const auto lines = lines_of(text);
  const auto at = static_cast<std::size_t>(std::max(error.mark.line, 0));
  for (std::size_t i = 0; i < lines.size() && i <= at; ++i) {
    const auto indent = lines[i].substr(0, lines[i].find_first_not_of(" \t"));
    const auto tab = indent.find('\t');
    if (tab != std::string_view::npos && !content_of(lines[i]).empty())
      return std::to_string(i + 1) + ": a tab in column " + std::to_string(tab + 1) +
             ": YAML is indented by blanks";
  }
  std::string what = std::to_string(at + 1) + ": not valid YAML in column " +
                     std::to_string(error.mark.column + 1) + ": " + printable(error.msg);
  const auto line = at < lines.size() ? lines[at] : std::string_view{};
  if (line.find('[') != std::string_view::npos && line.find("]:") != std::string_view::npos)
    return what + " (an address with brackets needs quotes: '[::1]:29400')";
  for (std::size_t i = std::min(at, lines.size()); i-- > 0;) {
    const auto content = content_of(lines[i]);
    if (content.empty()) continue;
    const bool has_colon = content.find(": ") != std::string_view::npos ||
                           trim(content).ends_with(':') || content.starts_with('-');
    if (!has_colon) what += " (is the colon missing in line " + std::to_string(i + 1) + "?)";
    break;
  }
  return what;
}

}  // namespace

Result<Document> read_yaml(std::string_view text, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    return Error{Errc::bad_config, name + ":" + what};
  };
  if (text.size() > kMaxConfigBytes) return refuse(" larger than 1 MiB: not a config file");
  if (too_many_brackets(text)) return refuse(" brackets are nested too deep: not a config file");
  std::istringstream stream{std::string{text}};
  YamlReader reader;
  try {
    YAML::Parser parser{stream};
    while (!reader.builder.refused() && parser.HandleNextDocument(reader)) {
    }
  } catch (const YAML::Exception& e) {
    return refuse(describe(e, text));
  } catch (const std::exception& e) {  // yaml-cpp's own limits
    return refuse(std::string{" not valid YAML: "} + printable(e.what()));
  }
  if (reader.builder.refused()) return refuse(reader.builder.refusal());
  if (const auto& mark = reader.last_quoted(); mark && is_unclosed(text_from(*mark, text)))
    return refuse(std::to_string(mark->line + 1) + ": the quote in column " +
                  std::to_string(mark->column + 1) + " is never closed");
  return reader.builder.take(name);
}

}  // namespace acc::launcher
