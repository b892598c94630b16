#include "runtime/selftest/checks.hpp"

#include <unistd.h>

#include <acc/checkpoint.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace acc::selftest {

using namespace runtime;
namespace fs = std::filesystem;

namespace {

/// A folder of this node's ranks that is gone with the check.
class Folder {
 public:
  explicit Folder(ProcessGroup& node) : owner_{node.rank() == 0} {
    std::string name;
    if (owner_) {
      const char* parent = std::getenv("TMPDIR");
      name = std::string{parent != nullptr && *parent != '\0' ? parent : "/tmp"} +
             "/acc-test-checkpoint.XXXXXX";
      if (::mkdtemp(name.data()) == nullptr)
        name = "!'" + name + "': " + std::string{std::strerror(errno)};
    }
    path_ = node.broadcast_object(name, 0);
    if (path_.starts_with("!"))
      throw Failed{"can't make a folder for checkpoints, " + path_.substr(1) +
                   ": name another place by TMPDIR"};
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    if (owner_) fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  bool owner_;
  std::string path_;
};

/// What a rank holds at a step: a tensor that all have alike, and a piece of its own.
struct Held {
  std::vector<float> whole = std::vector<float>(1001);
  std::vector<std::int64_t> piece;
  int rank;

  explicit Held(int of_rank) : piece(static_cast<std::size_t>(of_rank) + 3), rank{of_rank} {}
  void fill(int step) {
    for (std::size_t i = 0; i < whole.size(); ++i)
      whole[i] = static_cast<float>(i) + static_cast<float>(step) * 0.5F;
    for (std::size_t i = 0; i < piece.size(); ++i)
      piece[i] = rank * 1000 + static_cast<std::int64_t>(i) + step * 7;
  }
  CheckpointState state(int step) {
    CheckpointState made;
    made.tensors.push_back({"whole", TensorView{std::span<float>{whole}}, Placement::replicated});
    made.tensors.push_back(
        {"pieces", TensorView{std::span<std::int64_t>{piece}}, Placement::sharded});
    made.shared["position"] = "{\"step\":" + std::to_string(step) + "}";
    made.per_rank["random"] = "{\"rank\":" + std::to_string(rank) + "}";
    return made;
  }
};

/// One byte in the middle of the largest file is turned over, as a bad disk does.
void damage(const fs::path& checkpoint) {
  fs::path largest;
  for (const auto& entry : fs::recursive_directory_iterator{checkpoint})
    if (entry.is_regular_file() && entry.path().extension() == ".safetensors" &&
        (largest.empty() || entry.file_size() > fs::file_size(largest)))
      largest = entry.path();
  const auto middle = static_cast<std::streamoff>(fs::file_size(largest) / 2);
  std::fstream file{largest, std::ios::in | std::ios::out | std::ios::binary};
  file.seekg(middle);
  const char byte = static_cast<char>(file.get() ^ 0x40);
  file.seekp(middle);
  file.put(byte);
}

void require(const Held& got, Held& wanted, const std::optional<Restored>& restored, int step) {
  if (!restored) throw Failed{"nothing was found where a checkpoint was saved"};
  wanted.fill(step);
  if (restored->checkpoint.number() != static_cast<std::uint64_t>(step))
    throw Failed{"checkpoint " + std::to_string(restored->checkpoint.number()) +
                 " was loaded, not " + std::to_string(step)};
  if (got.whole != wanted.whole || got.piece != wanted.piece)
    throw Failed{"what was loaded isn't what was saved"};
  if (restored->shared.at("position") != "{\"step\":" + std::to_string(step) + "}" ||
      restored->per_rank.at("random") != "{\"rank\":" + std::to_string(got.rank) + "}")
    throw Failed{"the texts that were loaded aren't those that were saved"};
}

}  // namespace

std::string check_checkpoint(ProcessGroup& group) {
  // The ranks of a node share a disk; those of several may not.
  auto node = group.split(group.rank() - group.local_rank(), group.rank(), "node");
  const Folder folder{node};
  CheckpointOptions options;
  options.folder = folder.path();
  options.tell = [](const std::string&) {};  // it is damaged on purpose
  Checkpointer checkpointer{node, options};
  Held held{node.rank()};
  for (const int step : {1, 2}) {
    held.fill(step);
    (void)checkpointer.save(static_cast<std::uint64_t>(step), held.state(step));
  }
  Held wanted{node.rank()};
  Held loaded{node.rank()};
  require(loaded, wanted, checkpointer.load(loaded.state(0)), 2);
  if (node.rank() == 0) damage(fs::path{folder.path()} / checkpoint_name(2));
  node.barrier();
  Held older{node.rank()};
  require(older, wanted, checkpointer.load(older.state(0)), 1);
  return "what was saved is loaded; a damaged one is noticed and the one before taken";
}

}  // namespace acc::selftest
