#include "launcher/script_check.hpp"

#include "common/program_path.hpp"
#include "common/text.hpp"
#include "launcher/habits.hpp"
#include "launcher/key_table.hpp"
#include "launcher/spellings.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace acc::launcher {

using namespace literals;

namespace {

// Words for the script of a config file are an easy mistake.
std::string instead_of(const JobSpec& spec) {
  if (spec.script_replaced.empty()) return {};
  return "; the first word that is no flag is the program, and took the place of " +
         printable(spec.script_replaced) +
         " (further arguments of that one: script_args in the file)";
}

/// "python", "/usr/bin/python3.11"
bool is_interpreter(std::string_view script) {
  const auto name = script.substr(script.rfind('/') + 1);
  constexpr std::string_view kPython = "python";
  return name.starts_with(kPython) &&
         name.find_first_not_of("0123456789.", kPython.size()) == std::string_view::npos;
}

/// A program and its arguments, "train.py --lr 3", in one word.
bool is_quoted_line(const std::string& script) {
  const auto first = script.substr(0, script.find(' '));
  std::error_code failed;
  const bool is_file = std::filesystem::is_regular_file(first, failed);
  return first != script && (first.ends_with(".py") || is_file || is_interpreter(first));
}

/// A flag and its value, "--nproc_per_node 2", in one word.
bool is_quoted_flag(std::string_view script) {
  return script.starts_with('-') && script.find(' ') != std::string_view::npos;
}

/// "-m" of `acc-launch -- -m package.train`, "-c", "-" for a script on stdin: Python's own flags,
/// which argparse takes as the script, too.
bool is_for_interpreter(const JobSpec& spec) {
  return spec.script.starts_with('-') && !is_quoted_flag(spec.script) &&
         !spec.flag("no_python"_key);
}

/// PYTHON_EXEC with arguments of the interpreter, "python3 -u".
std::string with_arguments(const Environment& environment) {
  const auto chosen = variable(environment, "PYTHON_EXEC");
  const auto first = chosen.substr(0, chosen.find(' '));
  if (first == chosen || ::access(std::string{chosen}.c_str(), F_OK) == 0) return {};
  return std::string{chosen};
}

constexpr std::string_view kOfData[] = {".yaml", ".yml", ".json"};

/// A file in the same folder with nearly that name; empty: there is none.
std::string file_meant_by(const std::string& script) {
  namespace fs = std::filesystem;
  constexpr std::size_t kMost = 2000;  // a folder of data may hold millions
  const fs::path path{script};
  std::vector<std::string> names;
  std::error_code failed;
  const auto folder = path.has_parent_path() ? path.parent_path() : fs::path{"."};
  std::size_t seen = 0;
  for (fs::directory_iterator entry{folder, failed}, end; !failed && entry != end && seen < kMost;
       entry.increment(failed), ++seen) {
    std::error_code unknown;
    if (entry->is_regular_file(unknown)) names.push_back(entry->path().filename().native());
  }
  const auto name = path.filename().native();
  const auto with_ending = name + ".py";
  const std::vector<std::string_view> candidates{names.begin(), names.end()};
  const bool lacks_ending = std::ranges::find(names, with_ending) != names.end();
  const auto meant = lacks_ending ? std::string_view{with_ending} : nearest(name, candidates);
  return meant.empty() ? "" : (path.parent_path() / meant).native();
}

/// What a missing script is, where that can be seen.
std::string kind_of_missing(const std::string& script) {
  if (is_interpreter(script))
    return " (acc-launch starts Python by itself: leave the interpreter out)";
  if (is_quoted_flag(script))
    return " (quotes made one word of the flag and its value: leave the quotes out)";
  if (is_quoted_line(script) && is_interpreter(script.substr(0, script.find(' '))))
    return " (quotes made one word of a whole command: leave the quotes out, and the interpreter, "
           "which acc-launch starts by itself)";
  if (is_quoted_line(script))
    return " (quotes made one word of the program and its arguments: leave the quotes out)";
  constexpr std::string_view kDashes[] = {"\u2010", "\u2011", "\u2012", "\u2013",
                                          "\u2014", "\u2015", "\u2212"};
  for (const auto dash : kDashes)
    if (script.starts_with(dash))
      return " (its first character is a dash, as a text editor makes it of two hyphens: type --)";
  std::error_code failed;
  const auto target = std::filesystem::read_symlink(script, failed);
  if (!failed) return " (it is a link to '" + printable(target.native()) + "', which isn't there)";
  const auto meant = file_meant_by(script);
  return meant.empty() ? "" : " (did you mean " + printable(meant) + "?)";
}

bool is_data_file(const std::string& script) {
  return std::ranges::any_of(kOfData, [&](auto ending) { return script.ends_with(ending); });
}

/// Flags that say how many workers start, and where: hardly ever a script's own.
constexpr Key kOfLaunchers[] = {
    "num_processes"_key, "nproc_per_node"_key,  "num_machines"_key, "nnodes"_key,
    "machine_rank"_key,  "main_process_ip"_key, "hosts"_key,        "main_process_port"_key,
    "rdzv_endpoint"_key, "max_restarts"_key,    "multi_gpu"_key,    "config_file"_key,
    "standalone"_key,
};

/// "pkg/train" as Python names it, "pkg.train"; empty: it can't, from here.
std::string module_of(const std::string& path) {
  auto module = path;
  std::ranges::replace(module, '/', '.');
  const bool is_name = !module.starts_with('.') && module.find("..") == std::string::npos;
  return is_name ? module : std::string{};
}

/// -m with the name of a file. A module whose last part is "py" is a file py.py, or a folder.
agent::ScriptProblem check_module(const std::string& name) {
  std::error_code failed;
  constexpr std::string_view kEnding = ".py";
  if (!name.ends_with(kEnding) || !std::filesystem::is_regular_file(name, failed)) return {};
  const auto path = name.substr(0, name.size() - kEnding.size());
  if (std::filesystem::exists(path, failed)) return {};
  const auto module = module_of(path);
  return {ENOENT, "cannot start '" + printable(name) + "' as a module: -m takes a module's name" +
                      (module.empty() ? "" : " (" + printable(module) + ")") +
                      "; for the file leave -m out"};
}

/// Whether a Python file has this word, as one that reads the flag itself does.
bool mentions(std::string_view text, std::string_view flag) {
  std::string name{flag.substr(2)};
  std::ranges::replace(name, '-', '_');
  if (text.find(name) != std::string_view::npos) return true;
  std::ranges::replace(name, '_', '-');
  return text.find(name) != std::string_view::npos;
}

}  // namespace

