#include "launcher/man_page.hpp"

#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "common/version.hpp"
#include "launcher/config_keys.hpp"

namespace acc::launcher {

namespace {

/// Text of one line as troff shows it unchanged.
std::string roff(std::string_view text) {
  std::string out;
  if (!text.empty() && (text[0] == '.' || text[0] == '\'')) out = "\\&";
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";  // a minus, which can be copied into a shell
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '`') {
      out += "\\(ga";
    } else {
      out += c;
    }
  }
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

std::string heading(std::string_view program, std::string_view summary) {
  return ".TH " + to_upper(program) + " 1 \"\" \"acc " + version() + "\" \"User Commands\"\n" +
         ".SH NAME\n" + roff(program) + " \\- " + roff(summary) + "\n";
}

std::string names_of(const KeyRow& row) {
  if (!row.is_flag) return bold(row.name) + " (config file only)";
  std::string out = row.letter != 0 ? bold(std::string{'-', row.letter}) + ", " : std::string{};
  out += bold("--" + std::string{row.name});
  if (!row.aliases.empty()) {
    for (const auto& alias : split(row.aliases, ' ')) out += ", " + bold("--" + alias);
  }
  const auto value = metavar(row);
  return value.empty() ? out : out + " " + italic(value);
}

std::string option(const KeyRow& row) {
  std::string text{row.help};
  if (!row.choices.empty() && metavar(row).find('|') == std::string::npos)
    text += "; one of " + join(split(row.choices, ' '), ", ");
  const bool has_default =
      row.initial != nullptr && row.type != Type::flag && row.initial[0] != '\0';
  if (has_default) text += ". Default: " + std::string{row.initial};
  return ".TP\n" + names_of(row) + "\n" + roff(text) + "\n";
}

std::string options() {
  std::string out = ".SH OPTIONS\nFlags may be written with _ or \\-, as " + bold("--flag VALUE") +
                    " or " + bold("--flag=VALUE") + ". All but the mode switches and those of \"" +
                    "Looking instead of running\" are also keys of the config file.\n";
  for (const auto& group : group_rows()) {
    out += ".SS " + roff(group.title) + "\n";
    for (const auto& row : key_rows()) {
      if (row.group == group.group) out += option(row);
    }
  }
  return out;
}

std::string exit_status() {
  std::string out =
      ".SH EXIT STATUS\nA worker's own exit code is passed on unchanged, a signal as 128 plus its "
      "number. Of acc\\-launch itself:\n";
  for (const auto& row : kExitCodes) {
    out += ".TP\n" + bold(std::to_string(to_int(row.code))) + "\n" + roff(row.meaning) + "\n";
    if (!row.what_to_do.empty()) out += ".br\n" + italic(row.what_to_do) + "\n";
  }
  return out;
}

constexpr std::string_view kDescription =
    R"(.SH SYNOPSIS
.B acc\-launch
.RI [ options ]
.I SCRIPT
.RI [ "script arguments" ]
.SH DESCRIPTION
Starts N workers of SCRIPT on this machine, supervises and restarts them, and reports what broke.
A config file or command line of accelerate launch works as it is; so does a torchrun line.
Everything after SCRIPT belongs to the script.
.PP
Workers find RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and the other variables of torchrun
in their environment.
.SH EXAMPLES
.TP
.B acc\-launch \-\-num_processes 4 train.py \-\-lr 0.1
four workers
.TP
.B acc\-launch \-\-config_file job.yaml train.py
all settings from a file
.TP
.B acc\-launch \-\-standalone \-\-nproc\-per\-node=2 train.py
a torchrun line
.TP
.B acc\-launch \-\-print_plan \-\-num_processes 4 train.py
shows what would be started
)";

constexpr std::string_view kFiles =
    R"(.SH FILES
.TP
.I ~/.cache/huggingface/accelerate/default_config.yaml
the config file that counts without
.BR \-\-config_file ,
also below $HF_HOME or $XDG_CACHE_HOME
.TP
.I ~/.config/acc/secret
the cluster's secret, see
.B \-\-make_secret
.TP
.I /etc/acc/NAME.yaml
the job of the service acc\-launch@NAME
.TP
.I /usr/share/doc/acc
documents, example configs and example programs
)";

constexpr std::string_view kSeeAlso =
    ".SH SEE ALSO\n.BR acc\\-test (1),\n.BR acc\\-rendezvous (1),\n.BR systemd.service (5)\n";

}  // namespace

std::string launch_man_page() {
  return heading("acc-launch", "start, supervise and restart the workers of a training job") +
         std::string{kDescription} + options() + exit_status() + std::string{kFiles} +
         std::string{kSeeAlso};
}

std::string man_page_from_help(std::string_view program, std::string_view summary,
                               std::string_view help) {
  std::string out = heading(program, summary) + ".SH DESCRIPTION\n.nf\n";
  for (const auto& line : split(help, '\n')) out += roff(line) + "\n";
  while (out.ends_with("\n\n")) out.pop_back();
  return out + ".fi\n.SH SEE ALSO\n.BR acc\\-launch (1)\n";
}

}  // namespace acc::launcher
