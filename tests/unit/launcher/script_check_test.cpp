#include "launcher/script_check.hpp"

#include "launcher/host_facts.hpp"
#include "tests/unit/launcher/trial.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace acc;
using namespace acc::launcher;
using Catch::Contains;
using Words = std::vector<std::string>;
namespace fs = std::filesystem;

namespace {

struct ScriptTrial {
  fs::path folder;
  ScriptTrial() {
    char name[] = "/tmp/script-check-test-XXXXXX";
    folder = ::mkdtemp(name);
  }
  ~ScriptTrial() { fs::remove_all(folder); }
  ScriptTrial(const ScriptTrial&) = delete;
  ScriptTrial& operator=(const ScriptTrial&) = delete;

  [[nodiscard]] std::string path(const std::string& name) const { return folder / name; }
  void file(const std::string& name, mode_t mode) const {
    std::ofstream{folder / name} << "#!/bin/sh\n";
    ::chmod(path(name).c_str(), mode);
  }
  [[nodiscard]] static JobSpec spec(const Words& words) {
    const auto facts = unknown_facts();
    return merge(parse_command_line(words), std::nullopt, *facts, {}).spec;
  }
  [[nodiscard]] agent::ScriptProblem problem(const Words& words) const {
    return check_script_file(spec(words), {{"PATH", folder.native()}});
  }
  [[nodiscard]] static std::string complaint(const Words& words) {
    const auto line = parse_command_line(words);
    const auto complaints = check_script_word(line, spec(words));
    return complaints.empty() ? std::string{} : complaints.front().what;
  }
};

}  // namespace

TEST_CASE("a missing script is told with what it probably is", "[launcher][script]") {
  ScriptTrial trial;
  const auto missing = trial.problem({trial.path("none.py")});
  CHECK(missing.errnum == ENOENT);
  CHECK_THAT(missing.what, Contains("none.py': No such file"));
  CHECK_THAT(trial.problem({"\u2013lr"}).what, Contains("its first character is a dash"));
  fs::create_symlink("gone.py", trial.folder / "link.py");
  CHECK_THAT(trial.problem({trial.path("link.py")}).what, Contains("it is a link to 'gone.py'"));
  trial.file("tool", 0755);
  CHECK_THAT(trial.problem({"tool"}).what, Contains("add --no_python"));
  CHECK(trial.problem({"--no_python", "tool"}).errnum == 0);
}

TEST_CASE("flags of Python in the script's place were a missing file", "[launcher][script]") {
  ScriptTrial trial;
  CHECK(trial.problem({"--", "-m", "package.train"}).errnum == 0);
  CHECK(trial.problem({"--", "-c", "print(1)"}).errnum == 0);
  CHECK(trial.problem({"-"}).errnum == 0);
  CHECK(trial.problem({"--no_python", "--", "-m"}).errnum == ENOENT);
  CHECK_THAT(trial.problem({"--", "--nproc_per_node 2"}).what, Contains("leave the quotes out"));
}

TEST_CASE("quotes around the script and its arguments were a missing file and no more",
          "[launcher][script]") {
  ScriptTrial trial;
  for (const auto& script : {std::string{"train.py --lr 3"}, trial.path("tool") + " x"}) {
    trial.file("tool", 0755);
    const auto problem = trial.problem({"--nproc_per_node", "2", script});
    CHECK(problem.errnum == ENOENT);
    CHECK_THAT(problem.what, Contains("quotes made one word of the program and its arguments"));
  }
  CHECK_THAT(trial.problem({"no such file"}).what, !Contains("quotes"));
  for (const auto* line : {"python train.py", "/usr/bin/python3 -u train.py"})
    CHECK_THAT(trial.problem({line}).what, Contains("leave the quotes out, and the interpreter"));
}

TEST_CASE("a file name behind -m was left to Python on each rank", "[launcher][script]") {
  ScriptTrial trial;
  trial.file("train.py", 0644);
  const auto problem = trial.problem({"-m", trial.path("train.py")});
  CHECK(problem.errnum == ENOENT);
  CHECK_THAT(problem.what, Contains("for the file leave -m out"));
  CHECK(trial.problem({"-m", trial.path("none.py")}).errnum == 0);  // Python's own words say it
  const auto far = trial.problem({"-m", trial.path("./train.py")}).what;
  CHECK_THAT(far, Contains("for the file leave -m out") && !Contains(".."));
  fs::create_directory(trial.folder / "train");                     // it may have a module "py"
  CHECK(trial.problem({"-m", trial.path("train.py")}).errnum == 0);
}

