#include "tests/unit/runtime/data/file_bytes.hpp"

#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <acc/readers.hpp>
#include <array>
#include <cstring>

using namespace acc::runtime;
using namespace acc::testing;

namespace {

template <class T>
std::string stored(std::initializer_list<T> values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

std::string npy(const std::string& header, const std::string& elements, char major = 1) {
  std::string file = raw("\x93NUMPY") + major + '\0';
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  if (major > 1) file += raw("\0\0");
  return file + header + elements;
}

std::string header(const std::string& descr, const std::string& shape,
                   const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape +
         ", }     \n";
}

HostTensor parse(std::string_view file) { return parse_npy(bytes_of(file), "x.npy"); }

void refused(std::string_view file, const std::string& words) {
  try {
    (void)parse(file);
    FAIL("it was read");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::corrupt);
    CHECK_THAT(error.what(), Catch::StartsWith("x.npy: at byte ") && Catch::Contains(words));
  }
}

}  // namespace

TEST_CASE("a .npy file is a tensor, in each version", "[runtime][data]") {
  const auto expected = HostTensor::of<float>(std::array<float, 6>{1, 2, 3, 4, 5, 6}, {2, 3});
  for (const char major : {'\1', '\2', '\3'}) {
    const auto file = npy(header("<f4", "(2, 3)"), stored<float>({1, 2, 3, 4, 5, 6}), major);
    CHECK(parse(file) == expected);
    CHECK(parse(gzipped(file)) == expected);
    const TemporaryFile on_disk{file};
    CHECK(read_npy(on_disk.path()) == expected);
  }
}

TEST_CASE("a header is a dictionary in Python's words, in any order and spacing",
          "[runtime][data]") {
  const auto elements = stored<std::int64_t>({7, 8});
  const auto expected = HostTensor::of<std::int64_t>(std::array<std::int64_t, 2>{7, 8}, {2});
  for (const char* text :
       {"{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }",
        "{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<i8\"}\n",
        "  { 'fortran_order' : True , 'shape' : ( 2 ) , 'descr' : '<i8' }  \n \n"}) {
    INFO(text);
    CHECK(parse(npy(text, elements)) == expected);
  }
  CHECK(parse(npy(header("<f8", "()"), stored({0.5}))) ==
        HostTensor::of<double>(std::array{0.5}, {}));
  CHECK(parse(npy(header("<f8", "(0, 3)"), "")).shape() == Shape{0, 3});
}

TEST_CASE("elements of all plain types, in either order", "[runtime][data]") {
  const auto one = [](const std::string& descr, const std::string& element) {
    return parse(npy(header(descr, "(1,)"), element));
  };
  CHECK(one("|b1", "\1").as<std::uint8_t>()[0] == 1);
  CHECK(one("|i1", "\xff").as<std::int8_t>()[0] == -1);
  CHECK(one("|u1", "\xff").as<std::uint8_t>()[0] == 255);
  CHECK(one("<i2", "\xfe\xff").as<std::int32_t>()[0] == -2);
  CHECK(one(">u2", "\xff\xfe").as<std::int32_t>()[0] == 65534);
  CHECK(one(">i4", raw("\0\0\1\2")).as<std::int32_t>()[0] == 258);
  CHECK(one("<u4", raw("\2\1\0\0")).as<std::uint32_t>()[0] == 258);
  CHECK(one(">i8", raw("\0\0\0\0\0\0\1\2")).as<std::int64_t>()[0] == 258);
  CHECK(one("<u8", raw("\2\1\0\0\0\0\0\0")).as<std::uint64_t>()[0] == 258);
  CHECK(one(">f2", raw("\x3c\0")).as<Half>()[0] == Half{1.0F});
  CHECK(one(">f4", raw("\x3f\x80\0\0")).as<float>()[0] == 1.0F);
  CHECK(one(">f8", raw("\x3f\xf0\0\0\0\0\0\0")).as<double>()[0] == 1.0);
}

TEST_CASE("Fortran's order is turned to C's", "[runtime][data]") {
  // a[i][j][k] = 100 i + 10 j + k of shape (2, 3, 2), the first index running fastest.
  std::string elements;
  for (std::int32_t k = 0; k < 2; ++k) {
    for (std::int32_t j = 0; j < 3; ++j) {
      for (std::int32_t i = 0; i < 2; ++i) elements += stored({100 * i + 10 * j + k});
    }
  }
  const auto tensor = parse(npy(header("<i4", "(2, 3, 2)", "True"), elements));
  std::size_t at = 0;
  for (std::int32_t i = 0; i < 2; ++i) {
    for (std::int32_t j = 0; j < 3; ++j) {
      for (std::int32_t k = 0; k < 2; ++k)
        CHECK(tensor.as<std::int32_t>()[at++] == 100 * i + 10 * j + k);
    }
  }
}

TEST_CASE("a .npy file that isn't one is refused with the place", "[runtime][data]") {
  refused("", "the file ends in the magic number, 6 bytes too early");
  refused("NUMPY!!!", "not a .npy file");
  refused(npy(header("<f4", "(1,)"), stored<float>({1}), 4), "version 4.0 of .npy");
  refused(npy(header("<f4", "(2,)"), stored<float>({1})),
          "the file ends in the elements, 4 bytes too early");
  refused(npy(header("<f4", "(2000,)"), stored<float>({1})), "more elements are promised");
  refused(npy(header("<f4", "(1,)"), stored<float>({1, 2})), "something more behind");
  refused(npy(header("<f4", "(1,)"), "").substr(0, 20), "a header of 63 bytes");
  refused(gzipped(npy(header("<f4", "(1,)"), "").substr(0, 20)), "the file ends in the header, ");
  refused(raw("\x93NUMPY\x02\0\xff\xff\xff\x7f"), "a header of 2147483647 bytes");
  refused(npy(header("<f4", "(4611686018427387904, 4)"), ""), "more elements are promised");
  refused(npy(header("<f4", "(99999999999999999999,)"), ""), "not a shape");
  refused(npy(header("<f4", "(-1,)"), ""), "not a shape");
}

TEST_CASE("a header that says something else is refused with its words", "[runtime][data]") {
  refused(npy(header("|O", "(1,)"), "x"), "elements of type '|O' are not read");
  refused(npy(header("<U3", "(1,)"), "x"), "elements of type '<U3'");
  refused(npy(header("<c8", "(1,)"), "x"), "elements of type '<c8'");
  refused(npy(header("|f4", "(1,)"), "x"), "elements of type '|f4'");
  refused(npy(header("", "(1,)"), "x"), "elements of type ''");
  refused(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "x"),
          "records are not numbers");
  refused(npy("{'descr': '<f4', 'shape': (1,)}", "x"), "the dictionary lacks");
  refused(npy("{'descr': '<f4', 'descr': '<f4'}", "x"), "a key that doesn't belong here: 'descr'");
  refused(npy("{'version\x01': 1}", "x"), "a key that doesn't belong here: 'version\\x01'");
  refused(npy("{'descr", "x"), "a text without an end");
  refused(npy("[1]", "x"), "expected '{'");
  refused(npy("{'fortran_order': None}", "x"), "expected True or False");
  refused(npy(header("<f4", "(1,)") + "x", stored<float>({1})), "something behind the dictionary");
}
