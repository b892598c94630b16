#include "runtime/checkpoint/restore.hpp"

#include "common/text.hpp"
#include "runtime/checkpoint/agreement.hpp"
#include "runtime/checkpoint/manifest.hpp"

#include <nlohmann/json.hpp>

#include <zlib.h>

#include <acc/error.hpp>
#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

namespace acc::runtime::checkpoint {
namespace {

using nlohmann::json;

/// The view of one rank of a checkpoint: a digest of its manifest, or an error.
struct Verdict {
  std::optional<Checkpoint> opened;
  std::string digest;
  std::optional<Error> complaint;
};

Verdict examine(const fs::path& path, int rank, int ranks, int threads) {
  Verdict verdict;
  try {
    verdict.opened.emplace(path);
    const auto text =
        read_small(verdict.opened->path() / kManifest, std::numeric_limits<std::int32_t>::max());
    verdict.digest = std::to_string(
        ::crc32_z(0, reinterpret_cast<const unsigned char*>(text.data()), text.size()));
    verdict.opened->verify(rank, ranks, threads);
  } catch (...) {
    verdict.complaint = as_error(std::current_exception());
  }
  return verdict;
}

/// For a writer that is quicker than this reader, again and again.
constexpr std::size_t kMostLookedAt = 10'000;

/// Is it complete and equal on every rank? @return why not, damage before mere unreadability;
/// nothing: it is.
std::optional<Error> disagreement(ProcessGroup& group, const Verdict& mine) {
  const auto texts = group.all_gather_object(
      mine.complaint ? "-" + to_text(mine.complaint) : "+" + mine.digest, call_for_files(group));
  std::optional<Error> found;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const auto who = texts.size() > 1 ? "rank " + std::to_string(rank) + ": " : "";
    std::optional<Error> complaint;
    if (texts[rank].starts_with('-')) {
      complaint = parse_failure(std::string_view{texts[rank]}.substr(1));
    } else if (texts.front().starts_with('+') && texts[rank] != texts.front()) {
      complaint = Error{ErrorCode::corrupt, "another checkpoint is there than on rank 0"};
    }
    if (!complaint || (found && complaint->code() != ErrorCode::corrupt)) continue;
    found =
        Error{complaint->code(), who + complaint->what(), {static_cast<int>(rank)}, "checkpoint"};
    if (found->code() == ErrorCode::corrupt) break;
  }
  return found;
}

/// Where this rank's rows of each sharded tensor begin.
class Cut {
 public:
  Cut(ProcessGroup& group, const CheckpointState& state) {
    auto mine = json::array();
    for (const auto& tensor : state.tensors) {
      if (tensor.placement != Placement::sharded) continue;
      // That a scalar can't be in pieces is checked later, where it fails on all ranks alike.
      const auto rows = tensor.view.shape.empty() ? 0 : tensor.view.shape.front();
      mine.push_back({tensor.part, tensor.name, rows});
    }
    const auto texts = agree(group, [&] { return mine.dump(); });
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      const auto theirs = json::parse(texts[rank]);
      require_same(mine, theirs, static_cast<int>(rank));
      first_.resize(mine.size());
      total_.resize(mine.size());
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const auto rows = theirs[i][2].get<std::int64_t>();
        if (static_cast<int>(rank) < group.rank()) first_[i] += rows;
        total_[i] += rows;
      }
    }
  }
  [[nodiscard]] std::int64_t first(std::size_t sharded) const { return first_[sharded]; }
  [[nodiscard]] std::int64_t total(std::size_t sharded) const { return total_[sharded]; }

 private:
  static void require_same(const json& mine, const json& theirs, int rank) {
    const auto same = [](const json& a, const json& b) { return a[0] == b[0] && a[1] == b[1]; };
    if (std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end(), same)) return;
    throw Error{ErrorCode::invalid_argument,
                "rank " + std::to_string(rank) +
                    " asks for other sharded tensors, or in another "
                    "order",
                {rank},
                "checkpoint"};
  }

  std::vector<std::int64_t> first_, total_;
};

void read_tensors(const CheckpointState& state, const Cut& cut, const Checkpoint& from) {
  std::size_t sharded = 0;
  for (const auto& tensor : state.tensors) {
    const auto* stored = from.find(tensor.part, tensor.name);
    std::int64_t first = 0;
    auto wanted = tensor.view.shape;
    if (tensor.placement == Placement::sharded) {
      first = cut.first(sharded);
      if (!wanted.empty()) wanted.front() = cut.total(sharded);
      ++sharded;
    }
    if (stored != nullptr && stored->shape != wanted) {
      throw Error{ErrorCode::invalid_argument,
                  "tensor " + in_quotes(tensor.name) + " is " + to_string(stored->shape) +
                      " in the checkpoint, and " + to_string(wanted) +
                      (tensor.placement == Placement::sharded ? " in all pieces here" : " here")};
    }
    from.read(tensor.part, tensor.name, first, tensor.view);
  }
}

