#include "common/text.hpp"
#include "runtime/data/byte_reader.hpp"

#include <acc/error.hpp>
#include <acc/readers.hpp>
#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstring>
#include <optional>
#include <utility>

namespace acc::runtime {

struct CsvReader::State {
  State(const std::string& path, CsvOptions wanted) : bytes{path}, options{wanted} { begin(); }
  State(std::span<const std::byte> memory, const std::string& name, CsvOptions wanted)
      : bytes{memory, name}, options{wanted} {
    begin();
  }

  void begin() {
    if (options.delimiter == '"' || options.delimiter == '\n' || options.delimiter == '\r')
      throw Error{ErrorCode::invalid_argument, "a CSV delimiter can't be a quote or a line end"};
    next = bytes.get();
    if (next == 0xEF) skip_mark();
    if (options.header && read_row(header)) columns = header.size();
  }
  void skip_mark() {
    for (const int expected : {0xEF, 0xBB, 0xBF}) {
      if (next != expected) fail("half a byte order mark");
      next = bytes.get();
    }
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error{ErrorCode::corrupt, bytes.name() + ": line " + std::to_string(now) + ": " + why};
  }

  int take() {
    const int taken = std::exchange(next, bytes.get());
    if (taken == '\n') ++now;
    if (++row_bytes > options.max_row_bytes)
      fail("the row that begins in line " + std::to_string(line) + " is longer than " +
           std::to_string(options.max_row_bytes) + " bytes: a quote without an end?");
    return taken;
  }
  /// LF or CR LF, or the end of the file. A lone CR is a character like any other.
  bool at_line_end() {
    if (held_return) return false;
    if (next == '\r') {
      (void)take();
      if (next != '\n' && next != -1) {
        held_return = true;
        return false;
      }
    }
    return next == '\n' || next == -1;
  }

  void read_quoted(std::string& field) {
    const auto opened = now;
    (void)take();
    for (;;) {
      if (next == -1)
        fail("the file ends inside the quotes opened in line " + std::to_string(opened));
      const int c = take();
      if (c != '"') {
        field += static_cast<char>(c);
      } else if (next == '"') {
        field += static_cast<char>(take());
      } else {
        return;
      }
    }
  }

  /// One field, up to its delimiter or the line's end. @return false: it was the last of its row.
  bool read_field(std::string& field) {
    const bool quoted = next == '"' && !held_return;
    if (quoted) read_quoted(field);
    for (;;) {
      if (at_line_end()) {
        if (next == '\n') (void)take();
        return false;
      }
      const bool is_return = std::exchange(held_return, false);
      if (!is_return && next == static_cast<unsigned char>(options.delimiter)) {
        (void)take();
        return true;
      }
      if (quoted) fail("something behind a closing quote");
      if (is_return) {
        field += '\r';
        continue;
      }
      if (next == '"') fail("a quote in the middle of a field that has none around it");
      field += static_cast<char>(take());
    }
  }

  bool read_row(std::vector<std::string>& row) {
    row.clear();
    for (;;) {
      line = now;
      row_bytes = 0;
      if (next == -1) return false;
      const bool blank = at_line_end();
      if (!blank) break;
      if (next == '\n') (void)take();
    }
    bool more = true;
    while (more) {
      row.emplace_back();
      more = read_field(row.back());
    }
    if (columns != 0 && row.size() != columns) {
      now = line;
      fail(std::to_string(row.size()) + " fields, where the rows before have " +
           std::to_string(columns));
    }
    columns = row.size();
    return true;
  }

  ByteReader bytes;
  CsvOptions options;
  std::vector<std::string> header;
  std::size_t columns = 0;  ///< 0: not known yet
  int next = -1;
  bool held_return = false;  ///< a CR that ended no line was taken and isn't in its field yet
  std::uint64_t now = 1;     ///< the line of `next`
  std::uint64_t line = 0;    ///< where the row begins
  std::size_t row_bytes = 0;
};

CsvReader::CsvReader(const std::string& path, CsvOptions options)
    : state_{std::make_unique<State>(path, options)} {}
CsvReader::CsvReader(std::span<const std::byte> bytes, const std::string& name, CsvOptions options)
    : state_{std::make_unique<State>(bytes, name, options)} {}
CsvReader::~CsvReader() = default;
CsvReader::CsvReader(CsvReader&&) noexcept = default;
CsvReader& CsvReader::operator=(CsvReader&&) noexcept = default;

const std::vector<std::string>& CsvReader::header() const noexcept { return state_->header; }
bool CsvReader::next(std::vector<std::string>& row) { return state_->read_row(row); }
std::uint64_t CsvReader::line() const noexcept { return state_->line; }

/// Is this number, which is out of the type's range, too small for it? Else it is too large.
bool is_tiny(std::string_view number) {
  constexpr std::int64_t kFar = std::int64_t{1} << 40;  // beyond any field's digits
  const auto mark = number.find_first_of("eE");
  const auto digits = number.substr(0, mark);
  const auto first = static_cast<std::int64_t>(digits.find_first_of("123456789"));
  const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size()));
  std::int64_t exponent = 0;
  if (mark != std::string_view::npos) {
    auto text = number.substr(mark + 1);
    if (text.starts_with('+')) text.remove_prefix(1);
    exponent = parse_number<std::int64_t>(text).value_or(text.starts_with('-') ? -kFar : kFar);
    exponent = std::clamp(exponent, -kFar, kFar);
  }
  return point - first + exponent < 0;
}

/// As strtod and numpy read a field: "+1", and 0 for what is too small for the type. Nothing for
/// what is too large for it, which they make infinite.
template <Element T>
std::optional<T> number_in(std::string_view field) {
  if (field.starts_with('+') && !field.starts_with("+-")) field.remove_prefix(1);
  T value{};
  const auto* const end = field.data() + field.size();
  const auto [behind, error] = std::from_chars(field.data(), end, value);
  if (behind != end) return std::nullopt;
  if (error == std::errc{}) return value;
  if constexpr (std::floating_point<T>) {
    if (error == std::errc::result_out_of_range && is_tiny(field))
      return field.starts_with('-') ? -T{0} : T{0};
  }
  return std::nullopt;
}

template <Element T>
HostTensor read_csv_numbers(const std::string& path, CsvOptions options) {
  CsvReader reader{path, options};
  std::vector<T> values;
  std::vector<std::string> row;
  std::size_t columns = reader.header().size();
  std::int64_t rows = 0;
  for (; reader.next(row); ++rows) {
    columns = row.size();
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto value = number_in<T>(trim(row[i]));
      if (!value) {
        throw Error{ErrorCode::corrupt, path + ": line " + std::to_string(reader.line()) +
                                            ", field " + std::to_string(i + 1) + ": '" +
                                            printable(row[i]) + "' is no number of type " +
                                            std::string{to_string(dtype_of<T>)}};
      }
      values.push_back(*value);
    }
  }
  return HostTensor::of<T>(values, {rows, static_cast<std::int64_t>(columns)});
}

template HostTensor read_csv_numbers<float>(const std::string&, CsvOptions);
template HostTensor read_csv_numbers<double>(const std::string&, CsvOptions);
template HostTensor read_csv_numbers<std::int64_t>(const std::string&, CsvOptions);

}  // namespace acc::runtime
