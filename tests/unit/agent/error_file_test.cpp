#include "agent/error_file.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::agent;

TEST_CASE("what torch 1.13's @record writes is read", "[agent]") {
  const auto error = parse_error_file(
      R"({"message": {"message": "RuntimeError: boom", "extraInfo": {"py_callstack": "Traceback\n  x\n", "timestamp": "1"}}})");
  REQUIRE(error.has_value());
  CHECK(error->message == "RuntimeError: boom");
  CHECK(error->traceback == "Traceback\n  x\n");
}

TEST_CASE("a plain message is read too", "[agent]") {
  const auto error = parse_error_file(R"({"message": "boom", "timestamp": 1})");
  REQUIRE(error.has_value());
  CHECK(error->message == "boom");
}

TEST_CASE("an error whose text has many brackets was taken for deeply nested", "[agent]") {
  const auto error =
      parse_error_file(R"({"message": "cannot parse )" + std::string(100, '[') + "\"}");
  REQUIRE(error.has_value());
  CHECK(error->message == "cannot parse " + std::string(100, '['));
}

TEST_CASE("the first worker's error is handed on with its exit code, as torchrun does", "[agent]") {
  const std::string text =
      R"({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "T"}}})";
  CHECK(parse_error_file(text)->json == text);
  CHECK(
      with_error_code(text, -11) ==
      R"({"message":{"errorCode":-11,"extraInfo":{"py_callstack":"T"},"message":"ValueError: x"}})");
  CHECK(with_error_code(R"({"message": "boom"})", 1) == R"({"message": "boom"})");
  CHECK(with_error_code("no JSON", 1) == "no JSON");
}

TEST_CASE("the traceback of @record was lost if it named a file that isn't UTF-8", "[agent]") {
  const auto message = [](const std::string& text) {
    const auto error = parse_error_file(R"({"message": {"message": ")" + text +
                                        R"(", "extraInfo": {"py_callstack": "T"}}})");
    return error ? error->message : error.error().what;
  };
  CHECK(message(R"(OSError: caf\udce9.txt)") == "OSError: caf\xEF\xBF\xBD.txt");
  CHECK(message(R"(\uD83d)") == "\xEF\xBF\xBD");
  CHECK(message(R"(\ud83d\ud83d\ude00)") == "\xEF\xBF\xBD\xF0\x9F\x98\x80");
  CHECK(message(R"(\ud83d\u0041)") ==
        "\xEF\xBF\xBD"
        "A");
  CHECK(message(R"(\ud83d\\ude00)") == "\xEF\xBF\xBD\\ude00");
  CHECK(message(R"(C:\\udce9 \uDE00)") == "C:\\udce9 \xEF\xBF\xBD");
  CHECK(message(R"(\ud83d\u)") == "error file: not a JSON object");
  const auto error = parse_error_file(R"({"message": {"message": "\udce9"}})");
  REQUIRE(error.has_value());
  CHECK(with_error_code(error->json, 3) ==
        "{\"message\":{\"errorCode\":3,\"message\":\"\xEF\xBF\xBD\"}}");
}

TEST_CASE("the traceback of an exception with a large tensor in it was lost", "[agent]") {
  const std::string large(3'000'000, 'x');
  const std::string text = R"({"message": {"message": "ValueError: )" + large +
                           R"( end", "extraInfo": {"py_callstack": "Traceback\n)" + large +
                           R"(\nValueError"}}})";
  const auto error = parse_error_file(text);
  REQUIRE(error.has_value());
  CHECK(error->json == text);
  CHECK(error->message.size() < 3 * kKeptOfError);
  CHECK(error->message.starts_with("ValueError: xxx"));
  CHECK(error->message.ends_with("xxx end"));
  CHECK(error->traceback.starts_with("Traceback\nxxx"));
  CHECK(error->traceback.ends_with("xxx\nValueError"));
  CHECK(error->traceback.find("x\n… (2737877 bytes) …\nx") != std::string::npos);
  const auto wide = parse_error_file(R"({"message": ")" + std::string(1, 'a') + [] {
    std::string accents;
    for (int i = 0; i < 400'000; ++i) accents += "é";
    return accents;
  }() + "\"}");
  REQUIRE(wide.has_value());
  CHECK(wide->message.find("é\n… (") != std::string::npos);
  CHECK(wide->message.find(" bytes) …\né") != std::string::npos);
}

TEST_CASE("any other bytes are an error, never an exception", "[agent]") {
  for (const std::string& text :
       {std::string{}, std::string{"{"}, std::string{"null"}, std::string{"[]"}, std::string{"{}"},
        std::string{R"({"message": 3})"}, std::string{R"({"message": {}})"},
        std::string{R"({"message": {"message": 1, "extraInfo": []}})"},
        std::string{"\xff\xfe\0", 3}, std::string(100'000, '['),
        std::string(kMaxErrorFile + 1, ' ')}) {
    CHECK(parse_error_file(text).has_error());
  }
}

TEST_CASE("a worker that wrote no error file is not an accident", "[agent]") {
  const auto error = read_error_file("/nonexistent/error.json");
  REQUIRE(error.has_error());
  CHECK(error.error().code == Errc::not_found);
}
