#include "runtime/checkpoint/save.hpp"

#include "common/text.hpp"
#include "runtime/checkpoint/agreement.hpp"
#include "runtime/checkpoint/blocks.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/checkpoint/safetensors_format.hpp"

#include <acc/agent.hpp>
#include <acc/safetensors.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace acc::runtime::checkpoint {
namespace {

std::string piece_stem(std::string_view part, int rank, int ranks) {
  std::array<char, 48> suffix{};
  std::snprintf(suffix.data(), suffix.size(), "-rank-%05d-of-%05d", rank, ranks);
  return std::string{part} + suffix.data();
}

/// Writes the files of one rank.
class PartWriter {
 public:
  PartWriter(FileOps& files, const SavePlan& plan, const fs::path& folder, int rank, int ranks)
      : files_{files}, plan_{plan}, folder_{folder}, rank_{rank}, ranks_{ranks} {}

  [[nodiscard]] Report write(const HostState& state) {
    std::map<std::pair<std::string, Placement>, std::vector<const StateTensor*>> sets;
    for (const auto& tensor : state.tensors) {
      sets[{tensor.part, tensor.placement}].push_back(&tensor);
    }
    for (const auto& [set, tensors] : sets) write_set(set.first, set.second, tensors);
    if (!state.shared.empty()) write_text(std::string{kSharedState}, state.shared);
    if (!state.per_rank.empty()) write_text(rank_state_name(rank_), state.per_rank);
    return std::move(report_);
  }

 private:
  void write_text(const std::string& name, std::string_view text) {
    report_.files.push_back(write_file(files_, folder_ / name, text));
  }

  void write_set(const std::string& part, Placement placement,
                 const std::vector<const StateTensor*>& tensors) {
    const auto stem = placement == Placement::sharded ? piece_stem(part, rank_, ranks_) : part;
    std::vector<NamedTensor> named;
    for (const auto* tensor : tensors) named.push_back({tensor->name, tensor->view});
    const auto groups = safetensors::split_by_size(named, plan_.max_shard_bytes);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const auto name = safetensors::file_name(stem, i, groups.size());
      write_tensors(name, groups[i]);
      for (const auto& tensor : groups[i]) {
        const auto& view = tensor.view;
        report_.tensors.push_back({{tensor.name, part, view.dtype, view.shape, placement},
                                   {{name, view.shape.empty() ? 1 : view.shape.front()}}});
      }
    }
    // Pieces of a rank are of no use to a program that reads an index.
    if (groups.size() > 1 && placement == Placement::replicated) {
      write_text(stem + ".safetensors.index.json", safetensors::index_text(groups, stem));
    }
  }

  void write_tensors(const std::string& name, const std::vector<NamedTensor>& tensors) {
    const auto layout = safetensors::lay_out(tensors, safetensors::weights_metadata());
    std::vector<Bytes> pieces{std::as_bytes(std::span{layout.head})};
    for (const auto* tensor : layout.order) {
      pieces.emplace_back(static_cast<const std::byte*>(tensor->view.data), tensor->view.bytes());
    }
    report_.files.push_back(write_file(files_, folder_ / name, pieces, plan_.threads));
  }

  FileOps& files_;
  const SavePlan& plan_;
  const fs::path& folder_;
  int rank_, ranks_;
  Report report_;
};

/// The pieces of the ranks put together.
class Assembly {
 public:
  Assembly(std::uint64_t number, int ranks) {
    manifest_.number = number;
    manifest_.ranks = ranks;
  }