ScriptKind script_kind_of(const JobSpec& spec) {
  return spec.flag("module"_key) ? ScriptKind::python : script_kind(spec.script);
}

Complaints check_script_word(const CommandLine& line, const JobSpec& spec) {
  if (!line.script_is_certain) return {};
  if (spec.script.empty()) {
    // Behind a flag with a bad value it may have been taken for the value.
    if (!line.complaints.empty() || !spec.can_judge({"script"_key})) return {};
    return {{Errc::bad_usage,
             "the following arguments are required: SCRIPT, the program to run "
             "(or `script:` in the config file)"}};
  }
  const auto hint = command_hint(spec.script);
  // A folder of that name ("test", "config") is a script only if Python could begin with it.
  const bool is_file =
      ::access(spec.script.c_str(), F_OK) == 0 && why_not_for_python(spec.script) != EISDIR;
  if (hint.empty() || is_file || spec.flag("module"_key) || spec.flag("no_python"_key)) return {};
  return {{Errc::bad_usage,
           "there is no script '" + printable(spec.script) + "': " + std::string{hint}}};
}

std::vector<std::string> notes_about_arguments(const CommandLine& line, const JobSpec& spec) {
  if (!line.script || spec.flag("module"_key) || spec.flag("no_python"_key)) return {};
  const Spellings spellings;
  std::vector<std::string> notes;
  std::string text;
  for (const auto& word : line.script_args) {
    if (word == "--") break;
    const auto flag = word.substr(0, word.find('='));
    const auto* row = flag.starts_with("--") ? spellings.find(flag) : nullptr;
    if (row == nullptr || std::ranges::find(kOfLaunchers, key_of(*row)) == std::end(kOfLaunchers) ||
        line.given(key_of(*row)) != nullptr)
      continue;
    constexpr std::size_t kEnough = 1 << 20;
    if (text.empty()) text = beginning_of_script(*line.script, kEnough);
    if (text.empty() || mentions(text, flag)) continue;
    notes.push_back(flag +
                    " behind the script is given to the script; one for acc-launch stands "
                    "in front of it");
  }
  return notes;
}

