#include "launcher/configure/verbs.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace acc::configure {

namespace {

constexpr std::array kVerbs{
    VerbRow{"", "", 0, false, "asks what the job needs and writes the config file"},
    VerbRow{"default", "", 0, false,
            "writes a file for the devices of this machine without asking; never replaces one"},
    VerbRow{"update", "[FILE]", 1, false, "completes an old file with today's keys and defaults"},
    VerbRow{
        "check", "[FILE] [-- FLAGS…]", 1, true,
        "reports all that is wrong with a file, with its lines; FLAGS: of acc-launch, that would "
        "be used with it"},
    VerbRow{"show", "[FILE] [-- FLAGS…]", 1, true,
            "shows each value that is set, and who set it: the file, a flag, the environment …"},
    VerbRow{"secret", "[FILE]", 1, false, "makes the secret that several machines share"},
    VerbRow{"convert", "[FILE] | -- COMMAND…", 1, true,
            "makes a file from a command line of torchrun, mpirun, deepspeed, accelerate launch or "
            "acc-launch; with --to fsdp2 from a file for FSDP 1"},
    VerbRow{"questions", "", 0, false, "lists the questions with the names that --set takes"},
};

constexpr std::array kFlags{
    FlagRow{
        "--config_file", 0, "FILE", "- default update check show convert",
        "the file; default: $HF_HOME/accelerate/default_config.yaml, else below "
        "$XDG_CACHE_HOME/huggingface or ~/.cache/huggingface. Names that end in .json are JSON"},
    FlagRow{"--answers", 0, "FILE", "-",
            "answers instead of questions, - for the standard input: a list in the order of the "
            "questions, or names with answers"},
    FlagRow{"--set", 0, "NAME=ANSWER", "-",
            "the answer to one question, by its name; may be repeated. What isn't named takes its "
            "default"},
    FlagRow{"--yes", 'y', "", "-", "writes without showing the file first"},
    FlagRow{"--mixed_precision", 0, "WORD", "default", "no, fp16, bf16 or fp8; default no"},
    FlagRow{"--force", 0, "", "default secret", "replaces a file that is there"},
    FlagRow{"--all", 0, "", "show", "also what has its default value"},
    FlagRow{"--to", 0, "fsdp2", "convert", "what to make of a file"},
    FlagRow{"--output_file", 0, "FILE", "convert",
            "where to write; without it a command line's file is printed"},
    FlagRow{"--overwrite", 0, "", "convert", "replaces the file that is there"},
    FlagRow{"--host_facts", 0, "FILE", "- default show convert",
            "JSON file with the facts of a machine, instead of looking at this one"},
    FlagRow{"--help", 'h', "", "", "shows this text"},
    FlagRow{"--version", 0, "", "", "shows the version"},
    FlagRow{"--completion", 0, "SHELL", "", "prints the completion of bash, zsh or fish"},
};

}  // namespace

std::span<const VerbRow> verb_rows() { return kVerbs; }
std::span<const FlagRow> flag_rows() { return kFlags; }

const VerbRow* find_verb(std::string_view name) {
  const auto found = std::ranges::find(kVerbs, name, &VerbRow::name);
  return found == kVerbs.end() ? nullptr : &*found;
}

}  // namespace acc::configure