  void add(int rank, Report report) {
    for (auto& file : report.files) manifest_.files.push_back(std::move(file));
    std::size_t sharded = 0;
    for (auto& tensor : report.tensors) {
      if (tensor.facts.placement == Placement::replicated) {
        manifest_.tensors.push_back(std::move(tensor));
        continue;
      }
      ++sharded;
      if (rank == 0) {
        places_.emplace(std::pair{tensor.facts.part, tensor.facts.name}, manifest_.tensors.size());
        manifest_.tensors.push_back(std::move(tensor));
      } else {
        join(rank, tensor);
      }
    }
    if (sharded != places_.size()) {
      refuse(rank, "has " + std::to_string(sharded) + " sharded tensors, rank 0 has " +
                       std::to_string(places_.size()));
    }
  }

  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }

 private:
  [[noreturn]] static void refuse(int rank, const std::string& what) {
    throw Error{ErrorCode::invalid_argument,
                "rank " + std::to_string(rank) + " " + what,
                {rank},
                "checkpoint"};
  }

  void join(int rank, const TensorRecord& tensor) {
    const auto who = "sharded tensor '" + printable(tensor.facts.name) + "'";
    const auto at = places_.find({tensor.facts.part, tensor.facts.name});
    if (at == places_.end()) refuse(rank, "has the " + who + ", rank 0 hasn't");
    auto& whole = manifest_.tensors[at->second];
    const auto& mine = tensor.facts.shape;
    const auto& theirs = whole.facts.shape;
    if (tensor.facts.dtype != whole.facts.dtype || mine.size() != theirs.size() ||
        !std::equal(mine.begin() + 1, mine.end(), theirs.begin() + 1)) {
      refuse(rank, "has the " + who + " as " + std::string{to_string(tensor.facts.dtype)} + " " +
                       to_string(mine) + ", the ranks before as " +
                       std::string{to_string(whole.facts.dtype)} + " " + to_string(theirs));
    }
    whole.facts.shape.front() += mine.front();
    whole.pieces.push_back(tensor.pieces.front());
  }

  Manifest manifest_;
  std::map<std::pair<std::string, std::string>, std::size_t> places_;  ///< of the sharded ones
};

std::optional<Error> caught(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (...) {
    return as_error(std::current_exception());
  }
}

/// The first rank that failed, reported to all.
std::optional<Error> first_failure(const fs::path& target, const std::vector<Report>& reports) {
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const auto& failure = reports[rank].failure;
    if (!failure) continue;
    return Error{failure->code(),
                 target.filename().native() + " wasn't saved, rank " + std::to_string(rank) + ": " +
                     failure->what(),
                 {static_cast<int>(rank)},
                 "checkpoint"};
  }
  return std::nullopt;
}

/// The one place where a folder, whose bytes are all on disk, becomes a checkpoint. A machine that
/// was frozen while the others began the next attempt may wake up right here, so the job's
/// coordinator is asked first.
void make_valid(FileOps& files, const fs::path& folder, const fs::path& target, const Tell& tell) {
  if (!agent::is_current()) {
    throw Error{ErrorCode::aborted,
                target.filename().native() +
                    " wasn't made valid: a later attempt of the job has begun without this "
                    "process, whose machine was frozen or cut off"};
  }
  put_in_place(files, folder, target, tell);
}

Standing standing_of(const SavePlan& plan) {
  return plan.lock != nullptr ? Standing::numbered : Standing::by_itself;
}

/// With the folder's lock, if this run didn't hold it all the time: has another run, which has
/// ended since, written here after this one had looked what is there?
void refuse_mixing(const SavePlan& plan, const fs::path& folder) {
  if (plan.known == nullptr) return;
  const auto others = plan.known->foreign(folder);
  if (others.empty()) return;
  std::vector<std::string> names;
  for (const auto number : others) names.push_back(checkpoint_name(number));
  if (names.size() > 3) names = {names.front(), "…", names.back()};
  throw Error{ErrorCode::invalid_argument,
              "another run, or another part of this program, wrote " + join(names, ", ") + " to " +
                  in_quotes(folder.native()) + " since this one loaded or began; " +
                  checkpoint_name(plan.number) +
                  " wasn't saved, as two runs in one folder replace and remove each other's "
                  "checkpoints. Give each run a folder of its own (project_dir), or load again to "
                  "go on from " +
                  names.back()};
}

/// Of what wasn't compared the lock isn't kept: the next save would take it as compared.
void lock_folder(FileOps& files, const SavePlan& plan, const fs::path& folder, const Tell& tell) {
  if (!plan.lock->take(folder, tell, files)) return;
  try {
    refuse_mixing(plan, folder);
  } catch (...) {
    plan.lock->release();
    throw;
  }
}

/// Pruning affects a later attempt, too.
bool may_prune(const Tell& tell) {
  try {
    return agent::is_current();
  } catch (const Error& error) {
    tell(std::string{"older checkpoints stay: "} + error.what());
    return false;
  }
}

