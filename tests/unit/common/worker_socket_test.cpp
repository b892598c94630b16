#include "common/worker_socket.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace acc;
using namespace acc::worker_socket;
using namespace std::chrono_literals;

namespace {

std::vector<Request> requests_in(std::string_view bytes, std::size_t piece, std::string* error) {
  RequestReader reader;
  std::vector<Request> found;
  while (!bytes.empty()) {
    reader.feed(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    for (;;) {
      auto next = reader.next();
      if (!next) {
        if (error != nullptr) *error = next.error().what;
        return found;
      }
      if (!*next) break;
      found.push_back(std::move(**next));
    }
  }
  return found;
}

std::string complaint_about(std::string_view bytes) {
  std::string error;
  requests_in(bytes, bytes.size(), &error);
  return error;
}

Request make(Verb verb, std::string key = {}) {
  Request request;
  request.verb = verb;
  request.key = std::move(key);
  return request;
}

std::vector<Request> one_of_each() {
  std::vector<Request> all;
  auto hello = make(Verb::hello);
  hello.rank = Rank{3};
  all.push_back(hello);
  hello.round = Round{7};
  all.push_back(hello);
  for (const auto verb : {Verb::beat, Verb::checkpoint}) {
    all.push_back(make(verb));
    all.back().step = UINT64_MAX;
  }
  all.push_back(make(Verb::no_restart));
  all.back().text = "the disk is full";
  all.push_back(make(Verb::section));
  all.back().timeout = 90s;
  all.back().text = "a checkpoint of 3 GiB";
  all.push_back(make(Verb::section_end));
  all.push_back(make(Verb::set, "k"));
  all.back().value = std::string("a\nb\0 c", 6);
  all.push_back(make(Verb::set, "empty"));
  all.push_back(make(Verb::get, "k"));
  all.back().timeout = 5s;
  all.push_back(make(Verb::add, "n"));
  all.back().delta = INT64_MIN;
  all.push_back(make(Verb::wait, std::string(kMaxKey, 'k')));
  all.back().timeout = kLongestWait;
  all.push_back(make(Verb::barrier, "b"));
  all.back().count = 8;
  all.back().timeout = 1ms;
  all.push_back(make(Verb::remove, "k"));
  all.push_back(make(Verb::compare_set, "k"));
  all.back().expected = "old\n";
  all.back().value = std::string(kMaxValue, 'x');
  all.push_back(make(Verb::table));
  all.push_back(make(Verb::lost));
  all.push_back(make(Verb::current));
  all.back().round = Round{3};
  all.back().timeout = 30s;
  return all;
}

}  // namespace

TEST_CASE("what is written is what is read, however the bytes are cut", "[common][socket]") {
  const auto all = one_of_each();
  std::string bytes;
  for (const auto& request : all) bytes += to_text(request);
  const std::size_t piece = GENERATE(1U, 2U, 7U, 1000U, 1'000'000U);
  std::string error;
  CHECK((requests_in(bytes, piece, &error) == all));
  CHECK(error.empty());
}

TEST_CASE("a person writes it as easily", "[common][socket]") {
  const auto found = requests_in(
      "hello 0\nbeat 17\nset greeting 5\nhello\nget greeting\nno_restart\nbarrier b 2 5000\n", 3,
      nullptr);
  REQUIRE(found.size() == 6);
  CHECK(found[1].step == 17);
  CHECK(found[2].value == "hello");
  CHECK(found[3].timeout == 0ms);
  CHECK(found[4].text.empty());
  CHECK(found[5].timeout == 5s);
}

TEST_CASE("what can't be understood is said in words", "[common][socket]") {
  CHECK(complaint_about("bet 5\n") == "unknown word 'bet', do you mean 'beat'?");
  CHECK(complaint_about("\n") == "unknown word ''");
  CHECK(complaint_about("GET / HTTP/1.1\n").find("unknown word 'GET'") == 0);
  CHECK(complaint_about("beat -1\n") ==
        "beat: step '-1' isn't a number from 0 to 18446744073709551615");
  CHECK(complaint_about("beat 1 2\n") == "beat: '2' is too much");
  CHECK(complaint_about("hello\n").find("hello: rank ''") == 0);
  CHECK(complaint_about("hello 1 x\n").find("hello: round 'x'") == 0);
  CHECK(complaint_about("set k 262145\n").find("set: size in bytes '262145'") == 0);
  CHECK(complaint_about("set k 2\nabc\n") == "after a value of 2 bytes there must be a newline");
  CHECK(complaint_about("wait k\n").find("wait: timeout in milliseconds ''") == 0);
  CHECK(complaint_about("get k 604800001\n").find("get: timeout") == 0);
  CHECK(complaint_about("lost\n").find("lost: timeout in milliseconds ''") == 0);
  CHECK(complaint_about("lost 5 b\n") == "lost: 'b' is too much");
  CHECK(complaint_about("current 3\n").find("current: timeout in milliseconds ''") == 0);
  CHECK(complaint_about("current x 5\n").find("current: round 'x'") == 0);
  CHECK(complaint_about("barrier b 0 5\n").find("barrier: count '0'") == 0);
  CHECK(complaint_about("add k 9223372036854775808\n").find("add: number to add") == 0);
  CHECK(complaint_about("remove " + std::string(257, 'k') + "\n").find("remove: key 'kkk") == 0);
  CHECK(complaint_about("remove a\tb\n").find("remove: key 'a\\") == 0);
  CHECK(complaint_about(std::string(kMaxLine, 'x')) == "a line is longer than 1024 bytes");
  CHECK(complaint_about(std::string(kMaxLine - 1, 'x')).empty());  // it may still end well
}

TEST_CASE("a reader holds one request at most", "[common][socket]") {
  RequestReader reader;
  const std::string some(kMaxValue, 'x');
  for (int i = 0; i < 1000; ++i) {
    reader.feed("set k " + std::to_string(some.size()) + '\n' + some + '\n');
    const auto request = reader.next();
    REQUIRE(request.has_value());
    REQUIRE(request->has_value());
    REQUIRE(reader.size() == 0);
  }
}

TEST_CASE("answers are read as they were written", "[common][socket]") {
  using Word = Answer::Word;
  const std::vector<Answer> all{{Word::ok, 0, ""},
                                {Word::number, -5, ""},
                                {Word::value, 0, "a\nb"},
                                {Word::value, 0, ""},
                                {Word::differs, 0, "x"},
                                {Word::missing, 0, ""},
                                {Word::timed_out, 3, ""},
                                {Word::too_big, 0, ""},
                                {Word::full, 0, ""},
                                {Word::wrong_round, 0, ""},
                                {Word::bad_request, 0, ""},
                                {Word::error, 0, "no such word"},
                                {Word::value, 0, std::string(kMaxValue, 'x')}};
  std::string bytes;
  for (const auto& answer : all) bytes += to_text(answer);
  const std::size_t piece = GENERATE(1U, 5U, 1'000'000U);
  AnswerReader reader;
  std::vector<Answer> found;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    reader.feed(std::string_view{bytes}.substr(at, piece));
    for (;;) {
      auto next = reader.next();
      REQUIRE(next.has_value());
      if (!*next) break;
      found.push_back(std::move(**next));
    }
  }
  CHECK((found == all));
}

