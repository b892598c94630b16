#include "tests/unit/runtime/data/file_bytes.hpp"

#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <acc/readers.hpp>
#include <array>
#include <cmath>

using namespace acc::runtime;
using namespace acc::testing;

namespace {

using Row = std::vector<std::string>;
using Rows = std::vector<Row>;

CsvOptions headless() {
  CsvOptions options;
  options.header = false;
  return options;
}

Rows rows_of(std::string_view text, CsvOptions options = headless()) {
  CsvReader reader{bytes_of(text), "x.csv", options};
  Rows rows;
  Row row;
  while (reader.next(row)) rows.push_back(row);
  CHECK(row.empty());
  return rows;
}

void refused(std::string_view text, const std::string& words, CsvOptions options = headless()) {
  try {
    (void)rows_of(text, options);
    FAIL("it was read");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::corrupt);
    CHECK(std::string{error.what()} == "x.csv: " + words);
  }
}

}  // namespace

TEST_CASE("rows are lines, fields stand between delimiters", "[runtime][data]") {
  CHECK(rows_of("a,b\nc,d\n") == Rows{{"a", "b"}, {"c", "d"}});
  CHECK(rows_of("a,b\r\nc,d") == Rows{{"a", "b"}, {"c", "d"}});
  CHECK(rows_of(",\n,") == Rows{{"", ""}, {"", ""}});
  CHECK(rows_of(" a , b ") == Rows{{" a ", " b "}});
  CHECK(rows_of("").empty());
  CHECK(rows_of("\n\r\n\n").empty());
  CHECK(rows_of("\na\n\nb\n\n") == Rows{{"a"}, {"b"}});
  CHECK(rows_of("a\r") == Rows{{"a"}});
  CHECK(rows_of("a\rb,\r\r\n") == Rows{{"a\rb", "\r"}});
}

TEST_CASE("quotes hold delimiters, line ends and doubled quotes", "[runtime][data]") {
  CHECK(rows_of("\"a,b\",\"c\nd\"\n") == Rows{{"a,b", "c\nd"}});
  CHECK(rows_of("\"say \"\"no\"\"\",x") == Rows{{"say \"no\"", "x"}});
  CHECK(rows_of("\"\",\"\"\"\"\r\n") == Rows{{"", "\""}});
  CHECK(rows_of("\"\"\n") == Rows{{""}});
}

TEST_CASE("other delimiters, and a byte order mark", "[runtime][data]") {
  auto options = headless();
  options.delimiter = ';';
  CHECK(rows_of("a;b,c\n", options) == Rows{{"a", "b,c"}});
  options.delimiter = '\t';
  CHECK(rows_of("\xEF\xBB\xBF"
                "a\tb\n",
                options) == Rows{{"a", "b"}});
  options.delimiter = '"';
  CHECK_THROWS_AS(rows_of("a", options), Error);
}

TEST_CASE("the header names the columns", "[runtime][data]") {
  CsvReader reader{bytes_of("name,\"the age\"\nx,1\n\ny,2\n"), "x.csv"};
  CHECK(reader.header() == Row{"name", "the age"});
  Row row;
  REQUIRE(reader.next(row));
  CHECK(row == Row{"x", "1"});
  CHECK(reader.line() == 2);
  REQUIRE(reader.next(row));
  CHECK(reader.line() == 4);
  CHECK_FALSE(reader.next(row));
  CHECK_FALSE(reader.next(row));
}

TEST_CASE("lines are counted as an editor counts them", "[runtime][data]") {
  CsvReader reader{bytes_of("a,\"1\n2\n3\"\nb,4\n"), "x.csv", headless()};
  Row row;
  REQUIRE(reader.next(row));
  CHECK(reader.line() == 1);
  REQUIRE(reader.next(row));
  CHECK(reader.line() == 4);
}

TEST_CASE("a CSV file that isn't one is refused with the line", "[runtime][data]") {
  refused("a,b\nc\n", "line 2: 1 fields, where the rows before have 2");
  refused("a\n\"b\nc", "line 3: the file ends inside the quotes opened in line 2");
  refused("a,\"b\"c\n", "line 1: something behind a closing quote");
  refused("a,b\"c\"\n", "line 1: a quote in the middle of a field that has none around it");
  refused(
      "\xEF\xBB"
      "a",
      "line 1: half a byte order mark");
  auto options = headless();
  options.max_row_bytes = 20;
  refused("a\n\"" + std::string(100, 'x'),
          "line 2: the row that begins in line 2 is longer than 20 bytes: a quote without an end?",
          options);
}

TEST_CASE("numbers become a tensor", "[runtime][data]") {
  const TemporaryFile file{gzipped("x,y\n1, 2.5\n-3,4e2\n")};
  CHECK(read_csv_numbers<float>(file.path()) ==
        HostTensor::of<float>(std::array<float, 4>{1, 2.5, -3, 400}, {2, 2}));
  CHECK_THROWS_WITH(read_csv_numbers<std::int64_t>(file.path()),
                    Catch::Contains("line 2, field 2: ' 2.5' is no number of type i64"));
  const TemporaryFile empty{"x,y\n"};
  CHECK(read_csv_numbers<double>(empty.path()).shape() == Shape{0, 2});
}

TEST_CASE("numbers that are too small for the type are 0, and a plus is no mistake",
          "[runtime][data]") {
  const std::string small = "0." + std::string(400, '0') + "1";
  const TemporaryFile file{"1e-46,-1e-60,+1,+2.5e+1," + small + ",123e-99999999999999999999\n"};
  const auto read = read_csv_numbers<float>(file.path(), headless());
  CHECK(read == HostTensor::of<float>(std::array<float, 6>{0, -0.0F, 1, 25, 0, 0}, {1, 6}));
  CHECK(std::signbit(read.as<float>()[1]));
  CHECK(read_csv_numbers<double>(file.path(), headless()).as<double>()[0] == 1e-46);
  const TemporaryFile whole{"+7,-7\n"};
  CHECK(read_csv_numbers<std::int64_t>(whole.path(), headless()) ==
        HostTensor::of<std::int64_t>(std::array<std::int64_t, 2>{7, -7}, {1, 2}));
  for (const std::string& wrong : std::vector<std::string>{
           "1e39", "-1e60", "1" + std::string(60, '0'), "1e99999999999999999999", "+", "+-1", "++1",
           "1e", "1e-46x", "-", "0x1p-200"}) {
    const TemporaryFile one{wrong + "\n"};
    CHECK_THROWS_WITH(read_csv_numbers<float>(one.path(), headless()),
                      Catch::Contains("'" + wrong + "' is no number of type f32"));
  }
}

TEST_CASE("a file is read the same in pieces as at once", "[runtime][data]") {
  std::string text;
  Rows expected;
  for (int i = 0; i < 40'000; ++i) {
    const std::string number = std::to_string(i);
    text += number + ",\"" + number + "\"\"\n\",z\r\n";
    expected.push_back({number, number + "\"\n", "z"});
  }
  CHECK(rows_of(text) == expected);
  CHECK(rows_of(gzipped(text)) == expected);
  const TemporaryFile file{text};
  CsvReader reader{file.path(), headless()};
  Row row;
  std::size_t at = 0;
  while (reader.next(row)) CHECK(row == expected.at(at++));
  CHECK(at == expected.size());
}