/// Rank 0: with all reports there, makes the folder a checkpoint.
void finish(FileOps& files, const SavePlan& plan, const fs::path& folder,
            const std::vector<std::string>& texts, const Tell& tell) {
  std::vector<Report> reports;
  for (const auto& text : texts) reports.push_back(parse_report(text));
  if (const auto failure = first_failure(plan.target, reports)) throw *failure;
  Assembly assembly{plan.number, static_cast<int>(reports.size())};
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    assembly.add(static_cast<int>(rank), std::move(reports[rank]));
  }
  [[maybe_unused]] const auto record =
      write_file(files, folder / kManifest, to_text(assembly.manifest()));
  files.sync_folder(folder);
  require_replaceable(plan.target, standing_of(plan));  // it may have been filled meanwhile
  const auto placed = caught([&] { make_valid(files, folder, plan.target, tell); });
  // Also of a failure: it may have been in place already.
  if (plan.known != nullptr) plan.known->note(plan.target.parent_path(), plan.number);
  if (placed) throw *placed;
  if (plan.removal.keep > 0 && may_prune(tell))
    keep_last(files, plan.target.parent_path(), plan.number, plan.removal, tell);
}

/// Ranks may see the folder under paths of their own, but not another name in it.
void require_same_target(const fs::path& target, const fs::path& of_rank_0, int rank) {
  if (target.filename() == of_rank_0.filename()) return;
  throw Error{ErrorCode::invalid_argument,
              "the ranks save to different paths: rank 0 to " + in_quotes(of_rank_0.native()) +
                  ", rank " + std::to_string(rank) + " to " + in_quotes(target.native()),
              {rank},
              "checkpoint"};
}

/// Where rank 0 writes.
struct Begun {
  fs::path folder;     ///< temporary
  fs::path of_rank_0;  ///< its target
};

/// Rank 0 makes the temporary folder. @return it, or why there is none, on every rank.
Begun begin(ProcessGroup& group, FileOps& files, const SavePlan& plan, const Tell& tell) {
  std::string answer;
  if (group.rank() == 0) {
    const auto parent = plan.target.parent_path();
    const auto name = temporary_name(this_writer(), plan.target.filename().native());
    const auto failure = caught([&] {
      require_replaceable(plan.target, standing_of(plan));
      make_folders(files, parent);
      if (plan.lock != nullptr) lock_folder(files, plan, parent, tell);
      remove_leftovers(files, parent, tell);
      files.make_folder(parent / name);
    });
    answer = failure ? "-" + to_text(failure) : "+" + name + '\0' + plan.target.native();
  }
  answer = group.broadcast_object(answer, 0, call_for_files(group));
  if (answer.empty() || answer.front() != '+') throw *parse_failure(answer.substr(1));
  const auto end = std::min(answer.find('\0'), answer.size() - 1);
  return {plan.target.parent_path() / answer.substr(1, end - 1), answer.substr(end + 1)};
}

void require_visible(const fs::path& folder, int rank) {
  std::error_code none;
  if (fs::is_directory(folder, none)) return;
  throw Error{ErrorCode::system,
              "'" + printable(folder.parent_path().native(), 500) +
                  "' isn't the folder that rank 0 has under this name: "
                  "checkpoints need one that all ranks see",
              {rank},
              "checkpoint"};
}

}  // namespace

void save(ProcessGroup& group, FileOps& files, const SavePlan& plan, const HostState& state,
          const std::optional<Error>& failure, const Tell& tell) {
  const Begun begun = begin(group, files, plan, tell);
  const auto& folder = begun.folder;
  const auto rank = group.rank();
  Report report;
  report.failure = failure;
  if (!failure) {
    report.failure = caught([&] {
      require_same_target(plan.target, begun.of_rank_0, rank);
      require_visible(folder, rank);
      report = PartWriter{files, plan, folder, rank, group.size()}.write(state);
    });
  }
  const auto undo = [&] {
    if (rank == 0) [[maybe_unused]]
      const auto ignored = caught([&] { remove_tree(files, folder); });
  };
  std::string verdict;
  try {
    const auto texts = group.gather_object(to_text(report), 0, call_for_files(group));
    if (rank == 0) verdict = to_text(caught([&] { finish(files, plan, folder, texts, tell); }));
    if (!verdict.empty()) undo();
    verdict = group.broadcast_object(verdict, 0, call_for_files(group));
  } catch (...) {
    undo();
    throw;
  }
  if (auto failed = parse_failure(verdict)) throw *std::move(failed);
}

}  // namespace acc::runtime::checkpoint