TEST_CASE("an interpreter in front of the script was to be run with --no_python",
          "[launcher][script]") {
  ScriptTrial trial;
  trial.file("python3", 0755);
  for (const auto* name : {"python", "python3", "python3.11", "/no/such/python3"})
    CHECK_THAT(trial.problem({name, "train.py"}).what,
               Contains("acc-launch starts Python by itself: leave the interpreter out"));
  CHECK_THAT(trial.problem({"pythonic"}).what, !Contains("interpreter"));
}

TEST_CASE("another launcher in front of the script was a missing file", "[launcher][script]") {
  CHECK_THAT(ScriptTrial::complaint({"accelerate", "launch", "train.py"}),
             Contains("acc-launch takes the place of `accelerate launch`: leave both words out"));
  CHECK_THAT(ScriptTrial::complaint({"torchrun", "--nproc_per_node", "2", "train.py"}),
             Contains("acc-launch takes its place, with the same flags: leave the word out"));
}

TEST_CASE("mpirun and srun behind acc-launch were to be run with --no_python",
          "[launcher][script]") {
  for (const auto* name : {"mpirun", "mpiexec", "orterun"})
    CHECK_THAT(ScriptTrial::complaint({name, "-np", "2", "train.py"}),
               Contains("acc-launch --num_processes N PROGRAM"));
  CHECK_THAT(ScriptTrial::complaint({"srun", "train.py"}), Contains("in front of acc-launch"));
  CHECK(ScriptTrial::complaint({"--no_python", "mpirun", "train.py"}).empty());
}

TEST_CASE("a flag and its value in quotes were a missing script and no more",
          "[launcher][script]") {
  CHECK_THAT(ScriptTrial{}.problem({"--nproc_per_node 2", "train.py"}).what,
             Contains("quotes made one word of the flag and its value"));
}

TEST_CASE("PYTHON_EXEC with arguments was told as a missing program", "[launcher][script]") {
  ScriptTrial trial;
  trial.file("train.py", 0644);
  trial.file("my python", 0755);
  const auto what = [&](const std::string& python) {
    return check_script_file(ScriptTrial::spec({trial.path("train.py")}),
                             {{"PATH", ""}, {"PYTHON_EXEC", python}})
        .what;
  };
  CHECK_THAT(what("/usr/bin/python3 -u"), Contains("names the interpreter alone"));
  CHECK(what(trial.path("my python")).empty());
  CHECK(what("/usr/bin/python3").empty());
}

TEST_CASE("the flag --standalone behind the script had no effect and no note",
          "[launcher][script]") {
  ScriptTrial trial;
  trial.file("train.py", 0644);
  const Words words{trial.path("train.py"), "--standalone"};
  const auto notes = notes_about_arguments(parse_command_line(words), ScriptTrial::spec(words));
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes.front(), Contains("--standalone behind the script"));
}

TEST_CASE("a console script of another environment ran with a Python that lacks its modules",
          "[launcher][script]") {
  const ScriptTrial trial;
  const auto environment = [&](const std::string& name) {
    fs::create_directories(trial.path(name + "/bin"));
    std::ofstream{trial.path(name + "/pyvenv.cfg")} << "home = /usr/bin\n";
    const auto python = trial.path(name + "/bin/python");
    trial.file(name + "/bin/python", 0755);
    return python;
  };
  const auto theirs = environment("theirs");
  const auto ours = environment("ours");
  const auto note = [&](const std::string& first_line, const Words& flags = {},
                        const std::string& name = "tool") {
    std::ofstream{trial.path(name)} << first_line << "\nimport sys\n";
    Words words = flags;
    words.push_back(trial.path(name));
    return note_about_interpreter(ScriptTrial::spec(words), ours);
  };
  CHECK(note("#!" + theirs) == "'" + trial.path("tool") + "' is of the environment of '" + theirs +
                                   "', and runs with " + ours +
                                   ": --no_python runs it as its first line says, PYTHON_EXEC "
                                   "chooses a Python");
  CHECK(!note("#! " + theirs + " -E").empty());
  CHECK(note("#!" + ours).empty());
  CHECK(note("#!" + trial.path("ours/bin/../bin/python")).empty());
  CHECK(note("#!/usr/bin/env python3").empty());
  CHECK(note("#!/usr/bin/python3").empty());  // of the system, whatever environment is active
  CHECK(note("#!" + trial.path("gone/bin/python")).empty());
  CHECK(note("import os").empty());
  CHECK(note("#!" + theirs, {"--no_python"}).empty());
  CHECK(note("#!" + theirs, {"-m"}).empty());
  CHECK(note("#!" + theirs, {}, "tool.py").empty());  // the name says that it is Python's
}