TEST_CASE("an agent that talks nonsense is not believed", "[common][socket]") {
  const std::string text = GENERATE("okay\n", "number\n", "number x\n", "value -1\n",
                                    "value 16777217\n", "ok 1\n", "value 1\nxx\n");
  AnswerReader reader;
  reader.feed(text);
  INFO(text);
  CHECK(reader.next().has_error());
}

TEST_CASE("the table survives odd names", "[common][socket]") {
  const std::vector<TableRow> table{{Rank{0}, 4, "a", "host a", ""},
                                    {Rank{4}, 8, "b\n", "", "10.0.0.2"}};
  const auto text = to_text(table);
  CHECK(text == "0 4 a host_a -\n4 8 b_ - 10.0.0.2\n");
  const auto read = parse_table(text);
  REQUIRE(read.has_value());
  CHECK((*read == std::vector<TableRow>{{Rank{0}, 4, "a", "host_a", ""},
                                        {Rank{4}, 8, "b_", "", "10.0.0.2"}}));
  CHECK(parse_table("")->empty());
  for (const char* wrong : {"0 4 a b c", "0 4 a b\n", "0 4 a b c d\n", "x 4 a b c\n"}) {
    INFO(wrong);
    CHECK(parse_table(wrong).has_error());
  }
}

TEST_CASE("the lost ranks survive odd words", "[common][socket]") {
  const std::vector<LostRank> lost{{Rank{3}, 4711, "killed by SIGKILL (out of memory)"},
                                   {Rank{4}, 0, "its node b\nwas lost"},
                                   {Rank{5}, 1, ""}};
  const auto text = to_text(lost);
  CHECK(text == "3 4711 killed by SIGKILL (out of memory)\n4 0 its node b was lost\n5 1 \n");
  const auto read = parse_lost(text);
  REQUIRE(read.has_value());
  REQUIRE(read->size() == 3);
  CHECK((read->at(0) == lost[0]));
  CHECK(read->at(1).how == "its node b was lost");
  CHECK(read->at(2).how.empty());
  CHECK(parse_lost("")->empty());
  for (const auto* nonsense : {"3 4711 x", "x 1 y\n", "3\n", "3 x\n", "\n"}) {
    INFO(nonsense);
    CHECK(parse_lost(nonsense).has_error());
  }
}
