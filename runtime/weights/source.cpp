#include "runtime/weights/source.hpp"

#include "common/text.hpp"
#include "runtime/checkpoint/folder.hpp"
#include "runtime/checkpoint/manifest.hpp"

#include <acc/checkpoint.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <map>
#include <set>
#include <system_error>

namespace acc::weights {

using namespace runtime;

namespace {

constexpr std::uint64_t kMostManifest = std::uint64_t{1} << 30;

/// "model_1" → "buffers_1": where save_state() puts a model's buffers.
std::string buffers_of(const std::string& part) {
  const std::string_view model = kModelPart;
  if (part == model) return "buffers";
  return part.starts_with("model_") ? "buffers" + part.substr(model.size()) : std::string{};
}

bool is_folder(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

bool holds_ending(const fs::path& folder, std::string_view ending) {
  std::error_code failed;
  fs::directory_iterator entry{folder, failed};
  for (const fs::directory_iterator end; !failed && entry != end; entry.increment(failed))
    if (entry->path().filename().native().ends_with(ending)) return true;
  return false;
}

bool is_pytorch_sharded(const fs::path& folder) {
  return holds_ending(folder, ".distcp") ||
         (is_there(folder / ".metadata") && !is_there(folder / checkpoint::kManifest));
}

std::string words_of_pytorch_sharded(const fs::path& folder) {
  const auto name = printable(folder.native(), 500);
  return "'" + name +
         "' is a sharded checkpoint of PyTorch (.distcp files with pickled metadata), which only "
         "PyTorch reads: accelerate merge-weights " +
         name + " OUTPUT, or python -m torch.distributed.checkpoint.format_utils dcp_to_torch " +
         name + " model.pt";
}

/// The files of a checkpoint of which a part's tensors consist.
class CheckpointReader {
 public:
  explicit CheckpointReader(const fs::path& path) {
    const Checkpoint opened{path};  // all files are there, with their sizes
    source_.path = opened.path();
    source_.is_checkpoint = true;
    const auto file = source_.path / checkpoint::kManifest;
    manifest_ =
        checkpoint::parse_manifest(checkpoint::read_small(file, kMostManifest), file.native());
  }

  Source read(const std::string& part) {
    const auto buffers = buffers_of(part);
    std::set<std::string> parts;
    for (const auto& tensor : manifest_.tensors) {
      parts.insert(tensor.facts.part);
      if (tensor.facts.part == part || tensor.facts.part == buffers) add(tensor);
    }
    if (!parts.contains(part)) {
      throw Error{ErrorCode::invalid_argument,
                  in_quotes(source_.path.native()) + " has no part " + in_quotes(part) +
                      (parts.empty() ? ", and no tensors" : "; it has " + listed(parts))};
    }
    for (const auto& other : parts)
      if (part == kModelPart && other.starts_with("model_"))
        source_.notes.push_back("the checkpoint holds another model, too: --part " + other);
    return std::move(source_);
  }

 private:
  static std::string listed(const std::set<std::string>& parts) {
    std::string text;
    for (const auto& part : parts) text += (text.empty() ? "" : ", ") + printable(part);
    return text;
  }

  void add(const checkpoint::TensorRecord& record) {
    const auto& facts = record.facts;
    Tensor tensor{facts.name, std::string{safetensors::type_of(facts.dtype)}, facts.shape, 0, {}};
    for (const auto& piece : record.pieces) {
      const auto& file = opened(piece.file);
      const auto* entry = file.content.find(facts.name);
      if (entry == nullptr || !fits(*entry, record, piece.rows)) {
        throw Error{ErrorCode::corrupt, in_quotes(file.content.path().native()) + ": tensor " +
                                            in_quotes(facts.name) +
                                            " isn't as the manifest tells of it"};
      }
      tensor.extents.push_back({file.number, entry->begin, entry->bytes});
      tensor.bytes += entry->bytes;
    }
    source_.tensors.push_back(std::move(tensor));
  }

  static bool fits(const SafetensorsEntry& entry, const checkpoint::TensorRecord& record,
                   std::int64_t rows) {
    auto shape = record.facts.shape;
    if (!shape.empty()) shape.front() = rows;
    return entry.dtype == record.facts.dtype && entry.shape == shape;
  }

  struct Opened {
    SafetensorsFile content;
    std::size_t number;
  };
  const Opened& opened(const std::string& name) {
    const auto at = opened_.find(name);
    if (at != opened_.end()) return at->second;
    const auto path = source_.path / name;
    const Opened file{SafetensorsFile{path}, source_.files.size()};
    source_.files.push_back({path, *manifest_.find(name)});  // parse_manifest has looked
    return opened_.emplace(name, file).first->second;
  }

  Source source_;
  checkpoint::Manifest manifest_;
  std::map<std::string, Opened> opened_;
};

/// Of all files, by their names; where two contradict each other, the first one's stands, and a
/// note tells it.
void read_metadata(const SafetensorsModel& model, Source& source) {
  std::map<fs::path, const SafetensorsFile*> files;  // the model has them by its tensors' names
  for (const auto& file : model.files()) files.emplace(file.path(), &file);
  std::map<std::string, fs::path> origins;
  for (const auto& [path, file] : files) {
    for (const auto& [key, value] : file->metadata()) {
      const auto [origin, is_new] = origins.try_emplace(key, path);
      if (is_new) {
        source.metadata[key] = value;
      } else if (source.metadata[key] != value) {
        source.notes.push_back("metadata " + in_quotes(key) + " is " +
                               in_quotes(source.metadata[key]) + " in " +
                               in_quotes(origin->second.native()) + " and " + in_quotes(value) +
                               " in " + in_quotes(path.native()) + ": the first one is kept");
      }
    }
  }
}

Source read_model(const fs::path& path) {
  const SafetensorsModel model{path};
  Source source;
  source.path = path;
  read_metadata(model, source);
  for (const auto& file : model.files()) {
    for (const auto& entry : file.entries()) {
      // A file may hold what its index doesn't name.
      if (!model.contains(entry.name) || model.file_of(entry.name).path() != file.path()) {
        if (source.unread.empty())
          source.unread =
              "tensor " + in_quotes(entry.name) + " of " + in_quotes(file.path().native());
        continue;
      }
      source.tensors.push_back({entry.name,
                                entry.type,
                                entry.shape,
                                entry.bytes,
                                {{source.files.size(), entry.begin, entry.bytes}}});
    }
    source.files.push_back({file.path(), std::nullopt});
  }
  if (!source.unread.empty())
    source.notes.push_back(source.unread + " isn't read, as the index doesn't name it there");
  return source;
}

std::string words_of_folder(const fs::path& folder) {
  const auto name = in_quotes(folder.native());
  if (is_pytorch_sharded(folder)) return words_of_pytorch_sharded(folder);
  for (const auto* inner : {"pytorch_model_fsdp_0", "optimizer_0"})
    if (is_folder(folder / inner) && is_pytorch_sharded(folder / inner))
      return words_of_pytorch_sharded(folder / inner);
  if (is_there(folder / "zero_to_fp32.py") || holds_ending(folder, "_optim_states.pt"))
    return name + " is a checkpoint of DeepSpeed's, which holds pickles: python " +
           printable((folder / "zero_to_fp32.py").native(), 500) + " " +
           printable(folder.native(), 500) + " OUTPUT --safe_serialization";
  for (const auto& place : {folder, folder / "checkpoints"}) {
    const auto numbers = list_checkpoints(place);
    if (numbers.empty()) continue;
    return name + " isn't a checkpoint but holds some: name one, as the newest: " +
           printable((place / checkpoint_name(numbers.front())).native(), 500);
  }
  if (holds_ending(folder, ".bin") || holds_ending(folder, ".pt") || holds_ending(folder, ".pth"))
    return name +
           " holds weights as pickles (.bin, .pt), which run code when they are read: they are "
           "PyTorch's to convert (torch.load(…, weights_only=True), then "
           "safetensors.torch.save_file)";
  return {};
}

}  // namespace

std::string foreign_words(const fs::path& path) {
  if (is_folder(path)) return words_of_folder(path);
  const auto name = path.filename().native();
  if (name.ends_with(".distcp")) return words_of_pytorch_sharded(path.parent_path());
  for (const auto* ending : {".bin", ".pt", ".pth", ".ckpt", ".pkl"})
    if (name.ends_with(ending))
      return in_quotes(path.native()) +
             " is a pickle, which runs code when it is read: it is PyTorch's to convert "
             "(torch.load(…, weights_only=True), then safetensors.torch.save_file)";
  return {};
}

Source open_source(const fs::path& given, const std::string& part) {
  // "checkpoint_7/" has no name of its own.
  const auto path =
      given.has_filename() || given == given.root_path() ? given : given.parent_path();
  std::error_code failed;
  const auto there = fs::status(path, failed);
  const bool replaced = is_there(checkpoint::aside_of(path));  // by a save that was interrupted
  if (there.type() == fs::file_type::not_found && !replaced) checkpoint::fail("open", path, ENOENT);
  if (there.type() == fs::file_type::none) checkpoint::fail("open", path, failed.value());
  if (replaced || is_there(path / checkpoint::kManifest)) return CheckpointReader{path}.read(part);
  const bool has_model = is_there(path / "model.safetensors") ||
                         is_there(path / "model.safetensors.index.json") || !is_folder(path);
  const auto foreign = foreign_words(path);
  if (!foreign.empty() && !(is_folder(path) && has_model))
    throw Error{ErrorCode::invalid_argument, foreign};
  if (!has_model) {
    throw Error{ErrorCode::invalid_argument,
                in_quotes(path.native()) +
                    " is no checkpoint of ours (manifest.json) and holds no model.safetensors and "
                    "no model.safetensors.index.json"};
  }
  if (part != kModelPart) {
    throw Error{ErrorCode::invalid_argument,
                in_quotes(path.native()) + " is a model, without parts: leave --part out"};
  }
  return read_model(path);
}

}  // namespace acc::weights
