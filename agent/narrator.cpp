#include "agent/narrator.hpp"

#include "common/text.hpp"

namespace acc::agent {

Narrator::Narrator(std::function<void(std::string_view)> say, bool quiet, bool color)
    : say_{std::move(say)}, quiet_{quiet}, color_{color} {}

void Narrator::line(const std::string& text, bool matters) const {
  if (quiet_ && !matters) return;
  say_(color_ ? "\033[1;33macc-launch:\033[0m " + text + '\n' : "acc-launch: " + text + '\n');
}

void Narrator::error(const std::string& text) const { line(text, true); }

void Narrator::warning(const std::string& text) const { line("warning: " + text, true); }

void Narrator::note(const std::string& text) const { line(text, false); }

void Narrator::announce(const std::string& text) const { line(text, true); }

void Narrator::failure(const FailureReport& f) const {
  line("rank " + std::to_string(f.worker.rank.value()) + " (pid " + std::to_string(f.worker.pid) +
           ") " + f.cause + ", " + describe(f.into_round) + " into attempt " +
           std::to_string(f.round),
       true);
}

void Narrator::restart(const TellRestart& told) const {
  const std::string when = told.delay == Millis{0} ? "now" : "in " + describe(told.delay);
  line("restarting all workers " + when + " (restart " + std::to_string(told.restart) + " of " +
           std::to_string(told.of) + ")",
       true);
}

void Narrator::start_retry(const TellStartRetry& told, const std::string& words) const {
  line(words + "; trying again for " + describe(told.window), true);
}

void Narrator::stopping(const TellStopping& told) const {
  const std::string name = signal_name(told.signo);
  if (told.preempted) {
    line("pre-empted by " + name + ": workers have " + describe(told.grace) + " for a checkpoint",
         true);
  } else {
    line("got " + name + ": stopping; workers have " + describe(told.grace) + " to end" +
             (told.signo == 2 ? " (Ctrl-C again to hurry)" : ""),
         false);
  }
}

void Narrator::no_restart(const TellNoRestart& told) const {
  line("got " + signal_name(told.signo) + ": no restart will follow", true);
}

void Narrator::hurry(const TellHurry& told) const {
  line("hurrying: SIGTERM sent, " + describe(told.grace) + " left (Ctrl-C again to kill)", false);
}

void Narrator::kept_interrupt() const {
  line("Ctrl-C went to the worker, which has the terminal and goes on: Ctrl-C again stops the job",
       true);
}

static std::string list(const std::vector<LeftOver>& processes) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> names;
  for (const auto& process : processes) {
    if (names.size() < kShown) names.push_back(name_and_pid(process));
  }
  if (processes.size() > kShown) names.emplace_back("…");
  return join(names, ", ");
}

void Narrator::killing(const TellKilling& told, const std::vector<LeftOver>& alive) const {
  if (alive.empty()) return;
  const std::string why = told.after == Millis{0}
                              ? "killing at once: "
                              : "did not end within " + describe(told.after) + ", killing: ";
  line(why + list(alive), true);
}

void Narrator::left_over(const std::vector<LeftOver>& processes) const {
  line("ending " + std::to_string(processes.size()) + " left-over process" +
           (processes.size() == 1 ? ": " : "es: ") + list(processes),
       false);
}

void Narrator::degraded(const Losses& losses) const {
  line("warning: " + losses.where + ": " + losses.why +
           "; output is being dropped, the workers go on" +
           (losses.cure.empty() ? "" : " (" + losses.cure + ")"),
       true);
}

}  // namespace acc::agent
