#include "runtime/checkpoint/known_checkpoints.hpp"

#include "runtime/checkpoint/manifest.hpp"

#include <sys/stat.h>

#include <acc/checkpoint.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <string_view>
#include <system_error>

namespace acc::runtime::checkpoint {

namespace {

/// Time of files: its steps are up to 2 s long (FAT, old NFS servers), else milliseconds.
constexpr std::chrono::seconds kSettled{3};

fs::path manifest_of(const fs::path& folder, std::uint64_t number) {
  return present(folder / checkpoint_name(number)) / kManifest;
}

std::int64_t nanoseconds(const timespec& time) {
  return std::chrono::nanoseconds{std::chrono::seconds{time.tv_sec}}.count() + time.tv_nsec;
}

}  // namespace

std::optional<KnownCheckpoints::Facts> KnownCheckpoints::settled_facts(
    const fs::path& manifest) const {
  struct stat seen {};
  if (::stat(manifest.c_str(), &seen) != 0) return std::nullopt;
  const Facts facts{seen.st_dev, seen.st_ino, seen.st_size, nanoseconds(seen.st_mtim),
                    nanoseconds(seen.st_ctim)};
  const std::chrono::nanoseconds age =
      now_().time_since_epoch() - std::chrono::nanoseconds{facts.changed_ns};
  if (age < kSettled) return std::nullopt;
  return facts;
}

KnownCheckpoints::Mark KnownCheckpoints::mark_of(const fs::path& folder,
                                                 std::uint64_t number) const {
  const auto manifest = manifest_of(folder, number);
  const auto of_text = std::hash<std::string_view>{};
  const auto facts = settled_facts(manifest);  // first: it may be changed while it is read
  std::error_code unknown;
  if (fs::status(manifest, unknown).type() == fs::file_type::not_found)
    return {of_text(""), std::nullopt};
  try {
    return {of_text(read_small(manifest, kMaxManifest)), facts};
  } catch (const Error&) {
    return {};
  }
}

bool KnownCheckpoints::has_changed(const fs::path& folder, std::uint64_t number,
                                   Mark& known) const {
  if (known.facts && settled_facts(manifest_of(folder, number)) == known.facts) return false;
  const auto mark = mark_of(folder, number);
  if (!mark.hash || !known.hash) return false;
  if (*mark.hash != *known.hash) return true;
  known.facts = mark.facts;
  return false;
}

void KnownCheckpoints::look(const fs::path& folder) {
  marks_.reset();
  try {
    std::map<std::uint64_t, Mark> marks;
    for (const auto number : list_checkpoints(folder)) marks[number] = mark_of(folder, number);
    marks_ = std::move(marks);
  } catch (const Error&) {
    // As said: the caller's own access reports it.
  }
}

void KnownCheckpoints::note(const fs::path& folder, std::uint64_t number) {
  if (marks_) (*marks_)[number] = mark_of(folder, number);
}

std::vector<std::uint64_t> KnownCheckpoints::foreign(const fs::path& folder) {
  std::vector<std::uint64_t> others;
  if (!marks_) return others;
  for (const auto number : list_checkpoints(folder)) {
    const auto known = marks_->find(number);
    if (known == marks_->end() || has_changed(folder, number, known->second))
      others.push_back(number);
  }
  std::ranges::reverse(others);
  return others;
}

}  // namespace acc::runtime::checkpoint
