#include "runtime/weights/merge.hpp"

#include "common/text.hpp"
#include "runtime/checkpoint/folder.hpp"
#include "runtime/checkpoint/model_files.hpp"
#include "runtime/checkpoint/safetensors_format.hpp"

#include <sys/statvfs.h>

#include <acc/error.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <system_error>

namespace acc::weights {

using namespace runtime;

namespace {

constexpr std::string_view kStem = "model";
constexpr std::string_view kIndex = "model.safetensors.index.json";

/// Bytes of a source file that belong into an output file.
struct Copy {
  std::uint64_t from = 0;
  std::uint64_t bytes = 0;
  std::size_t output = 0;
  std::uint64_t to = 0;
};

struct Output {
  std::string name;
  std::string head;
  checkpoint::StagedFiles::Open file{};
};

/// What goes where, before a byte is moved.
struct MergePlan {
  std::vector<Output> outputs;
  std::vector<std::vector<Copy>> copies;  ///< by source file, by rising place
  std::map<std::string, std::string> file_of_tensor;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t all_bytes = 0;
};

MergePlan plan_of(const Source& source, std::uint64_t max_shard_bytes) {
  MergePlan plan;
  plan.copies.resize(source.files.size());
  std::vector<std::uint64_t> sizes;
  std::vector<safetensors::Described> all;
  for (const auto& tensor : source.tensors) {
    sizes.push_back(tensor.bytes);
    all.push_back({tensor.name, tensor.type, &tensor.shape, tensor.bytes});
    plan.tensor_bytes += tensor.bytes;
  }
  const auto groups = safetensors::group_by_size(sizes, max_shard_bytes);
  // All names first, to detect one that is in two files.
  if (groups.size() > 1) [[maybe_unused]]
    const auto checked = safetensors::head_of(all, source.metadata);
  for (std::size_t number = 0; number < groups.size(); ++number) {
    const auto& group = groups[number];
    std::vector<safetensors::Described> described;
    for (const auto index : group) described.push_back(all[index]);
    auto head = safetensors::head_of(described, source.metadata);
    const auto name = safetensors::file_name(kStem, number, groups.size());
    std::uint64_t at = head.text.size();
    for (const auto place : head.order) {
      const auto& tensor = source.tensors[group[place]];
      plan.file_of_tensor[tensor.name] = name;
      for (const auto& extent : tensor.extents) {
        if (extent.bytes > 0)
          plan.copies[extent.file].push_back({extent.begin, extent.bytes, number, at});
        at += extent.bytes;
      }
    }
    plan.all_bytes += head.bytes;
    plan.outputs.push_back({name, std::move(head.text)});
  }
  for (auto& copies : plan.copies) std::ranges::sort(copies, {}, &Copy::from);
  return plan;
}

/// Names of a model that is in the folder.
std::vector<std::string> models_in(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code failed;
  fs::directory_iterator entry{folder, failed};
  for (const fs::directory_iterator end; !failed && entry != end; entry.increment(failed)) {
    auto name = entry->path().filename().native();
    if (name == kIndex || name == safetensors::file_name(kStem, 0, 1) ||
        safetensors::is_shard_of(name, kStem))
      found.push_back(std::move(name));
  }
  std::ranges::sort(found);
  return found;
}

std::string size_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit < 6; ++unit) value /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

/// Told before a byte is written: a full disk after an hour costs the hour.
void require_space(const fs::path& folder, std::uint64_t bytes) {
  struct statvfs facts {};
  if (::statvfs(folder.c_str(), &facts) != 0) return;  // the write will tell
  const auto free = std::uint64_t{facts.f_bavail} * facts.f_frsize;
  if (free >= bytes) return;
  throw Error{ErrorCode::system, in_quotes(folder.native()) +
                                     ": No space left on device: " + size_text(bytes) +
                                     " are needed, " + size_text(free) + " are free"};
}

class Copier {
 public:
  Copier(checkpoint::FileOps& ops, std::vector<Output>& outputs, const std::function<void()>& stop)
      : ops_{ops},
        outputs_{outputs},
        stop_{stop},
        buffer_{std::make_unique_for_overwrite<std::byte[]>(checkpoint::kBlock)} {}

