#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "runtime/checkpoint/blocks.hpp"
#include "runtime/checkpoint/file_ops.hpp"
#include "runtime/checkpoint/folder.hpp"
#include "runtime/checkpoint/model_files.hpp"
#include "runtime/checkpoint/safetensors_format.hpp"

#include <nlohmann/json.hpp>

#include <acc/safetensors.hpp>
#include <algorithm>
#include <array>
#include <unordered_map>

namespace acc::runtime {
namespace {

namespace fs = std::filesystem;
using checkpoint::Bytes;
using checkpoint::FileOps;
using checkpoint::StagedFiles;
using nlohmann::json;

[[noreturn]] void refuse(const std::string& file, std::string_view tensor,
                         const std::string& what) {
  throw Error{ErrorCode::invalid_argument,
              in_quotes(file) + ": tensor " + in_quotes(tensor) + " " + what};
}

std::vector<Bytes> pieces_of(const safetensors::Layout& layout) {
  std::vector<Bytes> pieces{std::as_bytes(std::span{layout.head})};
  for (const auto* tensor : layout.order) {
    pieces.emplace_back(static_cast<const std::byte*>(tensor->view.data), tensor->view.bytes());
  }
  return pieces;
}

/// Numbered files of this model that aren't among `names`: "model-00001-of-00003.safetensors".
std::vector<std::string> other_shards(const fs::path& folder, std::string_view stem,
                                      const std::vector<std::string>& names) {
  std::vector<std::string> others;
  std::error_code failed;
  fs::directory_iterator entry{folder, failed};
  for (const fs::directory_iterator end; !failed && entry != end; entry.increment(failed)) {
    const auto name = entry->path().filename().native();
    if (safetensors::is_shard_of(name, stem) && std::ranges::find(names, name) == names.end())
      others.push_back(name);
  }
  return others;
}

/// Is it the name of a file in the same folder? An index is untrusted.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view{"/\0", 2}) == std::string_view::npos;
}

std::map<std::string, std::string> read_index(const fs::path& path) {
  const auto fail = [&](const std::string& what) {
    throw Error{ErrorCode::corrupt, in_quotes(path.native()) + ": " + what};
  };
  const auto text = checkpoint::read_small(path, safetensors::kMaxHeader);
  const auto index = json::parse(text, nullptr, false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    fail("isn't JSON with a weight_map");
  }
  std::map<std::string, std::string> where;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      fail("the file of tensor " + in_quotes(tensor) + " is no name of a file beside it");
    }
    where.emplace(tensor, file.get<std::string>());
  }
  return where;
}

/// The file or index that stands for a model.
fs::path entrance(const fs::path& path) {
  std::error_code none;
  auto& files = FileOps::real();
  if (!fs::is_directory(path, none)) {
    if (path.extension() == ".json")
      checkpoint::finish_renames(files, path.parent_path(), path.filename().native());
    return path;
  }
  checkpoint::finish_renames(files, path, "model.safetensors.index.json");
  for (const auto* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (fs::exists(path / name, none)) return path / name;
  }
  throw Error{ErrorCode::system, in_quotes(path.native()) +
                                     " holds no model.safetensors and no "
                                     "model.safetensors.index.json"};
}

}  // namespace

struct SafetensorsFile::Contents {
  fs::path path;
  UniqueFd fd;
  safetensors::Header header;
  std::unordered_map<std::string_view, const SafetensorsEntry*> by_name;
};

SafetensorsFile::SafetensorsFile(const fs::path& path) {
  auto contents = std::make_shared<Contents>();
  contents->path = path;
  std::uint64_t size = 0;
  contents->fd = checkpoint::open_for_reading(path, size);
  if (size < safetensors::kLengthBytes) {
    throw Error{ErrorCode::corrupt, in_quotes(path.native()) + " has " + std::to_string(size) +
                                        " bytes: no safetensors file"};
  }
  std::array<std::byte, safetensors::kLengthBytes> first{};
  checkpoint::read_at(contents->fd.get(), first, 0, path);
  std::string text(safetensors::header_length(first, size, path.native()), '\0');
  checkpoint::read_at(contents->fd.get(), std::as_writable_bytes(std::span{text}), first.size(),
                      path);
  contents->header = safetensors::parse_header(text, size, path.native());
  for (const auto& entry : contents->header.entries) contents->by_name.emplace(entry.name, &entry);
  contents_ = std::move(contents);
}

const fs::path& SafetensorsFile::path() const noexcept { return contents_->path; }
const TensorMetadata& SafetensorsFile::metadata() const noexcept {
  return contents_->header.metadata;
}
std::span<const SafetensorsEntry> SafetensorsFile::entries() const noexcept {
  return contents_->header.entries;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto at = contents_->by_name.find(name);
  return at == contents_->by_name.end() ? nullptr : at->second;
}

HostTensor SafetensorsFile::read(std::string_view name) const {
  const auto* entry = find(name);
  if (entry == nullptr) refuse(contents_->path.native(), name, "isn't in it");
  if (!entry->dtype) refuse(contents_->path.native(), name, "is of the type " + entry->type);
  HostTensor tensor{*entry->dtype, entry->shape};
  read_bytes(*entry, 0, tensor.bytes());
  return tensor;
}

