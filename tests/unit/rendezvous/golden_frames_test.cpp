// The bytes of every message of every released version: frames/NAME-1.0.hex. Until 1.0 is released
// they may be written anew, by test-rendezvous "[write_golden_frames]"; after that, never.
#include "rendezvous/codec.hpp"
#include "tests/unit/rendezvous/message_tools.hpp"
#include "tests/unit/rendezvous/sample_messages.hpp"

#include <catch2/catch.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

using namespace acc;
using namespace acc::rendezvous;

namespace {

const std::filesystem::path kFrames = ACC_GOLDEN_FRAMES;

std::filesystem::path file_of(const Message& message) {
  return kFrames / (std::string{name_of(message)} + "-1.0.hex");
}

/// Sixteen bytes a line, two digits each.
std::string to_hex(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    char two[4];
    std::snprintf(two, sizeof two, "%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
    text += two;
    text += i % 16 == 15 || i + 1 == bytes.size() ? '\n' : ' ';
  }
  return text;
}

std::string read_hex(const std::filesystem::path& path) {
  std::ifstream file{path};
  std::string bytes;
  for (unsigned byte = 0; file >> std::hex >> byte;) bytes += static_cast<char>(byte);
  return bytes;
}

}  // namespace

TEST_CASE("frames of version 1.0 are read and written as in its release",
          "[rendezvous][codec][golden]") {
  for (const auto& sample : sample_messages()) {
    INFO(file_of(sample));
    const auto golden = read_hex(file_of(sample));
    CHECK(to_hex(encode(kSampleEpoch, sample)) == to_hex(golden));
    const auto frame = decode(golden);
    REQUIRE(frame.has_value());
    CHECK(frame->epoch == kSampleEpoch);
    CHECK(show(frame->message) == show(sample));
  }
}

TEST_CASE("each kind of message has a golden frame", "[rendezvous][codec][golden]") {
  std::set<std::size_t> kinds;
  for (const auto& sample : sample_messages()) kinds.insert(sample.index());
  CHECK(kinds.size() == std::variant_size_v<Message>);
}

TEST_CASE("golden frames are written", "[.][write_golden_frames]") {
  for (const auto& sample : sample_messages())
    std::ofstream{file_of(sample)} << to_hex(encode(kSampleEpoch, sample));
}