std::string note_about_interpreter(const JobSpec& spec, const std::string& interpreter) {
  namespace fs = std::filesystem;
  if (spec.flag("module"_key) || spec.flag("no_python"_key) || spec.script.ends_with(".py"))
    return {};
  const auto named = interpreter_in_script(spec.script);
  if (!named.starts_with('/') || script_kind(spec.script) != ScriptKind::python) return {};
  // A virtual environment is known by its folder: the program itself is a link to the system's.
  const auto folder = fs::path{named}.parent_path();
  std::error_code failed;
  if (!is_executable_file(named) || !fs::exists(folder.parent_path() / "pyvenv.cfg", failed) ||
      fs::equivalent(folder, fs::path{interpreter}.parent_path(), failed))
    return {};
  return in_quotes(spec.script) + " is of the environment of " + in_quotes(named) +
         ", and runs with " + printable(interpreter) +
         ": --no_python runs it as its first line says, PYTHON_EXEC chooses a Python";
}

agent::ScriptProblem check_script_file(const JobSpec& spec, const Environment& environment) {
  if (spec.flag("module"_key)) return check_module(spec.script);
  const auto kind = script_kind_of(spec);
  if (kind == ScriptKind::missing && is_for_interpreter(spec)) return {};
  const bool on_path = spec.flag("no_python"_key) && spec.script.find('/') == std::string::npos;
  if (on_path && !find_program(spec.script, environment).empty()) return {};
  if (on_path || kind == ScriptKind::missing) {
    const bool found = ::access(spec.script.c_str(), F_OK) == 0;
    const int reason = on_path || found ? ENOENT : errno;  // EACCES: a folder on the way is closed
    const bool word = !on_path && !found && spec.script.find('/') == std::string::npos;
    const bool is_program =
        word && !is_interpreter(spec.script) && !find_program(spec.script, environment).empty();
    const auto hint = is_program ? " (a program on PATH? add --no_python)"
                      : on_path && found
                          ? " (programs without a slash are looked for on PATH: for the one in "
                            "this folder write ./" +
                                printable(spec.script) + ")"
                          : kind_of_missing(spec.script);
    return {reason, system_error(reason, "cannot start '" + printable(spec.script) + "'").what +
                        hint + instead_of(spec)};
  }
  const auto cannot = [&](int reason, const std::string& what) {
    return agent::ScriptProblem{reason, "cannot start '" + printable(spec.script) + "': " + what};
  };
  const bool direct = spec.flag("no_python"_key) || kind == ScriptKind::not_executable;
  if (direct) {
    std::error_code failed;
    if (std::filesystem::is_directory(spec.script, failed)) return cannot(EISDIR, "it is a folder");
    if (::access(spec.script.c_str(), X_OK) == 0) return {};
    return cannot(EACCES, "Permission denied (chmod +x it?)");
  }
  if (kind != ScriptKind::python) return {};
  const int reason = why_not_for_python(spec.script);
  if (const auto python = with_arguments(environment); reason == 0 && !python.empty())
    return {ENOENT, "PYTHON_EXEC is " + in_quotes(python) +
                        ": it names the interpreter alone, without arguments (for -u: "
                        "PYTHONUNBUFFERED=1)"};
  if (reason == 0 && is_data_file(spec.script))
    return cannot(ENOEXEC,
                  "it is no program; a config file goes behind --config_file, in front of "
                  "the script");
  if (reason == 0) return {};
  if (reason == EISDIR)
    return cannot(reason, "it is a folder without __main__.py, with which Python would begin");
  const auto* hint = reason == EACCES ? " (it can't be read: chmod +r it?)" : "";
  return cannot(reason, std::strerror(reason) + std::string{hint});
}

}  // namespace acc::launcher
