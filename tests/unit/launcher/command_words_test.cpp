#include "launcher/command_words.hpp"

#include <catch2/catch.hpp>

namespace acc::launcher {

using Typed = std::vector<std::string>;

static Dispatch of(const Typed& words) { return dispatch(words); }

TEST_CASE("the words of accelerate lead to our programs", "[launcher][words]") {
  const auto launch = of({"launch", "--num_processes", "2", "x.py", "--help"});
  CHECK(launch.program == "acc-launch");
  CHECK(launch.words == Typed{"--num_processes", "2", "x.py", "--help"});
  const auto fsdp = of({"to-fsdp2", "old.yaml"});
  CHECK(fsdp.program == "acc-config");
  CHECK(fsdp.words == Typed{"convert", "--to", "fsdp2", "old.yaml"});
  CHECK(of({"to_fsdp2"}).program == "acc-config");
  for (const auto& one : command_words()) {
    CHECK(of({std::string{one.word}}).is_complaint == one.program.empty());
    const bool is_shown = of({"--help"}).text.find(one.word) != std::string::npos;
    CHECK(is_shown != one.program.empty());
  }
}

TEST_CASE("a word that nobody has is answered with the one that was meant", "[launcher][words]") {
  CHECK(of({"lauch"}).text == "unknown word 'lauch' (did you mean launch?)");
  CHECK(of({"train.py"}).text == "unknown word 'train.py': to run a script, acc launch train.py …");
  CHECK(of({"\x1b[2J"}).text.find('\x1b') == std::string::npos);
  CHECK(of({"tpu-config"}).text.find("TPU pods aren't supported") != std::string::npos);
  CHECK(of({}).text.starts_with("usage: acc WORD"));
  CHECK(of({"--version"}).text.starts_with("acc "));
}

TEST_CASE("each shell is offered every word that has a program", "[launcher][words]") {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const auto text = of({"--completion", shell}).text;
    for (const auto& one : command_words()) {
      INFO(shell << " " << one.word);
      CHECK((text.find(one.word) != std::string::npos) != one.program.empty());
    }
    CHECK(text.find("overwrite") != std::string::npos);
  }
  CHECK(of({"--completion", "tcsh"}).is_complaint);
}

TEST_CASE("what reads models is behind its words", "[launcher][words]") {
  const auto merge = of({"merge-weights", "a", "b"});
  CHECK(merge.program == "acc-weights");
  CHECK(merge.words == Typed{"merge-weights", "a", "b"});
  CHECK(of({"estimate_memory", "a"}).words == Typed{"estimate-memory", "a"});
}

}  // namespace acc::launcher
