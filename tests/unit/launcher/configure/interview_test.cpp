#include "launcher/configure/interview.hpp"

#include "launcher/configure/command.hpp"
#include "launcher/configure/script_askers.hpp"

#include <catch2/catch.hpp>

#include <deque>
#include <string>
#include <vector>

using namespace acc::configure;

namespace {

/// A person, played: what is typed in order, then Ctrl-C.
class PlayedAsker : public Asker {
 public:
  explicit PlayedAsker(std::deque<std::string> keys) : keys_{std::move(keys)} {}
  Reply ask(const Prompt& prompt) override {
    asked.emplace_back(prompt.question->id);
    if (keys_.empty()) return {Reply::Kind::cancelled};
    const auto typed = keys_.front();
    keys_.pop_front();
    if (typed == "<") return {Reply::Kind::back};
    if (typed == "?") return {Reply::Kind::explain};
    return {Reply::Kind::typed, typed};
  }
  void say(const std::string& text) override { said.push_back(text); }

  std::vector<std::string> asked;
  std::vector<std::string> said;

 private:
  std::deque<std::string> keys_;
};

List typed_list(const std::vector<std::string>& words) {
  List list;
  for (const auto& word : words) list.emplace_back(word);
  return list;
}

}  // namespace

SCENARIO("a person answers wrongly, asks, and goes back", "[configure][interview]") {
  Answers answers;
  GIVEN("a wrong answer, then a right one") {
    PlayedAsker person{{"", "multi-what", "multi-GPU"}};
    CHECK(interview(person, answers).end == Interview::End::cancelled);
    THEN("the question is asked again, behind what is valid") {
      CHECK(person.asked == std::vector<std::string>{"compute_environment", "machine_type",
                                                     "machine_type", "num_machines"});
      REQUIRE(person.said.size() == 1);
      CHECK(person.said[0].find("expected one of") != std::string::npos);
    }
  }
  GIVEN("a step back from the first question, and from a later one") {
    PlayedAsker person{{"<", "", "multi-GPU", "<", "NO"}};
    CHECK(interview(person, answers).end == Interview::End::cancelled);
    THEN("the later one forgets the answer before") {
      CHECK(person.said == std::vector<std::string>{"this is the first question"});
      CHECK(answers.distributed_type() == "NO");
      CHECK(person.asked.back() == "use_cpu");
    }
  }
  GIVEN("a doubtful answer, twice") {
    PlayedAsker person{{"", "multi-GPU", "0", "0"}};
    CHECK(interview(person, answers).end == Interview::End::cancelled);
    THEN("it is asked back once and then kept") {
      CHECK(person.said.size() == 1);
      CHECK(answers.integer("num_machines") == 0);
    }
  }
  GIVEN("an answer with which there is no config") {
    PlayedAsker person{{"", "multi-GPU", "", "", "", "", "", "", "1", "2"}};
    CHECK(interview(person, answers).end == Interview::End::cancelled);
    THEN("it is explained, and another one taken") {
      CHECK(person.said.size() == 1);
      CHECK(answers.integer("num_processes") == 2);
    }
  }
}

SCENARIO("answers from a list keep their places", "[configure][interview]") {
  Answers answers;
  GIVEN("a list that ends too early") {
    ListAsker list{typed_list({"", "NO"})};
    const auto done = interview(list, answers);
    CHECK(done.end == Interview::End::failed);
    CHECK(done.why.find("use_cpu") != std::string::npos);
  }
  GIVEN("a list with an answer too many") {
    ListAsker list{typed_list({"", "NO", "yes", "", "", "", "more"})};
    const auto done = interview(list, answers);
    CHECK(done.end == Interview::End::failed);
    CHECK(done.why.find("only 6 of the 7") != std::string::npos);
  }
}

SCENARIO("answers by name", "[configure][interview]") {
  Answers answers;
  GIVEN("names, one of them wrong and one not asked for") {
    NamedAsker named{{{"machine_type", Value{"MULTI_CPU"}},
                      {"num_procesess", Value{std::int64_t{4}}},
                      {"gpu_ids", Value{"0,1"}}}};
    const auto done = interview(named, answers);
    THEN("both are told at once") {
      CHECK(done.end == Interview::End::failed);
      CHECK(done.why.find("did you mean num_processes?") != std::string::npos);
      CHECK(done.why.find("gpu_ids was not asked for") != std::string::npos);
    }
  }
  GIVEN("a value as YAML reads it") {
    NamedAsker named{{{"use_cpu", Value{true}}, {"mixed_precision", Value{false}}}};
    CHECK(interview(named, answers).end == Interview::End::done);
    CHECK(answers.is_yes("use_cpu"));
    CHECK(answers.text("mixed_precision") == "no");
  }
  GIVEN("a wrong value") {
    NamedAsker named{{{"use_cpu", Value{"perhaps"}}}};
    const auto done = interview(named, answers);
    CHECK(done.end == Interview::End::failed);
    CHECK(done.why.starts_with("use_cpu"));
  }
}

TEST_CASE("acc-config's words, with all complaints together", "[configure][command]") {
  const auto read = [](std::vector<std::string> words) { return parse_command(words); };
  CHECK(read({}).verb.empty());
  CHECK(read({"default", "--mixed-precision=bf16"}).value("--mixed_precision") == "bf16");
  CHECK(read({"--config_file", "x.yaml"}).complaints.empty());
  CHECK(read({"check", "a.yaml", "--", "--num_processes", "4"}).words.size() == 2);
  CHECK(read({"--mixed_precision", "bf16"}).complaints.size() == 1);  // of another verb
  CHECK(read({"chek", "--frob"}).complaints.size() == 2);
  CHECK(read({"check", "a", "b"}).complaints.size() == 1);
  CHECK(read({"update", "a", "--config_file", "b"}).complaints.size() == 1);
  CHECK(read({"--config_file="}).complaints.size() == 1);
  CHECK(read({"update", "--", "x"}).complaints.size() == 1);
}
