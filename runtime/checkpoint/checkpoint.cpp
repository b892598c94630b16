#include "common/text.hpp"
#include "runtime/checkpoint/file_ops.hpp"
#include "runtime/checkpoint/folder.hpp"
#include "runtime/checkpoint/manifest.hpp"

#include <sys/stat.h>

#include <acc/checkpoint.hpp>
#include <acc/cuda.hpp>
#include <acc/error.hpp>
#include <acc/safetensors.hpp>
#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>

/// Reading a checkpoint.
namespace acc::runtime {
namespace {

namespace fs = std::filesystem;
using checkpoint::FileRecord;
using checkpoint::Manifest;
using checkpoint::TensorRecord;

/// Bytes at a time on the way to a device through the host.
constexpr std::size_t kStage = std::size_t{64} << 20;

[[noreturn]] void corrupt(const fs::path& path, const std::string& what) {
  throw Error{ErrorCode::corrupt, in_quotes(path.native()) + ": " + what};
}

void check_sizes(const fs::path& folder, const Manifest& manifest) {
  for (const auto& file : manifest.files) {
    const auto path = folder / file.name;
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) {
      if (errno != ENOENT && errno != ENOTDIR) checkpoint::fail("stat", path, errno);
      corrupt(folder, "the file " + in_quotes(file.name) + " of its manifest isn't there");
    }
    if (!S_ISREG(facts.st_mode) || static_cast<std::uint64_t>(facts.st_size) != file.bytes) {
      corrupt(path, "has " + std::to_string(facts.st_size) + " bytes, " +
                        std::to_string(file.bytes) + " were written");
    }
  }
}

/// The same rows, in elements of no dimension: what lies in one row.
std::uint64_t bytes_of_row(const TensorView& view) {
  const auto rows = view.shape.empty() ? 1 : view.shape.front();
  return rows > 0 ? view.bytes() / static_cast<std::uint64_t>(rows) : 0;
}

bool same_rows(const Shape& one, const Shape& other) {
  return one.size() == other.size() &&
         (one.empty() || std::equal(one.begin() + 1, one.end(), other.begin() + 1, other.end()));
}

/// `count` bytes of an entry, to where the view's memory is.
void read_to(const SafetensorsFile& file, const SafetensorsEntry& entry, std::uint64_t from,
             std::byte* to, std::uint64_t count, const Device& device) {
  if (device.kind == Device::Kind::cpu) {
    file.read_bytes(entry, from, {to, count});
    return;
  }
  const auto stage = std::make_unique_for_overwrite<std::byte[]>(
      static_cast<std::size_t>(std::min<std::uint64_t>(count, kStage)));
  for (std::uint64_t done = 0; done < count;) {
    const auto some = static_cast<std::size_t>(std::min<std::uint64_t>(count - done, kStage));
    file.read_bytes(entry, from + done, {stage.get(), some});
    acc::cuda::copy(to + done, stage.get(), some);
    done += some;
  }
}

}  // namespace

struct Checkpoint::Contents {
  fs::path path;
  Manifest manifest;
  std::vector<StoredTensor> tensors;  ///< in the order of the manifest's
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> by_name;
  mutable std::mutex guard;
  mutable std::map<std::string, SafetensorsFile, std::less<>> opened;  ///< guarded

  [[nodiscard]] SafetensorsFile open(const std::string& name) const {
    const std::lock_guard lock{guard};
    const auto at = opened.find(name);
    if (at != opened.end()) return at->second;
    return opened.emplace(name, SafetensorsFile{path / name}).first->second;
  }

  [[nodiscard]] const TensorRecord& record(std::string_view part, std::string_view name) const {
    const auto at = by_name.find({part, name});
    if (at != by_name.end()) return manifest.tensors[at->second];
    throw Error{ErrorCode::invalid_argument, in_quotes(path.native()) + " has no tensor " +
                                                 in_quotes(name) + " in the part " +
                                                 in_quotes(part)};
  }

  /// Checks a file's description of a piece against the manifest.
  [[nodiscard]] const SafetensorsEntry& entry(const SafetensorsFile& file,
                                              const TensorRecord& tensor, std::int64_t rows) const {
    const auto* found = file.find(tensor.facts.name);
    const auto fits = found != nullptr && found->dtype == tensor.facts.dtype &&
                      same_rows(found->shape, tensor.facts.shape) &&
                      (found->shape.empty() || found->shape.front() == rows);
    if (!fits) {
      corrupt(file.path(),
              "tensor " + in_quotes(tensor.facts.name) + " isn't as the manifest tells of it");
    }
    return *found;
  }
};

