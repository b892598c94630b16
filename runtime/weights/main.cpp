#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "runtime/weights/command.hpp"
#include "runtime/weights/estimate.hpp"
#include "runtime/weights/merge.hpp"
#include "runtime/weights/source.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <acc/error.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

/// What `acc merge-weights` and `acc estimate-memory` start: the words of `accelerate` that read
/// and write models, and need the runtime for it.
namespace acc::weights {
namespace {

std::string program = "acc";  // for messages, with its word

volatile std::sig_atomic_t caught_signal = 0;

/// Not those that the parent wants ignored: SIGHUP of nohup, SIGINT of a shell's background job.
void catch_signals() {
  for (const int signo : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    if (::sigaction(signo, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    std::signal(signo, [](int number) { caught_signal = number; });
  }
}

int tell(const std::string& what, ExitCode code) {
  std::fprintf(stderr, "%s: %s\n", program.c_str(), what.c_str());
  return to_int(code);
}

int complain(const std::vector<std::string>& complaints) {
  for (const auto& one : complaints) std::fprintf(stderr, "%s: %s\n", program.c_str(), one.c_str());
  return tell("try --help", ExitCode::usage);
}

/// A reader that has seen enough (`| head`) is no failure.
int print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  if (errno == EPIPE) return 0;
  return tell(std::string{"write to the standard output: "} + std::strerror(errno),
              ExitCode::output);
}

int run_merge(std::span<const std::string> words) {
  const auto command = parse_merge(words);
  if (command.help) return print(merge_help());
  if (!command.complaints.empty()) return complain(command.complaints);
  catch_signals();
  try {
    const auto source = open_source(command.from, command.part);
    for (const auto& note : source.notes)
      std::fprintf(stderr, "%s: note: %s\n", program.c_str(), note.c_str());
    const auto merged = merge(source, command.options, [] {
      if (caught_signal != 0) throw Stopped{caught_signal};
    });
    std::string text;
    for (const auto& file : merged.files)
      text += printable((command.options.folder / file).native(), 500) + "\n";
    return print(text + plural(merged.tensors, "tensor") + ", " +
                 bytes_text(static_cast<double>(merged.bytes)) + "\n");
  } catch (const Stopped& stopped) {
    std::fprintf(stderr, "%s: stopped by a signal; the output is as before\n", program.c_str());
    return 128 + stopped.signo;
  }
}

/// Names of the Hub: no path of this machine, and nothing that a path looks like.
bool looks_like_hub_name(const std::string& path) {
  return std::ranges::count(path, '/') <= 1 && !path.starts_with('.') && !path.starts_with('/') &&
         !path.starts_with('~') && !path.ends_with(".safetensors") && !path.ends_with(".json");
}

bool is_of_transformers(const Source& source) {
  std::error_code none;
  const auto folder = fs::is_directory(source.path, none) ? source.path : source.path.parent_path();
  std::error_code failed;
  const auto file = folder / "config.json";
  if (!fs::is_regular_file(file, failed)) return false;
  try {
    constexpr std::uint64_t kMost = 16 << 20;
    const auto config =
        nlohmann::json::parse(runtime::checkpoint::read_small(file, kMost), nullptr, false);
    return config.is_object() && config.contains("model_type");
  } catch (const runtime::Error&) {
    return false;  // it only decides what a layer is
  }
}

nlohmann::json as_json(const std::string& path, const Estimate& estimate) {
  auto rows = nlohmann::json::array();
  for (const auto& row : estimate.rows)
    rows.push_back({{"dtype", row.dtype},
                    {"largest_layer_bytes", row.largest_layer},
                    {"total_bytes", row.total},
                    {"adam_bytes", row.adam ? nlohmann::json(*row.adam) : nlohmann::json()}});
  return {{"path", path},
          {"parameters", estimate.parameters},
          {"stored_bytes", estimate.stored_bytes},
          {"integer_bytes", estimate.integer_bytes},
          {"largest_layer", estimate.largest_layer},
          {"layers_are_blocks", estimate.is_by_block},
          {"rows", std::move(rows)}};
}

std::string as_text(const std::string& path, const Estimate& estimate) {
  auto text = table_of(estimate, "Memory Usage for loading `" + printable(path) + "`");
  if (!estimate.largest_layer.empty())
    text += "largest layer: " + printable(estimate.largest_layer) + "\n";
  if (estimate.integer_bytes * 10 > estimate.stored_bytes)
    text += "note: " + bytes_text(static_cast<double>(estimate.integer_bytes)) + " of " +
            bytes_text(static_cast<double>(estimate.stored_bytes)) +
            " are whole numbers (quantised weights?), counted as they are stored\n";
  return text;
}

int run_estimate(std::span<const std::string> words) {
  const auto command = parse_estimate(words);
  if (command.help) return print(estimate_help());
  if (!command.complaints.empty()) return complain(command.complaints);
  std::string text;
  auto all = nlohmann::json::array();
  for (const auto& path : command.paths) {
    std::error_code none;
    if (!fs::exists(path, none) && looks_like_hub_name(path))
      return tell(in_quotes(path) +
                      " is no file or folder here. Models of the Hub aren't downloaded: fetch it "
                      "first (hf download), or ask accelerate estimate-memory",
                  ExitCode::usage);
    const auto source = open_source(path, command.part);
    const auto made = estimate(source.tensors, is_of_transformers(source), command.dtypes);
    text += as_text(path, made);
    all.push_back(as_json(path, made));
  }
  if (!command.json) return print(text);
  return print(all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

int run(const std::vector<std::string>& words) {
  const auto rest = std::span{words}.subspan(std::min<std::size_t>(words.size(), 1));
  if (!words.empty()) program += " " + words[0];
  try {
    if (!words.empty() && words[0] == "merge-weights") return run_merge(rest);
    if (!words.empty() && words[0] == "estimate-memory") return run_estimate(rest);
  } catch (const std::exception& error) {
    return tell(error.what(), ExitCode::failure);
  }
  program = "acc-weights";
  return tell("started by acc: acc merge-weights, acc estimate-memory", ExitCode::usage);
}

}  // namespace
}  // namespace acc::weights

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return acc::weights::run({argv + std::min(argc, 1), argv + argc});
}
