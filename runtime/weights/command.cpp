#include "runtime/weights/command.hpp"

#include "common/text.hpp"
#include "runtime/checkpoint/model_files.hpp"
#include "runtime/weights/estimate.hpp"

#include <acc/error.hpp>
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace acc::weights {
namespace {

/// A flag as typed: `--max-shard-size=5GB` is --max_shard_size with a value.
struct Flag {
  std::string name;
  std::optional<std::string> value;
};
Flag flag_of(std::string_view word) {
  const auto equals = word.find('=');
  Flag flag{std::string{word.substr(0, equals)}, std::nullopt};
  std::replace(flag.name.begin() + 2, flag.name.end(), '-', '_');
  if (equals != std::string_view::npos) flag.value = std::string{word.substr(equals + 1)};
  return flag;
}

bool is_flag(std::string_view word) { return word.starts_with("--") && word.size() > 2; }

std::string unknown(std::string_view word, std::span<const std::string_view> names) {
  const auto meant = nearest(word.substr(0, word.find('=')), names);
  return "unknown word " + in_quotes(word) +
         (meant.empty() ? "" : " (did you mean " + std::string{meant} + "?)");
}

/// Walks over the words; `take` gets each flag, `place` what stands without one.
class Words {
 public:
  Words(std::span<const std::string> words, std::vector<std::string>& complaints)
      : words_{words}, complaints_{complaints} {}

  bool next() {
    if (at_ == words_.size()) return false;
    word_ = words_[at_++];
    if (word_ == "--" && !only_places_) {
      only_places_ = true;
      return next();
    }
    is_flag_ = !only_places_ && is_flag(word_);
    if (is_flag_) flag_ = flag_of(word_);
    return true;
  }
  [[nodiscard]] const std::string& word() const { return word_; }
  [[nodiscard]] bool is_help() const {
    return !only_places_ && (word_ == "-h" || word_ == "--help");
  }
  [[nodiscard]] bool is(std::string_view name) const { return is_flag_ && flag_.name == name; }
  /// Not a flag, nor a mistyped one.
  [[nodiscard]] bool is_place() const {
    return only_places_ || word_ == "-" || !word_.starts_with('-');
  }

  std::string value() {
    if (flag_.value) return *flag_.value;
    if (at_ < words_.size() && !is_flag(words_[at_])) return words_[at_++];
    complaints_.push_back(flag_.name + " needs a value");
    return {};
  }
  /// A flag that takes none.
  bool given() {
    if (flag_.value) complaints_.push_back(flag_.name + " takes no value");
    return true;
  }
  /// Further words of a list, as long as `fits`.
  template <class F>
  std::vector<std::string> values(F&& fits) {
    if (flag_.value) return split(*flag_.value, ',');
    std::vector<std::string> all;
    while (at_ < words_.size() && fits(words_[at_]))
      for (auto& one : split(words_[at_++], ',')) all.push_back(std::move(one));
    if (all.empty()) all.push_back(value());
    return all;
  }

 private:
  std::span<const std::string> words_;
  std::vector<std::string>& complaints_;
  std::size_t at_ = 0;
  std::string word_;
  Flag flag_;
  bool is_flag_ = false;
  bool only_places_ = false;
};

/// "out/" → "out": the folder's name, not an empty one in it.
fs::path without_slash(const std::string& text) {
  fs::path path{text};
  return path.has_filename() || path == path.root_path() ? path : path.parent_path();
}

constexpr std::array<std::string_view, 6> kMergeFlags{
    "--max_shard_size",       "--part", "--overwrite", "--remove_checkpoint_dir",
    "--unsafe_serialization", "--help"};
constexpr std::array<std::string_view, 6> kEstimateFlags{
    "--dtypes", "--part", "--json", "--library_name", "--trust_remote_code", "--help"};

bool is_dtype(std::string_view word) {
  return std::ranges::find(estimate_dtypes(), word) != estimate_dtypes().end();
}

}  // namespace

MergeCommand parse_merge(std::span<const std::string> words) {
  MergeCommand command;
  auto& complaints = command.complaints;
  std::vector<std::string> places;
  Words each{words, complaints};
  while (each.next()) {
    if (each.is_help()) {
      command.help = true;
    } else if (each.is("--max_shard_size")) {
      try {
        command.options.max_shard_bytes = runtime::checkpoint::parse_size(each.value());
      } catch (const runtime::Error& error) {
        complaints.push_back(std::string{"--max_shard_size: "} + error.what());
      }
    } else if (each.is("--part")) {
      command.part = each.value();
    } else if (each.is("--overwrite")) {
      command.options.overwrites = each.given();
    } else if (each.is("--remove_checkpoint_dir")) {
      command.options.removes_source = each.given();
    } else if (each.is("--unsafe_serialization")) {
      complaints.emplace_back(
          "--unsafe_serialization writes a pickle, whose reader runs whatever code is in it: not "
          "offered; safetensors files are read by every library that reads pytorch_model.bin");
    } else if (each.is_place()) {
      places.push_back(each.word());
    } else {
      complaints.push_back(unknown(each.word(), kMergeFlags));
    }
  }
  if (places.size() > 2)
    complaints.push_back("two places are expected, the checkpoint's folder and the output's: " +
                         in_quotes(places[2]) + " is a third");
  if (places.size() < 2 && complaints.empty())
    complaints.push_back(places.empty() ? "CHECKPOINT and OUTPUT are missing"
                                        : "OUTPUT is missing: the folder for model.safetensors");
  if (places.size() >= 2) {
    command.from = without_slash(places[0]);
    command.options.folder = without_slash(places[1]);
  }
  return command;
}

std::string merge_help() {
  return "usage: acc merge-weights CHECKPOINT OUTPUT [--max_shard_size SIZE] [--part PART]\n"
         "                         [--overwrite] [--remove_checkpoint_dir]\n\n"
         "Writes the model of a checkpoint as OUTPUT/model.safetensors, with memory for a few MiB\n"
         "whatever its size. A checkpoint's checksums are compared on the way. OUTPUT holds the\n"
         "whole model, or what it held before.\n\n"
         "  CHECKPOINT               a folder that save_state() wrote (checkpoint_7), also with\n"
         "                           sharded tensors; or a model in one or several safetensors\n"
         "                           files: its folder, its index, or a file\n"
         "  OUTPUT                   a folder, made where it is missing\n"
         "  --max_shard_size SIZE    of a file: 5GB, 500MiB; more tensors make\n"
         "                           model-00001-of-0000N.safetensors and an index (default: one\n"
         "                           file)\n"
         "  --part PART              of a checkpoint: model (with its buffers; the default),\n"
         "                           model_1, optimizer …\n"
         "  --overwrite              replaces a model that is in OUTPUT\n"
         "  --remove_checkpoint_dir  removes CHECKPOINT afterwards\n\n"
         "--unsafe_serialization, which writes a pickle, is refused. PyTorch's sharded "
         "checkpoints\n"
         "(.distcp) are PyTorch's to merge: accelerate merge-weights.\n\n"
         "exit code: 0; 1: it failed, as told, and OUTPUT is as before; 2: wrong words; 130, 143:\n"
         "interrupted\n";
}

EstimateCommand parse_estimate(std::span<const std::string> words) {
  EstimateCommand command;
  auto& complaints = command.complaints;
  Words each{words, complaints};
  while (each.next()) {
    if (each.is_help()) {
      command.help = true;
    } else if (each.is("--dtypes")) {
      const auto before = complaints.size();
      auto types = each.values(is_dtype);
      if (complaints.size() > before) types.clear();  // there were none
      for (auto& one : types) {
        if (!is_dtype(one))
          complaints.push_back("--dtypes " + in_quotes(one) +
                               ": expected float32, float16, bfloat16, int8 or int4");
        command.dtypes.push_back(std::move(one));
      }
    } else if (each.is("--part")) {
      command.part = each.value();
    } else if (each.is("--json")) {
      command.json = each.given();
    } else if (each.is("--library_name") || each.is("--trust_remote_code")) {
      complaints.push_back(each.word() +
                           " is for models of the Hub, and nothing is downloaded here: name a "
                           "file or folder of this machine");
      if (each.is("--library_name")) [[maybe_unused]]
        const auto library = each.value();
    } else if (each.is_place()) {
      command.paths.push_back(each.word());
    } else {
      complaints.push_back(unknown(each.word(), kEstimateFlags));
    }
  }
  if (command.paths.empty() && complaints.empty())
    complaints.emplace_back("PATH is missing: a model's folder, a safetensors file, a checkpoint");
  if (command.dtypes.empty())
    command.dtypes.assign(default_dtypes().begin(), default_dtypes().end());
  return command;
}

std::string estimate_help() {
  return "usage: acc estimate-memory PATH… [--dtypes TYPE…] [--part PART] [--json]\n\n"
         "The memory that a model takes, by its safetensors headers: loaded in each type, and\n"
         "trained with Adam (a batch of one, without activations). Only headers are read, and\n"
         "nothing is downloaded: names of the Hub are refused.\n\n"
         "  PATH           a folder with model.safetensors or its index, such a file, or a\n"
         "                 checkpoint of save_state()\n"
         "  --dtypes TYPE… float32, float16, bfloat16, int8, int4 (default: all but bfloat16)\n"
         "  --part PART    of a checkpoint (default model)\n"
         "  --json         the same for programs, in bytes\n\n"
         "exit code: 0; 1: a file can't be read or is damaged; 2: wrong words, or a name of the\n"
         "Hub\n";
}

}  // namespace acc::weights
