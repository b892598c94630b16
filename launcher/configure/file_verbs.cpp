#include "launcher/configure/file_verbs.hpp"

#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "launcher/cli.hpp"
#include "launcher/configure/config_map.hpp"
#include "launcher/configure/config_text.hpp"
#include "launcher/configure/host_view.hpp"
#include "launcher/configure/messages.hpp"
#include "launcher/configure/save.hpp"
#include "launcher/help.hpp"
#include "launcher/key_table.hpp"
#include "launcher/merge.hpp"
#include "launcher/mode.hpp"
#include "launcher/plan.hpp"
#include "launcher/secret_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace acc::configure {

using namespace launcher::literals;

namespace {

int usage(const std::string& what) {
  tell(what);
  return to_int(ExitCode::usage);
}

int save_and_say(const std::string& path, const std::string& text, const std::string& done) {
  const auto saved = save_file(path, text);
  if (saved) return print(done + " " + printable(path, 1000) + "\n");
  tell(saved.error().what + ": nothing was written");
  return to_int(ExitCode::output);
}

/// acc-launch's view of a file and of the flags that would be used with it.
struct View {
  launcher::JobSpec spec;
  Complaints complaints;
  std::vector<std::string> notes;
};

/// The number that a file may leave to the command line.
bool lacks_processes(const launcher::Config& config) {
  const auto* type = config.find("distributed_type");
  const auto* count = config.find("num_processes");
  return (count == nullptr || count->is_none()) && type != nullptr && python_text(*type) != "NO";
}

Result<View> view_of(const Command& command, launcher::HostFacts& facts) {
  std::vector<std::string> words{"--config_file", file_of(command)};
  words.insert(words.end(), command.words.begin(), command.words.end());
  const auto line = launcher::parse_command_line(words);
  auto config = launcher::load_config(file_of(command));
  if (!config) return config.error();
  const auto environment = launcher::read_environment();
  View view;
  view.complaints = line.complaints;
  const bool has_count = line.given("num_processes"_key) != nullptr ||
                         config->find("nproc_per_node") != nullptr ||
                         line.given("nproc_per_node"_key) != nullptr;
  if (lacks_processes(*config) && !has_count) {
    config->keys.push_back({"num_processes", Value{std::int64_t{2}}});
    view.notes.push_back(config->path +
                         ": num_processes is not set: give --num_processes at the start");
  }
  auto merged = launcher::merge(line, *config, facts, environment);
  view.spec = std::move(merged.spec);
  std::ranges::move(merged.complaints, std::back_inserter(view.complaints));
  std::ranges::copy(view.spec.notes, std::back_inserter(view.notes));
  return view;
}

/// What make_plan would refuse. Nothing is asked of this machine, on which the job need not run.
void check_plan(View& view, launcher::HostFacts& facts) {
  const auto environment = launcher::read_environment();
  const launcher::PlanInputs inputs{environment, working_folder(), "python3"};
  if (view.spec.script.empty()) view.spec.script = "train.py";
  auto planned = launcher::make_plan(view.spec, facts, inputs);
  std::ranges::move(planned.complaints, std::back_inserter(view.complaints));
}

/// N of "FILE:N: …"; 0 for what stands in no line, so that it is first.
std::uint32_t line_of(const std::string& what, const std::string& file) {
  if (!what.starts_with(file + ":")) return 0;
  const auto rest = std::string_view{what}.substr(file.size() + 1);
  return parse_number<std::uint32_t>(rest.substr(0, rest.find(':'))).value_or(0);
}

void tell_all(Complaints complaints, const std::string& file) {
  std::ranges::stable_sort(complaints, {},
                           [&](const Error& one) { return line_of(one.what, file); });
  for (const auto& complaint : complaints) tell(complaint.what);
}

}  // namespace

int write_default(const Command& command) {
  const auto path = file_of(command);
  const auto precision =
      to_lower(command.has("--mixed_precision") ? command.value("--mixed_precision") : "no");
  constexpr std::string_view kPrecisions[] = {"no", "fp16", "bf16", "fp8"};
  if (std::ranges::find(kPrecisions, precision) == std::end(kPrecisions))
    return usage("--mixed_precision " + in_quotes(precision, 60) +
                 ": expected no, fp16, bf16 or fp8");
  auto facts = facts_of(command);
  if (!facts) return usage(facts.error().what);
  if (file_exists(path) && !command.has("--force")) {
    tell(printable(path, 1000) + " exists already and stays as it is (--force replaces it)");
    return 0;
  }
  // JSON whatever the name, as the original writes it; JSON is YAML, too.
  const auto map = basic_config(precision, (*facts)->accelerator(), (*facts)->gpus());
  return save_and_say(path, json_text(map), "wrote");
}

int update(const Command& command) {
  const auto path = file_of(command);
  const auto old = launcher::load_config(path);
  if (!old) return usage(old.error().what);
  auto map = updated_config(*old);
  if (!map) return usage(map.error().what + "\n" + path + " stays as it is");
  return save_and_say(path, config_text_for(path, *map), "updated");
}

int check(const Command& command) {
  const auto facts = any_machine();
  const auto path = file_of(command);
  auto view = view_of(command, *facts);
  if (!view) return usage(view.error().what);
  check_plan(*view, *facts);
  for (const auto& note : view->notes) tell("note: " + note);
  if (!view->complaints.empty()) {
    const auto count = view->complaints.size();
    tell_all(std::move(view->complaints), path);
    return usage(plural(count, "complaint") + " about " + printable(path, 1000));
  }
  return print(printable(path, 1000) + ": no complaints\n");
}

int show(const Command& command) {
  auto facts = facts_of(command);
  if (!facts) return usage(facts.error().what);
  auto view = view_of(command, **facts);
  if (!view) return usage(view.error().what);
  for (const auto& note : view->notes) tell("note: " + note);
  if (!view->complaints.empty()) {
    tell_all(std::move(view->complaints), file_of(command));
    return to_int(ExitCode::usage);
  }
  return print(launcher::config_text(view->spec, command.has("--all")));
}

int make_secret(const Command& command) {
  const auto wanted = command.operands.empty() ? std::string{} : command.operands.front();
  const auto path = launcher::secret_path_for(wanted);
  // The old one is kept until the new one is there: jobs of this moment may need it.
  const auto kept = path + ".old";
  const bool replaces = command.has("--force") && !path.empty() && file_exists(path);
  if (replaces && ::rename(path.c_str(), kept.c_str()) != 0) {
    tell(system_error(errno, "can't replace " + in_quotes(path)).what);
    return to_int(ExitCode::output);
  }
  const auto made = launcher::make_secret_file(wanted, "acc-config secret FILE");
  if (made)
    return print(*made + (replaces ? "The one before is in " + printable(kept) + ".\n" : ""));
  if (replaces) ::rename(kept.c_str(), path.c_str());
  const bool is_there = !replaces && !path.empty() && file_exists(path);
  tell(made.error().what + (is_there ? "\n--force makes another one and keeps this" : ""));
  return to_int(path.empty() ? ExitCode::usage : ExitCode::output);
}

}  // namespace acc::configure