std::vector<std::string> unused(const CheckpointState& state, const Checkpoint& in) {
  std::set<std::pair<std::string_view, std::string_view>> used;
  for (const auto& tensor : state.tensors) used.emplace(tensor.part, tensor.name);
  std::vector<std::string> names;
  for (const auto& tensor : in.tensors()) {
    if (!used.contains({tensor.part, tensor.name})) names.push_back(tensor.name);
  }
  return names;
}

}  // namespace

std::vector<std::uint64_t> candidates(ProcessGroup& group, const fs::path& folder) {
  const auto texts = agree(group, [&] { return json(list_checkpoints(folder)).dump(); });
  std::set<std::uint64_t, std::greater<>> all;
  for (const auto& text : texts) {
    const auto numbers = json::parse(text).get<std::vector<std::uint64_t>>();
    all.insert(numbers.begin(), numbers.end());
  }
  return {all.begin(), all.end()};
}

std::optional<Restored> open_newest(ProcessGroup& group, const fs::path& folder, int threads,
                                    std::set<std::uint64_t>& bad, const Tell& tell) {
  std::vector<std::string> skipped;
  std::set<std::uint64_t> looked_at;
  // Again and again until nothing is new: a run that writes here may have removed what was listed,
  // and has saved newer ones then.
  auto numbers = candidates(group, folder);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto number = numbers[i];
    const auto path = folder / checkpoint_name(number);
    auto verdict = examine(path, group.rank(), group.size(), threads);
    std::error_code unknown;
    if (verdict.complaint && !fs::exists(present(path), unknown) && !unknown)
      verdict.complaint = Error{ErrorCode::corrupt, in_quotes(path.native()) + " isn't there"};
    const auto problem = disagreement(group, verdict);
    if (problem && problem->code() != ErrorCode::corrupt) {
      throw Error{problem->code(),
                  checkpoint_name(number) + " can't be read, which doesn't make it a bad one: " +
                      problem->what() + ". Try again; if it is lost, remove it",
                  problem->ranks(), "checkpoint"};
    }
    if (!problem) return Restored{*std::move(verdict.opened), {}, {}, {}, std::move(skipped)};
    bad.insert(number);
    skipped.push_back(checkpoint_name(number) + ": " + problem->what());
    if (group.rank() == 0) tell(checkpoint_name(number) + " is passed over: " + problem->what());
    looked_at.insert(number);
    if (i + 1 < numbers.size() || looked_at.size() > kMostLookedAt) continue;
    const auto now = candidates(group, folder);
    std::ranges::copy_if(now, std::back_inserter(numbers),
                         [&](std::uint64_t one) { return !looked_at.contains(one); });
  }
  if (skipped.empty()) return std::nullopt;
  throw Error{ErrorCode::corrupt, "none of the checkpoints in " + in_quotes(folder.native()) +
                                      " is whole: " + join(skipped, "; ")};
}

Restored open_this(ProcessGroup& group, const fs::path& path, int threads) {
  auto verdict = examine(path, group.rank(), group.size(), threads);
  if (const auto problem = disagreement(group, verdict)) throw *problem;
  return {*std::move(verdict.opened), {}, {}, {}, {}};
}

bool was_removed(ProcessGroup& group, const Restored& restored, bool may_be) {
  std::error_code unknown;
  const bool gone = !fs::exists(present(restored.checkpoint.path()), unknown) && !unknown;
  const auto* const mine = !may_be ? "other" : gone ? "gone" : "there";
  std::vector<std::string> all;
  try {
    all = group.all_gather_object(mine, call_for_files(group));
  } catch (const Error&) {
    return false;  // the group is broken, of which the failure tells
  }
  return std::ranges::find(all, "other") == all.end() &&
         std::ranges::find(all, "gone") != all.end();
}

void fill(ProcessGroup& group, const CheckpointState& state, Restored& restored) {
  const Cut cut{group, state};
  agree(group, [&]() -> std::string {
    read_tensors(state, cut, restored.checkpoint);
    restored.shared = restored.checkpoint.shared();
    restored.per_rank = restored.checkpoint.of_rank(group.rank());
    restored.unused = unused(state, restored.checkpoint);
    return {};
  });
}

}  // namespace acc::runtime::checkpoint
