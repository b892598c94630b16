#include "common/plain_text.hpp"
#include "launcher/ctl/top/cells.hpp"
#include "launcher/ctl/top/log_text.hpp"

#include <catch2/catch.hpp>

#include <string>

using namespace acc;
using namespace acc::ctl::top;

TEST_CASE("nothing in a line of output steers a terminal", "[common][top]") {
  CHECK(plain_line("plain") == "plain");
  CHECK(plain_line("\x1b[31mred\x1b[0m text") == "red text");
  CHECK(plain_line("\x1b]0;title\atext") == "text");
  CHECK(plain_line("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\") == "link");
  CHECK(plain_line("\x1bPdevice\x1b\\text") == "text");
  CHECK(plain_line("\x1b(0text\x1b") == "text");
  CHECK(plain_line("a\x07" "b\x08" "c\x7f") == "abc");
  CHECK(plain_line("\xc2\x9b" "31mC1\xc2\x85") == "C1");
  CHECK(plain_line("a\xe2\x80\xae" "b\xe2\x81\xa6" "c\xef\xbb\xbf") == "abc");  // directions, BOM
  CHECK(plain_line("\xff\xfe z") == "?? z");
  CHECK(plain_line("\xed\xa0\x80") == "???");  // a surrogate
  CHECK(plain_line("a\tb") == "a       b");
  CHECK(plain_line(" 10%\r 50%\r100%\r") == "100%");
  CHECK(plain_line("Zürich 東京 🚀") == "Zürich 東京 🚀");
  CHECK(plain_line("東京", 4) == "東");
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const auto line = plain_line(std::string{static_cast<char>(first), static_cast<char>(second),
                                               'x', static_cast<char>(first)});
      for (const char c : line) REQUIRE((static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));
      REQUIRE(line.find("\xc2\x9b") == std::string::npos);
    }
  }
}

TEST_CASE("the last line is the last one with anything to read", "[common][top]") {
  CHECK(last_plain_line("one\ntwo\n\n  \n", 100) == "two");
  CHECK(last_plain_line("one\ntwo", 100) == "two");
  CHECK(last_plain_line("one\n\x1b[0m\n", 100) == "one");
  CHECK(last_plain_line("\n\n", 100).empty());
  CHECK(last_plain_line("", 100).empty());
}

TEST_CASE("wide characters take two cells and are never cut in halves", "[top]") {
  CHECK(width_of("abc") == 3);
  CHECK(width_of("東京") == 4);
  CHECK(width_of("e\xcc\x81") == 1);  // with a combining accent
  CHECK(cut("東京都", 0, 4) == "東京");
  CHECK(cut("東京都", 0, 3) == "東 ");
  CHECK(cut("東京都", 1, 4) == " 京 ");
  CHECK(cut("abc", 1, 1) == "b");
  CHECK(cut("abc", 5, 10).empty());
  CHECK(fitted("東京", 6) == "東京  ");
  CHECK(fitted("12", 4, true) == "  12");
  CHECK(shortened("abcdef", 4) == "ab..");
  CHECK(ascii_of("aé東") == "a???");
  const Line line{{"ab", Style::good}, {"東京", Style::bad}};
  CHECK(cut(line, 1, 3) == Line{{"b", Style::good}, {"東", Style::bad}});
  for (std::size_t from = 0; from < 8; ++from)
    for (std::size_t columns = 0; columns < 8; ++columns)
      CHECK(width_of(cut("a東b京都", from, columns)) <= columns);
}

TEST_CASE("a log is the same lines however its bytes arrive", "[top]") {
  const std::string bytes = "one\ntwo 東\n\x1b[31mthree\x1b[0m\nfour";
  for (std::size_t step = 1; step <= bytes.size(); ++step) {
    LogText log;
    for (std::size_t at = 0; at < bytes.size(); at += step) log.append(bytes.substr(at, step));
    REQUIRE(log.end() == 4);
    CHECK(log.at(1).text == "two 東");
    CHECK(log.at(2).text == "three");
    CHECK(log.at(3).text == "four");
  }
}

TEST_CASE("a log forgets its oldest lines, whose numbers nobody else gets", "[top]") {
  LogText log;
  for (std::size_t i = 0; i < LogText::kMostLines + 10; ++i)
    log.append("line " + std::to_string(i) + "\n");
  CHECK(log.first() == 10);
  CHECK(log.at(10).text == "line 10");
  CHECK(log.end() == LogText::kMostLines + 10);
  log.append(std::string(1'000'000, 'x'));  // a bar without an end
  CHECK(log.at(log.end() - 1).text.size() == LogText::kLongestLine);
  log.note("-- attempt 1 --");
  CHECK(log.at(log.end() - 1).is_note);
}
