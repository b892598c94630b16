#include "runtime/net/gather.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <future>
#include <string>
#include <vector>

using namespace acc::runtime;
using namespace std::chrono_literals;

namespace {

Gather::Options party(int number, int size, std::chrono::milliseconds limit) {
  return {"k", number, size, std::chrono::steady_clock::now() + limit,
          [size, limit](const Gather::Texts& sent) {
            return not_joined(sent, size, "joined", limit,
                              [](int rank, const std::string&) { return std::to_string(rank); });
          }};
}

/// What `part` returns on a thread for each of `parties`, or its error.
std::vector<std::string> on_parties(
    const std::vector<int>& parties, int size, std::chrono::milliseconds limit,
    const std::function<std::string(Gather& gather, int number)>& part) {
  const auto store = make_memory_store();
  std::vector<std::future<std::string>> said;
  for (const int number : parties) {
    said.push_back(std::async(std::launch::async, [&, number]() -> std::string {
      Gather gather{*store, party(number, size, limit)};
      try {
        return part(gather, number);
      } catch (const Error& error) {
        return std::string{to_string(error.code())} + ": " + error.what();
      }
    }));
  }
  std::vector<std::string> results;
  for (auto& one : said) results.push_back(one.get());
  return results;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const auto& text : texts) all += "[" + text + "]";
  return all;
}

}  // namespace

TEST_CASE("all parties get all texts in their order", "[net]") {
  const auto said = on_parties({2, 0, 1}, 3, 20s, [](Gather& gather, int number) {
    return joined(gather.all(std::string(static_cast<std::size_t>(number), 'x')));
  });
  CHECK(said == std::vector<std::string>(3, "[][x][xx]"));
}

TEST_CASE("all parties get the answer of party 0", "[net]") {
  const auto said = on_parties({0, 1}, 2, 20s, [](Gather& gather, int number) {
    return gather.run(std::to_string(number),
                      {{}, [](const Gather::Texts& texts) { return texts.at(1) + texts.at(0); }});
  });
  CHECK(said == std::vector<std::string>(2, "10"));
}

TEST_CASE("a party that fails ends it for all while another is late", "[net]") {
  const int failed = GENERATE(0, 1);
  const auto said = on_parties({0, 1, 2}, 4, 60s, [&](Gather& gather, int number) -> std::string {
    if (number != failed) return joined(gather.all("text"));
    gather.report_failure({ErrorCode::system, "no descriptors"});
    return "system: no descriptors";
  });
  CHECK(said == std::vector<std::string>(3, "system: no descriptors"));
}

TEST_CASE("an error of party 0's own reaches all", "[net]") {
  const bool while_checking = GENERATE(true, false);
  const auto refuse = [] { throw Error{ErrorCode::mismatch, "they differ"}; };
  const auto said = on_parties({0, 1, 2}, 3, 60s, [&](Gather& gather, int) {
    const auto check = [&](int number, const std::string&) {
      if (while_checking && number == 1) refuse();
    };
    const auto answer = [&](const Gather::Texts&) {
      refuse();
      return std::string{};
    };
    return gather.run("text", {check, answer});
  });
  CHECK(said == std::vector<std::string>(3, "mismatch: they differ"));
}

TEST_CASE("each party says which are missing", "[net]") {
  const auto part = [](Gather& gather, int) { return joined(gather.all("text")); };
  CHECK(on_parties({0, 2}, 4, 100ms, part) ==
        std::vector<std::string>(
            2, "timed_out: ranks 1,3 of 4 have not joined after 100 ms; joined: 0, 2"));
  CHECK(on_parties({1}, 2, 100ms, part) ==
        std::vector<std::string>{"timed_out: rank 0 of 2 has not joined after 100 ms; joined: 1"});
}

TEST_CASE("a text of two parties with one number is refused", "[net]") {
  const auto said =
      on_parties({0, 1, 1}, 3, 20s, [](Gather& gather, int) { return joined(gather.all("text")); });
  CHECK_THAT(said[0], Catch::StartsWith("invalid_argument: "));
  CHECK(said == std::vector<std::string>(3, said[0]));
}

TEST_CASE("party 0 waits until the others have read an error", "[net]") {
  std::atomic<bool> has_read = false;
  const auto said = on_parties({0, 1}, 2, 20s, [&](Gather& gather, int number) -> std::string {
    try {
      (void)gather.run("text", {{}, [](const Gather::Texts&) -> std::string {
                                  throw Error{ErrorCode::system, "no"};
                                }});
      return "no error";
    } catch (const Error&) {
      if (number == 1) has_read = true;
      gather.await_readers();
      return has_read ? "read" : "not read";
    }
  });
  CHECK(said == std::vector<std::string>(2, "read"));
}