  /// Block by block, so that each is compared before its bytes are used.
  void copy_from(const SourceFile& file, const std::vector<Copy>& copies) {
    std::uint64_t size = 0;
    const auto fd = checkpoint::open_for_reading(file.path, size);
    if (file.record && size != file.record->bytes)
      throw Error{ErrorCode::corrupt, in_quotes(file.path.native()) + " has " +
                                          std::to_string(size) + " bytes, " +
                                          std::to_string(file.record->bytes) + " were written"};
    auto next = copies.begin();
    for (std::uint64_t at = 0; at < size; at += checkpoint::kBlock) {
      const auto end = std::min(at + checkpoint::kBlock, size);
      while (next != copies.end() && next->from + next->bytes <= at) ++next;
      const bool is_wanted = next != copies.end() && next->from < end;
      if (!is_wanted && !file.record) continue;
      stop_();
      const std::span<std::byte> bytes{buffer_.get(), static_cast<std::size_t>(end - at)};
      checkpoint::read_at(fd.get(), bytes, at, file.path);
      if (file.record)
        checkpoint::check_block(file.path, *file.record,
                                static_cast<std::size_t>(at / checkpoint::kBlock), bytes);
      for (auto copy = next; copy != copies.end() && copy->from < end; ++copy)
        write(*copy, bytes, at);
    }
  }

 private:
  /// What of `bytes`, which stand at `at` of the source, belongs to the copy.
  void write(const Copy& copy, std::span<const std::byte> bytes, std::uint64_t at) {
    const auto begin = std::max(copy.from, at);
    const auto end = std::min(copy.from + copy.bytes, at + bytes.size());
    if (begin >= end) return;
    const auto& file = outputs_[copy.output].file;
    ops_.write(
        file.fd.get(),
        bytes.subspan(static_cast<std::size_t>(begin - at), static_cast<std::size_t>(end - begin)),
        copy.to + (begin - copy.from), file.path);
  }

  checkpoint::FileOps& ops_;
  std::vector<Output>& outputs_;
  const std::function<void()>& stop_;
  std::unique_ptr<std::byte[]> buffer_;
};

bool is_same(const fs::path& one, const fs::path& other) {
  std::error_code none;
  return fs::equivalent(one, other, none);
}

/// Is `inner` the folder, or within it?
bool is_within(const fs::path& inner, const fs::path& folder) {
  std::error_code none;
  const auto one = fs::weakly_canonical(inner, none);
  const auto other = fs::weakly_canonical(folder, none);
  const auto [left, right] = std::mismatch(other.begin(), other.end(), one.begin(), one.end());
  return left == other.end();
}

/// The folder that is read, or that of the file.
fs::path folder_of(const Source& source) {
  std::error_code none;
  if (fs::is_directory(source.path, none)) return source.path;
  return source.path.has_parent_path() ? source.path.parent_path() : fs::path{"."};
}

/// By way of symbolic links an output may be written over what is read, or into what is removed.
void check_outputs(const Source& source, const MergeOptions& options, const MergePlan& plan) {
  std::error_code none;
  // By path, not by file: of two hard links only one is replaced.
  std::vector<fs::path> read{source.path, folder_of(source) / kIndex};
  for (const auto& file : source.files) read.push_back(file.path);
  std::vector<std::string> names;
  for (const auto& output : plan.outputs) names.push_back(output.name);
  if (names.size() > 1) names.emplace_back(kIndex);
  for (const auto& name : names) {
    const auto link = options.folder / name;
    const auto target = fs::weakly_canonical(checkpoint::target_of(link), none);
    const auto same = std::ranges::find_if(
        read, [&](const fs::path& path) { return fs::weakly_canonical(path, none) == target; });
    if (same != read.end())
      throw Error{ErrorCode::invalid_argument,
                  in_quotes(link.native()) + " would be written over " + in_quotes(same->native()) +
                      ", which is read: one is a symbolic link to the other. Name another folder "
                      "for the output"};
    if (options.removes_source && source.is_checkpoint && is_within(target, source.path))
      throw Error{ErrorCode::invalid_argument,
                  in_quotes(link.native()) + " is a link to " + in_quotes(target.native()) +
                      ", in the checkpoint that --remove_checkpoint_dir would remove"};
  }
}

void check_places(const Source& source, const MergeOptions& options) {
  const auto folder = in_quotes(options.folder.native());
  std::error_code none;
  const bool is_folder = fs::is_directory(options.folder, none);
  if (fs::exists(options.folder, none) && !is_folder)
    throw Error{ErrorCode::invalid_argument,
                folder + " is a file: OUTPUT is a folder, in which model.safetensors is written"};
  if (!is_folder && options.folder.native().ends_with(".safetensors"))
    throw Error{ErrorCode::invalid_argument,
                folder +
                    ": OUTPUT is a folder, in which model.safetensors is written: leave the "
                    "file's name out"};
  const auto from = folder_of(source);
  if (is_same(options.folder, from))
    throw Error{ErrorCode::invalid_argument,
                folder + " is the folder that is read: name another one for the output"};
  if (options.removes_source && is_within(options.folder, from))
    throw Error{ErrorCode::invalid_argument,
                folder + " is in the checkpoint that --remove_checkpoint_dir would remove"};
  if (options.removes_source && !source.unread.empty())
    throw Error{ErrorCode::invalid_argument,
                source.unread +
                    " isn't in the index and so isn't copied: --remove_checkpoint_dir would remove "
                    "the only copy. Leave it out, or name the tensor in the index"};
  checkpoint::refuse_folder_of_checkpoint(options.folder);
  const auto there = models_in(options.folder);
  if (there.empty() || options.overwrites) return;
  throw Error{ErrorCode::invalid_argument, in_quotes((options.folder / there.front()).native()) +
                                               " is there already: --overwrite replaces it"};
}

/// Of a checkpoint all of it; of a model only the files that were read: a folder that a user named
/// may hold more. Where the user named a symbolic link (latest → run/checkpoint_4) both it and what
/// it leads to are removed: the link alone would free nothing.
void remove_source(const Source& source, checkpoint::FileOps& ops) {
  std::error_code failed;
  const auto real = fs::canonical(source.path, failed);
  if (failed) checkpoint::fail("remove", source.path, failed.value());
  const bool is_folder = fs::is_directory(real, failed);
  if (source.is_checkpoint) {
    // Renamed first: a partially removed checkpoint never has its own name.
    const auto doomed = real.parent_path() / checkpoint::temporary_name(checkpoint::this_writer(),
                                                                        real.filename().native());
    ops.rename(real, doomed);
    checkpoint::remove_tree(ops, doomed);
  } else {
    for (const auto& file : source.files) ops.remove(file.path);
    ops.remove(is_folder ? real / kIndex : real);
    if (is_folder) fs::remove(real, failed);  // if nothing else is in it
  }
  if (fs::is_symlink(source.path, failed) && !fs::exists(source.path, failed))
    ops.remove(source.path);
}

}  // namespace

