// Any bytes, as an IDX, .npy or CSV file, give a result that is whole or an Error that names the
// file; and a CSV file that was understood is the same when it is written and read again.
#include <acc/error.hpp>
#include <acc/readers.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

using namespace acc::runtime;

namespace {

using Rows = std::vector<std::vector<std::string>>;

template <class Read>
bool reads(Read read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt || std::string{error.what()}.find("x: ") != 0)
      std::abort();
    return false;
  }
}

void require_whole(const HostTensor& tensor) {
  if (tensor.bytes().size() != tensor.count() * size_of(tensor.dtype())) std::abort();
}

Rows rows_of(std::span<const std::byte> bytes) {
  CsvOptions options;
  options.header = false;
  CsvReader reader{bytes, "x", options};
  Rows rows;
  std::vector<std::string> row;
  while (reader.next(row)) rows.push_back(row);
  return rows;
}

std::string written(const Rows& rows) {
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += i == 0 ? "\"" : ",\"";
      for (const char c : row[i]) text += c == '"' ? std::string{"\"\""} : std::string{c};
      text += '"';
    }
    text += "\r\n";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span{data, size});
  reads([&] { require_whole(parse_idx(bytes, "x")); });
  reads([&] { require_whole(parse_npy(bytes, "x")); });
  Rows rows;
  if (reads([&] { rows = rows_of(bytes); })) {
    const auto text = written(rows);
    if (rows_of(std::as_bytes(std::span{text})) != rows) std::abort();
  }
  return 0;
}
