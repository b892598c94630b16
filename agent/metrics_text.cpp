#include "agent/metrics_text.hpp"

#include <charconv>

namespace acc::agent {

namespace {

void append_escaped(std::string& to, std::string_view text, bool is_label) {
  for (const char c : text) {
    if (c == '\\') {
      to += "\\\\";
    } else if (c == '\n') {
      to += "\\n";
    } else if (c == '"' && is_label) {
      to += "\\\"";
    } else {
      to += c;
    }
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
