#include "agent/output/tail_buffer.hpp"

#include "common/plain_text.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <string>

using acc::agent::TailBuffer;

TEST_CASE("a tail is the end of all that came, whatever the pieces", "[agent][output]") {
  std::mt19937 random{3};
  for (const std::size_t longest : {10UL, 3000UL, 40'000UL, 200'000UL}) {
    TailBuffer tail;
    std::string all;
    for (int i = 0; i < 200; ++i) {
      const std::string piece(random() % longest, static_cast<char>('a' + i % 26));
      tail.append(piece);
      all += piece;
      if (all.size() > 4 * TailBuffer::kSize) all.erase(0, all.size() - TailBuffer::kSize);
      const std::string expected =
          all.size() > TailBuffer::kSize ? all.substr(all.size() - TailBuffer::kSize) : all;
      REQUIRE((tail.text(TailBuffer::kSize) == expected));
    }
  }
}

TEST_CASE("a message of 100,000 characters lost its head, and the traceback before it",
          "[agent][output]") {
  const std::string before = "Traceback (most recent call last):\n  File \"a.py\", line 2\n";
  for (const std::size_t piece : {7UL, 4096UL, 70'000UL, 1'000'000UL}) {
    for (const std::size_t length : {60'000UL, 70'000UL, 100'000UL, 3'000'000UL}) {
      INFO(piece << " " << length);
      const auto text = before + "RuntimeError: HEAD " + std::string(length, 'x') + " TAIL\nbye\n";
      TailBuffer tail;
      for (std::size_t at = 0; at < text.size(); at += piece) tail.append(text.substr(at, piece));
      const auto kept = tail.text();
      CHECK(kept.starts_with(before + "RuntimeError: HEAD xxx"));
      CHECK(kept.ends_with("xxx TAIL\nbye\n"));
      CHECK(kept.size() < TailBuffer::kSize + 20'000);
      CHECK((length > TailBuffer::kSize || kept == text));
      CHECK((tail.text(TailBuffer::kSize) ==
             text.substr(text.size() - std::min(text.size(), TailBuffer::kSize))));
    }
  }
}

TEST_CASE("the head of a long line goes with the line", "[agent][output]") {
  TailBuffer tail;
  tail.append("HEAD" + std::string(100'000, 'x') + '\n');
  CHECK(tail.text().starts_with("HEAD"));
  for (int i = 0; i < 8000; ++i) tail.append("a line\n");
  CHECK(tail.text().starts_with("HEAD"));  // a piece of the line is still there
  for (int i = 0; i < 2000; ++i) tail.append("a line\n");
  CHECK(tail.text().find("HEAD") == std::string::npos);
  tail.append("NEXT" + std::string(100'000, 'y'));
  CHECK(tail.text().find("NEXT") != std::string::npos);
  tail.clear();
  CHECK(tail.text().empty());
}

TEST_CASE("no character is cut where a long line is", "[agent][output]") {
  std::string text = "a";
  for (int i = 0; i < 30'000; ++i) text += "\u20ac\U0001f600";
  for (int more = 0; more < 8; ++more) {
    TailBuffer tail;
    tail.append(text);
    const auto kept = tail.text();
    CHECK(acc::safe_text(kept) == kept);
    text.insert(0, "a");
  }
}

TEST_CASE("an exactly full tail, and one byte more", "[agent][output]") {
  TailBuffer tail;
  CHECK(tail.empty());
  tail.append(std::string(TailBuffer::kSize, 'x'));
  CHECK((tail.text() == std::string(TailBuffer::kSize, 'x')));
  tail.append("y");
  CHECK((tail.text(TailBuffer::kSize) == std::string(TailBuffer::kSize - 1, 'x') + "y"));
  CHECK(
      (tail.text() == std::string(TailBuffer::kSize, 'x') + "y"));  // of its one line all is known
}

TEST_CASE("a tail of line ends has nothing to read in it", "[agent][output]") {
  TailBuffer tail;
  CHECK(tail.blank());
  tail.append("\n \r\n");
  CHECK(tail.blank());
  tail.append("x");
  CHECK_FALSE(tail.blank());
  tail.clear();
  CHECK(tail.empty());
  tail.append("again");
  CHECK(tail.text() == "again");
}

TEST_CASE("a tail knows its end without the rest, and how much there was", "[agent][output]") {
  TailBuffer tail;
  CHECK(tail.text(10).empty());
  tail.append("abcdef");
  CHECK(tail.text(2) == "ef");
  CHECK(tail.text(100) == "abcdef");
  tail.append(std::string(TailBuffer::kSize, 'x'));
  tail.append("yz");
  CHECK(tail.text(3) == "xyz");
  CHECK(tail.total() == 6 + TailBuffer::kSize + 2);
  CHECK(tail.last_append() > acc::Instant{});
}
