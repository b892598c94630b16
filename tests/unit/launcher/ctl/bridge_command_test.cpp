#include "launcher/ctl/bridge_command.hpp"

#include <catch2/catch.hpp>

using namespace acc;
using namespace acc::ctl;
using Catch::Contains;
using Words = std::vector<std::string>;

TEST_CASE("a bridge reads what acc-launch --hosts writes for one host", "[ctl][bridge]") {
  Words words{"--socket=/run/acc/agent.sock",
              "--launch=hosts-x",
              "--nodes=3",
              "--node_rank=2",
              "--slots=4",
              "--secret",
              "--detach",
              "b",
              "--",
              "--nnodes=3",
              "train.py",
              "--here"};
  const auto other = parse_bridge_command(words);
  REQUIRE(other.has_value());
  CHECK(other->socket == "/run/acc/agent.sock");
  CHECK(other->wish.launch == "hosts-x");
  CHECK(other->wish.nodes == 3);
  CHECK(other->wish.node_rank == 2);
  CHECK(other->wish.slots == 4);
  CHECK(other->wish.has_secret);
  CHECK(other->wish.detaches);
  CHECK(other->wish.name == "b");
  CHECK(other->wish.node == "b");
  // Behind -- all words are the job's, also those that look like ours.
  CHECK(other->wish.words == Words{"--nnodes=3", "train.py", "--here"});

  words.insert(words.begin(), "--here");
  const auto here = parse_bridge_command(words);
  REQUIRE(here.has_value());
  CHECK(here->wish.name == "b");
  CHECK(here->wish.node.empty());
}

TEST_CASE("a bridge that attaches to a job needs no words", "[ctl][bridge]") {
  const Words words{"--socket=/s", "--job=hosts-x.1-abc", "--new", "--away", "--look", "b"};
  const auto attached = parse_bridge_command(words);
  REQUIRE(attached.has_value());
  CHECK_FALSE(attached->wish.slots);
  CHECK(attached->wish.job == "hosts-x.1-abc");
  CHECK(attached->wish.skips_old);
  CHECK(attached->wish.is_away);
  CHECK(attached->wish.only_looks);
}

TEST_CASE("a bridge refuses a word without a meaning, and a line that lacks one", "[ctl][bridge]") {
  const auto complaint = [](Words words) {
    const auto command = parse_bridge_command(words);
    return command ? std::string{} : command.error().what;
  };
  const Words whole{"--socket=/s", "--launch=x", "b", "--", "train.py"};
  CHECK(complaint(whole).empty());
  for (const auto* word : {"--sockets=/s", "--nodes=two", "--slots=", "c"}) {
    auto words = whole;
    words.insert(words.begin() + 3, word);
    CHECK_THAT(complaint(words), Contains(word) && Contains("has no meaning"));
  }
  for (std::size_t i = 0; i < 3; ++i) {
    auto words = whole;
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
    CHECK_THAT(complaint(words), Contains("not to be used by hand"));
  }
  CHECK_THAT(complaint({}), Contains("not to be used by hand"));
}
