#include "common/text.hpp"
#include "launcher/document_builder.hpp"

#include <nlohmann/json.hpp>

namespace acc::launcher {

namespace {

/// Counts lines while the parser reads: nlohmann's events carry no position.
class LineCounter {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineCounter(const char* at, std::uint32_t* line) : at_{at}, line_{line} {}
  reference operator*() const { return *at_; }
  LineCounter& operator++() {
    if (*at_ == '\n' && line_ != nullptr) ++*line_;
    ++at_;
    return *this;
  }
  LineCounter operator++(int) {
    auto before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const LineCounter& a, const LineCounter& b) { return a.at_ == b.at_; }
  friend bool operator!=(const LineCounter& a, const LineCounter& b) { return a.at_ != b.at_; }

 private:
  const char* at_;
  std::uint32_t* line_;  // lives in read_json, longer than the parse
};

class JsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonReader(const std::uint32_t& line) : line_{line} {}
  DocumentBuilder builder;
  std::string syntax_error;

  bool null() override { return add(Value{}, "null"); }
  bool boolean(bool v) override { return add(Value{v}, v ? "true" : "false"); }
  bool number_integer(std::int64_t v) override { return add(Value{v}, std::to_string(v)); }
  bool number_unsigned(std::uint64_t v) override {
    if (v > INT64_MAX) return add(Value{std::to_string(v)}, std::to_string(v));
    return add(Value{static_cast<std::int64_t>(v)}, std::to_string(v));
  }
  bool number_float(double v, const std::string& text) override { return add(Value{v}, text); }
  bool string(std::string& v) override { return add(Value{v}, v); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return begin(true); }
  bool start_array(std::size_t) override { return begin(false); }
  bool key(std::string& name) override {
    builder.key(name);
    return true;
  }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t, const std::string& token,
                   const nlohmann::detail::exception&) override {
    syntax_error = "not valid JSON near '" + printable(token, 40) + "'";
    return false;
  }

 private:
  bool add(Value value, std::string spelled) {
    value.line = line_;
    value.spelled = std::move(spelled);
    value.is_json = true;
    builder.add(std::move(value));
    return !builder.refused();
  }
  bool begin(bool is_map) {
    builder.begin(is_map, line_);
    return !builder.refused();
  }
  bool end() {
    builder.end();
    return !builder.refused();
  }
  const std::uint32_t& line_;
};

}  // namespace

Result<Document> read_json(std::string_view text, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    return Error{Errc::bad_config, name + ":" + what};
  };
  if (text.size() > kMaxConfigBytes) return refuse(" larger than 1 MiB: not a config file");
  if (trim(text).empty()) return Document{};  // as an empty YAML file
  std::uint32_t line = 1;
  JsonReader reader{line};
  const bool read = nlohmann::json::sax_parse(
      LineCounter{text.data(), &line}, LineCounter{text.data() + text.size(), nullptr}, &reader);
  if (reader.builder.refused()) return refuse(reader.builder.refusal());
  if (!read) return refuse(std::to_string(line) + ": " + reader.syntax_error);
  return reader.builder.take(name);
}

}  // namespace acc::launcher
