#include "tests/unit/runtime/data/file_bytes.hpp"

#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <acc/readers.hpp>
#include <array>

using namespace acc::runtime;
using namespace acc::testing;

namespace {

HostTensor parse(std::string_view text) { return parse_idx(bytes_of(text), "x.idx"); }

void refused(std::string_view text, const std::string& words) {
  try {
    (void)parse(text);
    FAIL("it was read");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::corrupt);
    CHECK(std::string{error.what()} == words);
  }
}

const std::string kSmall = raw("\0\0\x08\x02\0\0\0\x02\0\0\0\x03\x01\x02\x03\x04\x05\x06");

}  // namespace

TEST_CASE("an IDX file is a tensor", "[runtime][data]") {
  CHECK(parse(kSmall) ==
        HostTensor::of<std::uint8_t>(std::array<std::uint8_t, 6>{1, 2, 3, 4, 5, 6}, {2, 3}));
}

TEST_CASE("IDX elements of all types are turned to this machine's order", "[runtime][data]") {
  const auto of = [](char code, const std::string& elements) {
    return parse(raw("\0\0") + code + raw("\x01\0\0\0\x01") + elements);
  };
  CHECK(of(0x09, raw("\xff")) == HostTensor::of<std::int8_t>(std::array<std::int8_t, 1>{-1}, {1}));
  CHECK(of(0x0B, raw("\xff\xfe")) == HostTensor::of<std::int32_t>(std::array{-2}, {1}));
  CHECK(of(0x0C, raw("\x01\x02\x03\x04")) ==
        HostTensor::of<std::int32_t>(std::array{0x01020304}, {1}));
  CHECK(of(0x0D, raw("\x3f\x80\0\0")) == HostTensor::of<float>(std::array{1.0F}, {1}));
  CHECK(of(0x0E, raw("\x3f\xf0\0\0\0\0\0\0")) == HostTensor::of<double>(std::array{1.0}, {1}));
}

TEST_CASE("gzip is seen by looking", "[runtime][data]") {
  CHECK(parse(gzipped(kSmall)) == parse(kSmall));
  // A gzip file may be several, one behind the other.
  CHECK(parse(gzipped(kSmall.substr(0, 7)) + gzipped(kSmall.substr(7))) == parse(kSmall));
  const TemporaryFile plain{kSmall, "plain.gz"};
  CHECK(read_idx(plain.path()) == parse(kSmall));
  const TemporaryFile packed{gzipped(kSmall)};
  CHECK(read_idx(packed.path()) == parse(kSmall));
}

TEST_CASE("an IDX file that isn't one is refused with the place", "[runtime][data]") {
  refused("", "x.idx: at byte 0: the file ends in the magic number, 4 bytes too early");
  refused("PK\x03\x04", "x.idx: at byte 0: not an IDX file: it begins with other bytes than two 0");
  refused(raw("\0\0\x07\x01"), "x.idx: at byte 2: no type of elements: 7");
  refused(raw("\0\0\x08\0"), "x.idx: at byte 3: an IDX file of no dimensions");
  refused(kSmall.substr(0, 9), "x.idx: at byte 9: the file ends in the extents, 3 bytes too early");
  refused(kSmall.substr(0, 17),
          "x.idx: at byte 17: the file ends in the elements, 1 bytes too early");
  refused(kSmall + "x", "x.idx: at byte 18: something more behind the last element");
}

TEST_CASE("what a file merely promises takes no memory", "[runtime][data]") {
  refused(raw("\0\0\x0E\x03\x7f\xff\xff\xff\x7f\xff\xff\xff\x7f\xff\xff\xff"),
          "x.idx: at byte 16: more elements are promised than can be in the file");
  refused(
      gzipped(raw("\0\0\x08\x01\x7f\xff\xff\xff")),
      "x.idx: at byte 8 of what is unpacked: more elements are promised than can be in the file");
  // Nothing, however wide it is.
  CHECK(parse(raw("\0\0\x08\x02\xff\xff\xff\xff\0\0\0\0")).count() == 0);
}

TEST_CASE("a broken gzip file is told as such", "[runtime][data]") {
  const auto packed = gzipped(kSmall);
  for (std::size_t length = 3; length < packed.size(); ++length) {
    INFO(length);
    CHECK_THROWS_AS(parse(packed.substr(0, length)), Error);
  }
  refused(packed.substr(0, packed.size() - 1),
          "x.idx: at byte 18 of what is unpacked: the gzip file ends too early");
  auto wrong = packed;
  wrong[wrong.size() - 6] = static_cast<char>(~wrong[wrong.size() - 6]);  // in the checksum
  CHECK_THROWS_WITH(parse(wrong), Catch::Contains("the gzip file is broken") &&
                                      Catch::Contains("incorrect data check"));
  CHECK_THROWS_WITH(parse(packed + "garbage"), Catch::Contains("the gzip file is broken"));
}

TEST_CASE("a file that isn't there is a system error", "[runtime][data]") {
  try {
    (void)read_idx("/nonexistent/x.idx");
    FAIL("it was read");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::system);
    CHECK(std::string{error.what()} == "open '/nonexistent/x.idx': No such file or directory");
  }
  CHECK_THROWS_WITH(read_idx("/tmp"), Catch::Contains("Is a directory"));
}

TEST_CASE("Fashion-MNIST is read where it is installed", "[runtime][data]") {
  const std::string folder = "/usr/share/datasets/fashion-mnist/";
  if (!std::filesystem::exists(folder)) {
    WARN("skipped: dataset-fashion-mnist is not installed");
    return;
  }
  const auto images = read_idx(folder + "t10k-images-idx3-ubyte.gz");
  const auto labels = read_idx(folder + "t10k-labels-idx1-ubyte.gz");
  CHECK(images.shape() == Shape{10'000, 28, 28});
  CHECK(labels.shape() == Shape{10'000});
  std::array<int, 10> of_label{};
  for (const auto label : labels.as<std::uint8_t>()) ++of_label.at(label);
  for (const int count : of_label) CHECK(count == 1000);
}