Merged merge(const Source& source, const MergeOptions& options, const std::function<void()>& stop,
             checkpoint::FileOps& ops) {
  check_places(source, options);
  auto plan = plan_of(source, options.max_shard_bytes);
  check_outputs(source, options, plan);
  checkpoint::make_folders(ops, options.folder);
  checkpoint::finish_renames(ops, options.folder, std::string{kIndex});
  checkpoint::remove_leftovers(ops, options.folder, [](const std::string&) {});
  require_space(options.folder, plan.all_bytes);

  Merged merged;
  checkpoint::StagedFiles staged{options.folder, ops};
  for (auto& output : plan.outputs) {
    output.file = staged.create(output.name);
    ops.write(output.file.fd.get(), std::as_bytes(std::span{output.head}), 0, output.file.path);
    merged.files.push_back(output.name);
  }
  Copier copier{ops, plan.outputs, stop};
  for (std::size_t i = 0; i < source.files.size(); ++i)
    copier.copy_from(source.files[i], plan.copies[i]);
  for (auto& output : plan.outputs) {
    stop();
    ops.sync(output.file.fd.get(), output.file.path);
    output.file.fd.reset();
  }
  if (plan.outputs.size() > 1) {
    const auto text = safetensors::index_text(plan.file_of_tensor, plan.tensor_bytes);
    const checkpoint::Bytes piece = std::as_bytes(std::span{text});
    staged.add(std::string{kIndex}, {&piece, 1});
    merged.files.emplace_back(kIndex);
  }
  // Files of an older model with other names would be taken for this one's.
  auto outdated = models_in(options.folder);
  std::erase_if(outdated, [&](const std::string& name) {
    return std::ranges::find(merged.files, name) != merged.files.end();
  });
  staged.make_valid(outdated);
  if (options.removes_source) remove_source(source, ops);
  merged.tensors = source.tensors.size();
  merged.bytes = plan.tensor_bytes;
  return merged;
}

}  // namespace acc::weights