void SafetensorsFile::read(std::string_view name, const TensorView& into) const {
  const auto* entry = find(name);
  const auto& file = contents_->path.native();
  if (entry == nullptr) refuse(file, name, "isn't in it");
  if (entry->dtype != into.dtype || entry->shape != into.shape) {
    refuse(file, name,
           "is " + entry->type + " " + to_string(entry->shape) + ", not " +
               std::string{safetensors::type_of(into.dtype)} + " " + to_string(into.shape));
  }
  if (into.device.kind != Device::Kind::cpu) refuse(file, name, "can only be read to the host");
  read_bytes(*entry, 0, {static_cast<std::byte*>(into.data), into.bytes()});
}

void SafetensorsFile::read_bytes(const SafetensorsEntry& entry, std::uint64_t from,
                                 std::span<std::byte> into) const {
  if (from > entry.bytes || into.size() > entry.bytes - from) {
    refuse(contents_->path.native(), entry.name,
           "has " + std::to_string(entry.bytes) + " bytes, " + std::to_string(into.size()) +
               " from byte " + std::to_string(from) + " were asked for");
  }
  checkpoint::read_at(contents_->fd.get(), into, entry.begin + from, contents_->path);
}

SafetensorsModel::SafetensorsModel(const fs::path& path) {
  const auto file = entrance(path);
  name_ = file.native();
  if (file.extension() != ".json") {
    files_.emplace_back(file);
    for (const auto& entry : files_.front().entries()) where_.emplace(entry.name, 0);
    return;
  }
  std::map<std::string, std::size_t> opened;
  for (auto& [tensor, name] : read_index(file)) {
    const auto [at, is_new] = opened.try_emplace(name, files_.size());
    if (is_new) files_.emplace_back(file.parent_path() / name);
    if (files_[at->second].find(tensor) == nullptr) {
      throw Error{ErrorCode::corrupt, in_quotes(name_) + ": tensor " + in_quotes(tensor) +
                                          " isn't in " + in_quotes(name)};
    }
    where_.emplace(tensor, at->second);
  }
}

std::vector<std::string> SafetensorsModel::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : where_) names.push_back(name);
  return names;
}
bool SafetensorsModel::contains(std::string_view name) const noexcept {
  return where_.contains(name);
}
HostTensor SafetensorsModel::read(std::string_view name) const { return file_of(name).read(name); }
void SafetensorsModel::read(std::string_view name, const TensorView& into) const {
  file_of(name).read(name, into);
}
const SafetensorsFile& SafetensorsModel::file_of(std::string_view name) const {
  const auto at = where_.find(name);
  if (at == where_.end()) refuse(name_, name, "isn't in it");
  return files_[at->second];
}

void save_safetensors(const fs::path& path, std::span<const NamedTensor> tensors,
                      const TensorMetadata& metadata) {
  const auto layout = safetensors::lay_out(tensors, metadata);
  StagedFiles files{path.parent_path()};
  files.add(path.filename().native(), pieces_of(layout));
  files.make_valid({});
}

std::vector<std::string> save_safetensors_model(const fs::path& folder,
                                                std::span<const NamedTensor> tensors,
                                                std::uint64_t max_shard_bytes,
                                                const TensorMetadata& metadata,
                                                std::string_view stem) {
  return checkpoint::save_model_files(FileOps::real(), folder, tensors, max_shard_bytes, metadata,
                                      stem);
}

std::vector<std::string> checkpoint::save_model_files(FileOps& ops, const fs::path& folder,
                                                      std::span<const NamedTensor> tensors,
                                                      std::uint64_t max_shard_bytes,
                                                      const TensorMetadata& metadata,
                                                      std::string_view stem) {
  // All names first, to detect one that is in two files.
  [[maybe_unused]] const auto checked = safetensors::lay_out(tensors, metadata);
  const auto groups = safetensors::split_by_size(tensors, max_shard_bytes);
  const auto index = std::string{stem} + ".safetensors.index.json";
  finish_renames(ops, folder, index);
  remove_leftovers(ops, folder, [](const std::string&) {});
  StagedFiles files{folder, ops};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    names.push_back(safetensors::file_name(stem, i, groups.size()));
    files.add(names.back(), pieces_of(safetensors::lay_out(groups[i], metadata)));
  }
  if (groups.size() > 1) {
    names.push_back(index);
    const auto text = safetensors::index_text(groups, stem);
    const Bytes piece = std::as_bytes(std::span{text});
    files.add(index, {&piece, 1});
  }
  // Left-overs of an earlier model with other files would be taken for this one.
  auto outdated = other_shards(folder, stem, names);
  const auto other = groups.size() > 1 ? safetensors::file_name(stem, 0, 1) : index;
  std::error_code none;
  if (fs::exists(folder / other, none)) outdated.insert(outdated.begin(), other);
  files.make_valid(outdated);
  return names;
}

}  // namespace acc::runtime
