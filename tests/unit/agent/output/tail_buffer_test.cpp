#include "agent/output/tail_buffer.hpp"

#include <catch2/catch.hpp>

#include <random>

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
      REQUIRE((tail.text() == expected));
    }
  }
}

TEST_CASE("an exactly full tail, and one byte more", "[agent][output]") {
  TailBuffer tail;
  CHECK(tail.empty());
  tail.append(std::string(TailBuffer::kSize, 'x'));
  CHECK((tail.text() == std::string(TailBuffer::kSize, 'x')));
  tail.append("y");
  CHECK((tail.text() == std::string(TailBuffer::kSize - 1, 'x') + "y"));
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
