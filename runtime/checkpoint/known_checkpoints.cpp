#include "runtime/checkpoint/known_checkpoints.hpp"

#include "runtime/checkpoint/manifest.hpp"

#include <acc/checkpoint.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <functional>
#include <string_view>
#include <system_error>

namespace acc::runtime::checkpoint {

KnownCheckpoints::Mark KnownCheckpoints::mark_of(const fs::path& folder, std::uint64_t number) {
  const auto manifest = present(folder / checkpoint_name(number)) / kManifest;
  const auto of_text = std::hash<std::string_view>{};
  std::error_code unknown;
  if (fs::status(manifest, unknown).type() == fs::file_type::not_found) return of_text("");
  try {
    return of_text(read_small(manifest, kMaxManifest));
  } catch (const Error&) {
    return std::nullopt;
  }
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
    const bool is_new = known == marks_->end();
    const auto mark = is_new ? std::nullopt : mark_of(folder, number);
    if (is_new || (mark && known->second && *mark != *known->second)) others.push_back(number);
  }
  std::ranges::reverse(others);
  return others;
}

}  // namespace acc::runtime::checkpoint