Checkpoint::Checkpoint(const fs::path& path) {
  auto contents = std::make_shared<Contents>();
  contents->path = checkpoint::present(path);
  const auto file = contents->path / checkpoint::kManifest;
  // A file that can't be examined, for lack of permission or because the disk is away, proves no
  // damage.
  std::error_code none, unknown;
  const auto there = fs::status(file, unknown);
  if (fs::is_directory(contents->path, none) && there.type() == fs::file_type::not_found) {
    corrupt(contents->path, "has no " + std::string{checkpoint::kManifest} +
                                ": it was never complete, or is no checkpoint of ours");
  }
  if (fs::exists(there) && there.type() != fs::file_type::unknown && !fs::is_regular_file(there)) {
    corrupt(file, "isn't a file");
  }
  contents->manifest = checkpoint::parse_manifest(
      checkpoint::read_small(file, checkpoint::kMaxManifest), file.native());
  check_sizes(contents->path, contents->manifest);
  for (const auto& tensor : contents->manifest.tensors) {
    contents->by_name.emplace(
        std::pair{std::string_view{tensor.facts.part}, std::string_view{tensor.facts.name}},
        contents->tensors.size());
    contents->tensors.push_back(tensor.facts);
  }
  contents_ = std::move(contents);
}

const fs::path& Checkpoint::path() const noexcept { return contents_->path; }
std::uint64_t Checkpoint::number() const noexcept { return contents_->manifest.number; }
int Checkpoint::ranks() const noexcept { return contents_->manifest.ranks; }
std::span<const StoredTensor> Checkpoint::tensors() const noexcept { return contents_->tensors; }

const StoredTensor* Checkpoint::find(std::string_view part, std::string_view name) const noexcept {
  const auto at = contents_->by_name.find({part, name});
  return at == contents_->by_name.end() ? nullptr : &contents_->tensors[at->second];
}

void Checkpoint::verify(int share, int of, int threads) const {
  std::size_t blocks = 0;
  for (const auto& file : contents_->manifest.files) blocks += checkpoint::blocks_of(file);
  const auto edge = [&](int number) {
    return blocks * static_cast<std::size_t>(number) / static_cast<std::size_t>(of);
  };
  const auto first = edge(share);
  const auto last = edge(share + 1);
  std::size_t at = 0;
  for (const auto& file : contents_->manifest.files) {
    const auto begin = std::max(first, at);
    const auto end = std::min(last, at + checkpoint::blocks_of(file));
    if (begin < end) {
      checkpoint::check_blocks(contents_->path, file, begin - at, end - begin, threads);
    }
    at += checkpoint::blocks_of(file);
  }
}

StateTexts Checkpoint::shared() const {
  const auto* file = contents_->manifest.find(checkpoint::kSharedState);
  if (file == nullptr) return {};
  return checkpoint::split_texts(checkpoint::read_checked(contents_->path, *file),
                                 (contents_->path / file->name).native());
}

StateTexts Checkpoint::of_rank(int rank) const {
  const auto* file = contents_->manifest.find(checkpoint::rank_state_name(rank));
  if (file == nullptr) return {};
  return checkpoint::split_texts(checkpoint::read_checked(contents_->path, *file),
                                 (contents_->path / file->name).native());
}

HostTensor Checkpoint::read(std::string_view part, std::string_view name) const {
  const auto& tensor = contents_->record(part, name);
  for (const auto& piece : tensor.pieces) {
    // Before memory is allocated: are the files large enough?
    const auto file = contents_->open(piece.file);
    [[maybe_unused]] const auto& entry = contents_->entry(file, tensor, piece.rows);
  }
  HostTensor whole{tensor.facts.dtype, tensor.facts.shape};
  read(part, name, 0, whole.view());
  return whole;
}

void Checkpoint::read(std::string_view part, std::string_view name, std::int64_t first_row,
                      const TensorView& into) const {
  const auto& tensor = contents_->record(part, name);
  const auto rows = into.shape.empty() ? 1 : into.shape.front();
  const auto stored = tensor.facts.shape.empty() ? 1 : tensor.facts.shape.front();
  if (into.dtype != tensor.facts.dtype || !same_rows(into.shape, tensor.facts.shape) ||
      first_row < 0 || rows < 0 || first_row > stored - rows) {
    throw Error{ErrorCode::invalid_argument,
                in_quotes(contents_->path.native()) + ": tensor " + in_quotes(name) + " is " +
                    std::string{to_string(tensor.facts.dtype)} + " " +
                    to_string(tensor.facts.shape) + "; asked for were " +
                    std::string{to_string(into.dtype)} + " " + to_string(into.shape) +
                    (first_row != 0 ? " from row " + std::to_string(first_row) : "")};
  }
  const auto row_bytes = bytes_of_row(into);
  if (row_bytes == 0) return;
  acc::cuda::synchronize(into.device);  // work on any stream may write there, or read what was
  auto* to = static_cast<std::byte*>(into.data);
  std::int64_t piece_begin = 0;
  for (const auto& piece : tensor.pieces) {
    const auto begin = std::max(first_row, piece_begin);
    const auto end = std::min(first_row + rows, piece_begin + piece.rows);
    if (begin < end) {
      const auto file = contents_->open(piece.file);
      const auto& entry = contents_->entry(file, tensor, piece.rows);
      read_to(file, entry, static_cast<std::uint64_t>(begin - piece_begin) * row_bytes,
              to + static_cast<std::uint64_t>(begin - first_row) * row_bytes,
              static_cast<std::uint64_t>(end - begin) * row_bytes, into.device);
    }
    piece_begin += piece.rows;
  }
}

}  // namespace acc::runtime
