#include "agent/output/line_splitter.hpp"

#include <catch2/catch.hpp>

#include <random>
#include <string>
#include <utility>
#include <vector>

using acc::agent::kMaxLine;
using acc::agent::LineSplitter;
using acc::agent::PassThrough;

namespace {

using Pieces = std::vector<std::pair<std::string, bool>>;

Pieces split(const std::vector<std::string>& chunks, bool carriage_ends = false) {
  LineSplitter splitter{carriage_ends};
  Pieces pieces;
  const auto emit = [&](std::string_view text, bool newline) {
    pieces.emplace_back(text, newline);
  };
  for (const auto& chunk : chunks) splitter.feed(chunk, emit);
  splitter.finish(emit);
  return pieces;
}

// What a splitter means, byte by byte.
Pieces model(const std::string& bytes, bool carriage_ends) {
  Pieces pieces;
  std::string line;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\n') {
      pieces.emplace_back(std::exchange(line, {}), true);
      continue;
    }
    if (carriage_ends && !line.empty() && line.back() == '\r')
      pieces.emplace_back(std::exchange(line, {}), false);
    if (line.size() == kMaxLine) pieces.emplace_back(std::exchange(line, {}), true);
    line += bytes[i];
  }
  if (!line.empty()) pieces.emplace_back(line, !(carriage_ends && line.back() == '\r'));
  return pieces;
}

std::string random_bytes(std::mt19937& random, std::size_t size) {
  static const std::string kAlphabet("ab\n\n\r\0\xff\xc3", 8);
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += kAlphabet[random() % kAlphabet.size()];
  return bytes;
}

std::vector<std::string> cut(std::mt19937& random, const std::string& bytes, std::size_t longest) {
  std::vector<std::string> chunks;
  for (std::size_t at = 0; at < bytes.size();) {
    chunks.push_back(bytes.substr(at, 1 + random() % longest));
    at += chunks.back().size();
  }
  return chunks;
}

}  // namespace

TEST_CASE("lines come out whole, the last one without its newline too", "[agent][output]") {
  CHECK(split({"one\ntwo\n"}) == Pieces{{"one", true}, {"two", true}});
  CHECK(split({"on", "e\n\nlast"}) == Pieces{{"one", true}, {"", true}, {"last", true}});
  CHECK(split({}).empty());
}

TEST_CASE("NUL, invalid UTF-8 and carriage returns pass untouched", "[agent][output]") {
  const std::string bytes("a\0b\xff\r\n", 6);
  CHECK(split({bytes}) == Pieces{{bytes.substr(0, 5), true}});
}

TEST_CASE("on a terminal a carriage return ends a piece, but not before a line feed",
          "[agent][output]") {
  CHECK(split({"10%\r20%\r", "\ndone\r\n"}, true) ==
        Pieces{{"10%\r", false}, {"20%\r", true}, {"done\r", true}});
}

TEST_CASE("a line of the greatest length stays whole, a longer one comes in pieces",
          "[agent][output]") {
  const std::string longest(kMaxLine, 'x');
  CHECK(split({longest, "\n"}) == Pieces{{longest, true}});
  CHECK(split({longest + "\n"}) == Pieces{{longest, true}});
  CHECK(split({longest, "y\n"}) == Pieces{{longest, true}, {"y", true}});
  CHECK(split({longest + longest + "yz"}) ==
        Pieces{{longest, true}, {longest, true}, {"yz", true}});
}

TEST_CASE("a text split at every position gives the same lines", "[agent][output]") {
  const std::string text("one\n\r\ntwo\rthree\n\0x\nlast", 23);
  for (const bool carriage_ends : {false, true})
    for (std::size_t at = 0; at <= text.size(); ++at) {
      CAPTURE(at);
      CHECK(split({text.substr(0, at), text.substr(at)}, carriage_ends) ==
            model(text, carriage_ends));
    }
}

TEST_CASE("whatever the bytes and however they arrive, the splitter agrees with its model",
          "[agent][output]") {
  std::mt19937 random{7};
  for (int round = 0; round < 200; ++round) {
    std::string bytes = random_bytes(random, random() % 300);
    if (round % 10 == 0)
      bytes += std::string(random() % (2 * kMaxLine), 'l') + random_bytes(random, 9);
    const auto chunks = cut(random, bytes, round % 10 == 0 ? 900'000 : 20);
    const bool carriage_ends = round % 2 == 0;
    CAPTURE(round);
    CHECK(split(chunks, carriage_ends) == model(bytes, carriage_ends));
  }
}

TEST_CASE("a stream that is passed through keeps every byte and hands on whole lines",
          "[agent][output]") {
  std::mt19937 random{11};
  for (int round = 0; round < 200; ++round) {
    const std::string bytes = random_bytes(random, random() % 400);
    PassThrough whole;
    std::string all;
    for (const auto& chunk : cut(random, bytes, 30)) {
      whole.feed(chunk, all);
      // Whole lines, or a bar before the '\r' of the next one.
      CHECK(bytes.starts_with(all));
      CHECK((all.empty() || all.back() == '\n' || all.back() == '\r' || bytes[all.size()] == '\r'));
    }
    whole.finish(all);
    CHECK(all == bytes);
    CHECK_FALSE(whole.holds());
  }
}

TEST_CASE("an unfinished line is held only up to the greatest length", "[agent][output]") {
  PassThrough whole;
  std::string all;
  whole.feed(std::string(kMaxLine - 1, 'x'), all);
  CHECK(all.empty());
  CHECK(whole.holds());
  whole.feed("x", all);
  CHECK(all.size() == kMaxLine);
  CHECK_FALSE(whole.holds());
}

TEST_CASE("no character is torn where a line is too long", "[agent][output]") {
  const std::string most(kMaxLine - 1, 'x');
  CHECK(split({most + "\u00e9y"}) == Pieces{{most, true}, {"\u00e9y", true}});
  CHECK(split({most, "\xc3", "\xa9", "y"}) == Pieces{{most, true}, {"\u00e9y", true}});
  CHECK(split({most + "\u00e9y"}, true) == Pieces{{most, true}, {"\u00e9y", true}});
  PassThrough whole;
  std::string all;
  whole.feed(most + "\u00e9", all);
  CHECK((all == most));
  CHECK(whole.holds());
}

TEST_CASE(
    "a bar that begins with a carriage return goes out with its text, one that ends with it "
    "at once",
    "[agent][output]") {
  PassThrough bar;
  std::string out;
  bar.feed("\r10%", out);
  CHECK(out.empty());
  CHECK(bar.holds());
  bar.feed("\r20%", out);
  CHECK(out == "\r10%");
  bar.release(out);
  CHECK(out == "\r10%\r20%");
  bar.feed("\r", out);
  CHECK_FALSE(bar.holds());  // not to be shown before its text
  bar.release(out);
  CHECK(out == "\r10%\r20%");
  bar.feed("30%\r40%\r", out);
  CHECK(out == "\r10%\r20%\r30%\r40%");
  bar.feed("\n", out);
  CHECK(out == "\r10%\r20%\r30%\r40%\r\n");
  bar.feed("50%\r60", out);
  CHECK(out.ends_with("\n50%\r"));
  bar.feed("%\r", out);
  CHECK(out.ends_with("\r60%\r"));
  bar.feed("\r", out);
  bar.finish(out);
  CHECK(out.ends_with("60%\r\r"));
}
