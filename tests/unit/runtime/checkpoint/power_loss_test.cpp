#include "tests/support/thread_groups.hpp"
#include "tests/unit/runtime/checkpoint/tools.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>

#include <acc/checkpoint.hpp>
#include <algorithm>
#include <map>
#include <set>

using namespace acc::testing;
using acc::runtime::Error;

namespace {

struct PowerLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What a machine may have forgotten when it comes back: whatever wasn't synced.
enum class Forgets {
  bytes,    ///< of files that weren't synced: half of them is there
  names,    ///< of files and folders made in a folder that wasn't synced
  renames,  ///< in a folder that wasn't synced: they haven't happened
};

/// Does all for real, keeps what isn't synced yet, and loses the power before the k-th operation.
class Machine : public checkpoint::FileOps {
 public:
  explicit Machine(std::size_t lasts) : lasts_{lasts} {}

  acc::UniqueFd create(const fs::path& path) override {
    step();
    unsynced_files_.insert(path);
    new_names_[path.parent_path()].insert(path);
    return FileOps::create(path);
  }
  void write(int fd, std::span<const std::byte> bytes, std::uint64_t at,
             const fs::path& path) override {
    step();
    FileOps::write(fd, bytes, at, path);
  }
  void sync(int, const fs::path& path) override {
    step();
    unsynced_files_.erase(path);
  }
  void make_folder(const fs::path& path) override {
    step();
    FileOps::make_folder(path);
    new_names_[path.parent_path()].insert(path);
  }
  void rename(const fs::path& from, const fs::path& to) override {
    step();
    FileOps::rename(from, to);
    moves_[to.parent_path()].push_back({from, to, false});
  }
  bool exchange(const fs::path& one, const fs::path& other) override {
    step();
    FileOps::exchange(one, other);
    moves_[other.parent_path()].push_back({one, other, true});
    return true;
  }
  void remove(const fs::path& path) override {
    step();
    FileOps::remove(path);
  }
  void sync_folder(const fs::path& path) override {
    step();
    new_names_.erase(path);
    moves_.erase(path);
  }

  [[nodiscard]] bool lost() const noexcept { return steps_ >= lasts_; }

  void come_back(Forgets what) {
    if (what == Forgets::renames) undo_moves();
    if (what == Forgets::bytes) {
      for (const auto& path : unsynced_files_) halve(path);
    }
    if (what == Forgets::names) {
      for (const auto& [folder, names] : new_names_) {
        for (const auto& name : names) {
          // A name that it got later, by a move that wasn't forgotten, it keeps.
          if (!was_moved(name)) fs::remove_all(where_now(name));
        }
      }
    }
  }

 private:
  struct Move {
    fs::path from, to;
    bool exchanged;
  };

  void step() {
    if (lost() || ++steps_ >= lasts_) throw PowerLost{"the power is gone"};
  }
  void undo_moves() {
    for (auto& [folder, moves] : moves_) {
      for (auto move = moves.rbegin(); move != moves.rend(); ++move) {
        if (!fs::exists(move->to)) continue;  // removed since
        if (move->exchanged) {
          if (fs::exists(move->from)) FileOps::exchange(move->from, move->to);
        } else {
          FileOps::rename(move->to, move->from);
        }
      }
    }
  }
  [[nodiscard]] bool was_moved(const fs::path& path) const {
    const auto moves = moves_.find(path.parent_path());
    return moves != moves_.end() &&
           std::ranges::any_of(moves->second, [&](const auto& move) { return move.from == path; });
  }
  /// A file in a folder that was renamed since lies elsewhere now.
  [[nodiscard]] fs::path where_now(fs::path path) const {
    for (const auto& [folder, moves] : moves_) {
      for (const auto& move : moves) {
        if (path.parent_path() == move.from) path = move.to / path.filename();
        if (path == move.from) path = move.to;
      }
    }
    return path;
  }
  void halve(const fs::path& path) const {
    const auto now = where_now(path);
    if (fs::exists(now)) fs::resize_file(now, fs::file_size(now) / 2);
  }

  std::size_t lasts_;
  std::size_t steps_ = 0;
  std::set<fs::path> unsynced_files_;
  std::map<fs::path, std::set<fs::path>> new_names_;  ///< by folder
  std::map<fs::path, std::vector<Move>> moves_;       ///< by folder
};

}  // namespace

TEST_CASE(
    "a machine that loses its power at any operation comes back with the old checkpoint or "
    "the new one",
    "[runtime][checkpoint][power]") {
  const auto forgets = GENERATE(Forgets::bytes, Forgets::names, Forgets::renames);
  const auto number = GENERATE(std::uint64_t{1}, std::uint64_t{2});  // replaced, new
  int olds = 0, news = 0;
  for (std::size_t k = 1;; ++k) {
    INFO("operation " << k);
    REQUIRE(k < 500);
    const TemporaryFolder folder;
    save_seed(folder.path(), 1, 1, 1);
    Machine machine{k};
    bool returned = false;
    on_ranks(1, [&](ProcessGroup& group) {
      auto options = quiet_options(folder.path());
      options.threads = 1;
      auto checkpoints = checkpointer_with(group, options, machine);
      SmallRun run{0, 1, 2};
      try {
        checkpoints.save(number, run.state());
        returned = true;
      } catch (const Error&) {
      }
    });
    machine.come_back(forgets);
    const auto found = loaded_seed(folder.path(), 1);
    REQUIRE((found == 1 || found == 2));
    // Once save has returned the new one lasts, whatever happens.
    if (returned) CHECK(found == 2);
    (found == 1 ? olds : news) += 1;
    if (!machine.lost()) break;
  }
  CHECK(olds > 15);
  CHECK(news > 0);
}

TEST_CASE("every file is synced before the manifest, and all before the name",
          "[runtime][checkpoint][power]") {
  const TemporaryFolder folder;
  std::vector<std::string> order;
  WatchedFileOps files{[&](const FileEvent& event) {
    const auto name = event.path.filename().native();
    order.push_back(std::string{event.operation} + " " +
                    (name.starts_with(".tmp-") ? "temporary" : name));
  }};
  on_ranks(1, [&](ProcessGroup& group) {
    auto checkpoints = checkpointer_with(group, quiet_options(folder / "new"), files);
    std::vector<float> a(3);
    CheckpointState state;
    state.tensors = {{"a", std::span{a}}};
    state.shared = {{"s", "1"}};
    checkpoints.save(4, state);
  });
  CHECK(order == std::vector<std::string>{
                     "make_folder new", "sync_folder " + folder.path().filename().native(),
                     "make_folder temporary", "create model.safetensors", "write model.safetensors",
                     "half model.safetensors", "sync model.safetensors", "create state.json",
                     "write state.json", "half state.json", "sync state.json",
                     "create manifest.json", "write manifest.json", "half manifest.json",
                     "sync manifest.json", "sync_folder temporary", "rename checkpoint_4",
                     "sync_folder new"});
}
