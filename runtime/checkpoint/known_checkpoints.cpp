#include "runtime/checkpoint/known_checkpoints.hpp"

#include "runtime/checkpoint/manifest.hpp"

#include <sys/stat.h>

#include <acc/checkpoint.hpp>
#include <acc/error.hpp>
#include <algorithm>

namespace acc::runtime::checkpoint {

KnownCheckpoints::Mark KnownCheckpoints::mark_of(const fs::path& folder, std::uint64_t number) {
  const auto manifest = present(folder / checkpoint_name(number)) / kManifest;
  struct stat facts {};
  if (::stat(manifest.c_str(), &facts) != 0) return std::nullopt;
  constexpr std::int64_t kNanos = 1'000'000'000;
  return std::pair{facts.st_mtim.tv_sec * kNanos + facts.st_mtim.tv_nsec,
                   static_cast<std::uint64_t>(facts.st_size)};
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

std::vector<std::uint64_t> KnownCheckpoints::foreign(const fs::path& folder) const {
  std::vector<std::uint64_t> others;
  if (!marks_) return others;
  for (const auto number : list_checkpoints(folder)) {
    const auto known = marks_->find(number);
    if (known == marks_->end() || known->second != mark_of(folder, number))
      others.push_back(number);
  }
  std::ranges::reverse(others);
  return others;
}

}  // namespace acc::runtime::checkpoint
