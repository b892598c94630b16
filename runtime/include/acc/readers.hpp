#pragma once

#include <acc/types.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// Files that data sets come in: IDX (as MNIST and its kin), CSV and .npy. Each of them may be
/// compressed by gzip; detected by content, not by name.
///
/// Files are untrusted input: any content gives a result or an Error `corrupt` with the file, the
/// place and the fault. Sizes that a file merely claims allocate no memory. Error `system`: it
/// can't be opened or read.
namespace acc::runtime {

/// Elements as stored: big-endian u8, i8, i16 (given as i32: there is no i16), i32, f32 or f64.
[[nodiscard]] HostTensor read_idx(const std::string& path);
/// From memory; `name` is for messages.
[[nodiscard]] HostTensor parse_idx(std::span<const std::byte> bytes, const std::string& name);

/// Versions 1.0 to 3.0, either byte order, C and Fortran order (given in C order). Bool is given as
/// u8, i2 and u2 as i32. Objects, text, complex numbers and records are refused as corrupt.
[[nodiscard]] HostTensor read_npy(const std::string& path);
[[nodiscard]] HostTensor parse_npy(std::span<const std::byte> bytes, const std::string& name);

struct CsvOptions {
  char delimiter = ',';
  bool header = true;                       ///< the first row has the names of the columns
  std::size_t max_row_bytes = 16ULL << 20;  ///< a longer row is corrupt: a quote that never ends
};

/// Reads a CSV file row by row, as RFC 4180: fields in double quotes may contain delimiters, line
/// ends and doubled quotes; lines end in CR LF or LF. Blank lines are passed over, as is a byte
/// order mark. All rows have the same number of fields, else `corrupt`.
class CsvReader {
 public:
  explicit CsvReader(const std::string& path, CsvOptions options = {});
  /// From memory, which outlives the reader.
  CsvReader(std::span<const std::byte> bytes, const std::string& name, CsvOptions options = {});
  ~CsvReader();
  CsvReader(CsvReader&&) noexcept;
  CsvReader& operator=(CsvReader&&) noexcept;

  /// Names of the columns; empty without Options::header, or if the file is.
  [[nodiscard]] const std::vector<std::string>& header() const noexcept;
  /// @return false at the end, and then `row` is empty.
  bool next(std::vector<std::string>& row);
  /// Where the last row begins, from 1.
  [[nodiscard]] std::uint64_t line() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A CSV file of numbers: shape {rows, columns}. What is too small for T is 0, as strtod and numpy
/// read it.
/// @throws Error corrupt  also for a field that isn't a number, or is too large for T
template <Element T>
[[nodiscard]] HostTensor read_csv_numbers(const std::string& path, CsvOptions options = {});
extern template HostTensor read_csv_numbers<float>(const std::string&, CsvOptions);
extern template HostTensor read_csv_numbers<double>(const std::string&, CsvOptions);
extern template HostTensor read_csv_numbers<std::int64_t>(const std::string&, CsvOptions);

}  // namespace acc::runtime

namespace acc {
using runtime::CsvOptions;
using runtime::CsvReader;
using runtime::read_csv_numbers;
using runtime::read_idx;
using runtime::read_npy;
}  // namespace acc