TEST_CASE("a script that can't be run is told with the reason of exec", "[launcher][script]") {
  ScriptTrial trial;
  trial.file("plain", 0644);
  const auto plain = trial.problem({"--no_python", trial.path("plain")});
  CHECK(plain.errnum == EACCES);
  CHECK_THAT(plain.what, Contains("chmod +x"));
  fs::create_directory(trial.folder / "package");
  CHECK(trial.problem({"--no_python", trial.path("package")}).errnum == EISDIR);
  CHECK_THAT(trial.problem({trial.path("package")}).what, Contains("without __main__.py"));
  trial.file("package/__main__.py", 0644);
  CHECK(trial.problem({trial.path("package")}).errnum == 0);
  CHECK(trial.problem({"--module", "no.such.module"}).errnum == 0);  // where it lies Python knows
}

TEST_CASE("a line needs a script, and a command of accelerate is none", "[launcher][script]") {
  CHECK_THAT(ScriptTrial::complaint({}), Contains("are required: SCRIPT"));
  // The value may have been meant for the flag before it.
  CHECK(ScriptTrial::complaint({"--num_processes"}).empty());
  CHECK_THAT(ScriptTrial::complaint({"launch", "train.py"}), Contains("there is no script"));
  CHECK(ScriptTrial::complaint({"--module", "launch"}).empty());
  CHECK(ScriptTrial::complaint({"train.py"}).empty());
}

TEST_CASE("a misspelled script was told as missing, not which file was meant",
          "[launcher][script]") {
  ScriptTrial trial;
  trial.file("train.py", 0644);
  CHECK_THAT(trial.problem({trial.path("trian.py")}).what,
             Contains("(did you mean " + trial.path("train.py") + "?)"));
  CHECK_THAT(trial.problem({trial.path("train")}).what,
             Contains("(did you mean " + trial.path("train.py") + "?)"));
  CHECK_THAT(trial.problem({trial.path("evaluate.py")}).what, !Contains("did you mean"));
  CHECK_THAT(trial.problem({trial.path("no/train.py")}).what, !Contains("did you mean"));
}

TEST_CASE("a misspelled script was looked for among all of a million folders of data",
          "[launcher][script]") {
  ScriptTrial trial;
  const std::vector<std::string> names{"train",    "evaluate",  "convert",   "prepare",
                                       "finetune", "benchmark", "inference", "download"};
  for (const auto& name : names) trial.file(name + ".py", 0644);
  for (int i = 0; i < 8000; ++i)
    std::filesystem::create_directory(trial.folder / std::to_string(i));
  // No order of entries is promised: one of those that stand behind the first 2000.
  std::string late;
  int place = 0;
  for (const auto& entry : std::filesystem::directory_iterator{trial.folder})
    if (++place > 2000 && entry.is_regular_file()) late = entry.path().stem().native();
  if (late.empty()) {
    WARN("SKIPPED: this file system lists files first");
    return;
  }
  CHECK_THAT(trial.problem({trial.path(late)}).what, !Contains("did you mean"));
}

TEST_CASE("a config file in the place of the script was run by Python", "[launcher][script]") {
  ScriptTrial trial;
  std::ofstream{trial.folder / "cfg.yaml"} << "distributed_type: MULTI_CPU\n";
  const auto problem = trial.problem({trial.path("cfg.yaml"), "train.py"});
  CHECK(problem.errnum == ENOEXEC);
  CHECK_THAT(problem.what, Contains("a config file goes behind --config_file"));
  trial.file("run.yaml", 0755);  // a program by its first line
  CHECK(trial.problem({trial.path("run.yaml")}).errnum == 0);
}

TEST_CASE("a number of workers behind the script started one process without a word",
          "[launcher][script]") {
  ScriptTrial trial;
  const auto notes = [&](Words words, const std::string& text) {
    std::ofstream{trial.folder / "train.py"} << text;
    return notes_about_arguments(parse_command_line(words), ScriptTrial::spec(words));
  };
  const auto script = trial.path("train.py");
  const auto found =
      notes({script, "--num-processes", "2", "--lr=3", "--nnodes=2"}, "import sys\n");
  REQUIRE(found.size() == 2);
  CHECK(found[0] ==
        "--num-processes behind the script is given to the script; one for acc-launch stands in "
        "front of it");
  CHECK_THAT(found[1], Contains("--nnodes behind"));
  // The script's own, ours as well, or said to be the script's.
  CHECK(notes({script, "--num_processes", "2"}, "add_argument('--num_processes')\n").empty());
  CHECK(notes({script, "--num-processes", "2"}, "args.num_processes\n").empty());
  CHECK(notes({"--num_processes", "2", script, "--num_processes", "4"}, "import sys\n").empty());
  CHECK(notes({script, "--lr", "3", "--mixed_precision", "fp16"}, "import sys\n").empty());
  CHECK(notes({script, "run", "--", "--num_processes", "2"}, "import sys\n").empty());
  CHECK(notes({"-m", "train", "--num_processes", "2"}, "import sys\n").empty());
}
