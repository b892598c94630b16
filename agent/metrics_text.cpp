#include "agent/metrics_text.hpp"

#include "common/plain_text.hpp"

#include <algorithm>
#include <charconv>

namespace acc::agent {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

void append_escaped(std::string& to, std::string_view text, bool is_label) {
  while (!text.empty()) {
    const char c = text.front();
    std::size_t taken = 1;
    if (c == '\\') {
      to += "\\\\";
    } else if (c == '\n') {
      to += "\\n";
    } else if (c == '"' && is_label) {
      to += "\\\"";
    } else if (static_cast<unsigned char>(c) < 0x80) {
      to += c;
    } else {  // a page that isn't UTF-8 is refused as a whole
      taken = std::max(taken, shown_character(text));
      to += shown_character(text) == 0 ? kReplacement : text.substr(0, taken);
    }
    text.remove_prefix(taken);
  }
}

// The shortest text that is read back as the same number.
void append_number(std::string& to, double value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value);
  to.append(text, end.ptr);
}

}  // namespace

MetricsText& MetricsText::begin(MetricId id) {
  row_ = id.row;
  text_.append("# HELP ").append(row_->name).append(" ");
  append_escaped(text_, row_->help, false);
  text_.append("\n# TYPE ").append(row_->name);
  text_.append(row_->kind == MetricKind::counter ? " counter\n" : " gauge\n");
  return *this;
}

MetricsText& MetricsText::add(Labels values, double value) {
  text_.append(row_->name);
  std::string_view names = row_->labels;
  char before = '{';
  for (const auto label : values) {
    const auto end = names.find(' ');
    text_ += before;
    text_.append(names.substr(0, end)).append("=\"");
    append_escaped(text_, label, true);
    text_ += '"';
    before = ',';
    names = end == std::string_view::npos ? std::string_view{} : names.substr(end + 1);
  }
  if (values.size() != 0) text_ += '}';
  text_ += ' ';
  append_number(text_, value);
  text_ += '\n';
  return *this;
}

}  // namespace acc::agent
