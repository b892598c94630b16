#include "launcher/configure/keys.hpp"
#include "launcher/configure/line_edit.hpp"
#include "launcher/configure/menu.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace acc::configure;
using Name = KeyPress::Name;

namespace {

std::vector<Name> names_of(std::string_view bytes) {
  KeyDecoder decoder;
  decoder.feed(bytes);
  std::vector<Name> names;
  while (const auto key = decoder.next(true)) names.push_back(key->name);
  return names;
}

KeyPress typed(std::string text) { return {Name::text, std::move(text)}; }

}  // namespace

TEST_CASE("bytes of a terminal are keys", "[configure][terminal]") {
  CHECK(names_of("\x1b[A\x1bOB\r") == std::vector<Name>{Name::up, Name::down, Name::enter});
  CHECK(names_of("\x02\x03\x04\x1a") ==
        std::vector<Name>{Name::back, Name::interrupt, Name::closed, Name::suspend});
  CHECK(names_of("\x1b[1;5C\x1b[200~\x1b") ==
        std::vector<Name>{Name::unknown, Name::unknown, Name::unknown});
  CHECK(names_of("\x1b[5~\x1b[3~\x7f") ==
        std::vector<Name>{Name::page_up, Name::remove, Name::backspace});
}

TEST_CASE("a key whose bytes arrive one by one is one key", "[configure][terminal]") {
  KeyDecoder decoder;
  for (const char* part : {"\x1b", "["}) {
    decoder.feed(part);
    CHECK_FALSE(decoder.next(false));
    CHECK(decoder.is_partial());
  }
  decoder.feed("A");
  CHECK(decoder.next(false) == KeyPress{Name::up, {}});
  decoder.feed("\xc3");
  CHECK_FALSE(decoder.next(false));
  decoder.feed("\xa4");
  CHECK(decoder.next(false) == typed("\xc3\xa4"));
}

TEST_CASE("any bytes end as keys", "[configure][terminal]") {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string bytes{static_cast<char>(first), static_cast<char>(second)};
      CHECK(names_of(bytes).size() <= 2);
    }
  }
}

TEST_CASE("a menu's mark stays within it, and in view", "[configure][terminal]") {
  Menu menu{{"a", "b", "c", "d", "e"}, 0, 3};
  menu.press({Name::up, {}});
  CHECK(menu.marked() == 0);
  for (int i = 0; i < 9; ++i) menu.press({Name::down, {}});
  CHECK(menu.marked() == 4);
  CHECK(menu.first_in_view() == 2);
  menu.press({Name::page_up, {}});
  CHECK(menu.marked() == 1);
  CHECK(menu.first_in_view() == 1);
  menu.resize(99);
  CHECK(menu.rows() == 5);
  CHECK(menu.first_in_view() == 0);
  menu.press({Name::end, {}});
  menu.press({Name::home, {}});
  CHECK(menu.marked() == 0);
}

TEST_CASE("typed letters and numbers find a line", "[configure][terminal]") {
  Menu menu{{"multi-CPU", "multi-GPU", "TPU"}, 0, 10};
  for (const char* letter : {"m", "u", "l", "t", "i", "-", "G"}) menu.press(typed(letter));
  CHECK(menu.marked() == 1);
  menu.press(typed("t"));
  CHECK(menu.marked() == 2);
  menu.press(typed("0"));
  CHECK(menu.marked() == 0);
  Menu ranks{{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"}, 0, 10};
  ranks.press(typed("1"));
  ranks.press(typed("1"));
  CHECK(ranks.marked() == 11);
  Menu versions{{"1", "2"}, 1, 10};  // labels that are numbers mean themselves
  versions.press(typed("1"));
  CHECK(versions.marked() == 0);
}

TEST_CASE("a line is edited by whole characters", "[configure][terminal]") {
  LineEdit edit;
  for (const char* c : {"a", "\xc3\xa4", "b"}) edit.press(typed(c));
  edit.press({Name::left, {}});
  edit.press({Name::backspace, {}});
  CHECK(edit.text() == "ab");
  edit.press({Name::remove, {}});
  CHECK(edit.text() == "a");
  for (const char* c : {" ", "x", "y"}) edit.press(typed(c));
  edit.press({Name::clear_word, {}});
  CHECK(edit.text() == "a ");
  edit.press({Name::home, {}});
  edit.press({Name::backspace, {}});
  CHECK(edit.behind_cursor() == "a ");
  edit.press({Name::end, {}});
  edit.press({Name::clear_line, {}});
  CHECK(edit.text().empty());
}
