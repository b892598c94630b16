#include "tests/unit/runtime/checkpoint/tools.hpp"

#include "tests/support/thread_groups.hpp"

#include <catch2/catch.hpp>

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <system_error>

namespace acc::testing {

TemporaryFolder::TemporaryFolder() {
  auto name = (fs::temp_directory_path() / "acc-checkpoint-XXXXXX").native();
  if (::mkdtemp(name.data()) == nullptr) throw std::system_error{errno, std::generic_category()};
  path_ = name;
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code none;
  fs::remove_all(path_, none);
}

std::string contents_of(const fs::path& path) {
  std::ifstream file{path, std::ios::binary};
  REQUIRE(file.is_open());
  return {std::istreambuf_iterator<char>{file}, {}};
}
void put_contents(const fs::path& path, std::string_view text) {
  std::ofstream file{path, std::ios::binary};
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  REQUIRE(file.good());
}

void flip(const fs::path& path, std::uint64_t at, unsigned bits) {
  std::fstream file{path, std::ios::binary | std::ios::in | std::ios::out};
  file.seekg(static_cast<std::streamoff>(at));
  const auto changed = static_cast<char>(static_cast<unsigned>(file.get()) ^ bits);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(changed);
  file.flush();
  REQUIRE(file.good());
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator{folder}) {
    names.push_back(entry.path().filename().native());
  }
  std::ranges::sort(names);
  return names;
}
std::vector<std::string> leftovers_in(const fs::path& folder) {
  auto names = names_in(folder);
  std::erase_if(names, [](const auto& name) { return !name.starts_with('.'); });
  return names;
}

std::string first_line_of_command(const std::string& command, int& status) {
  auto* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), n);
  }
  status = ::pclose(pipe);
  return text.substr(0, text.find('\n'));
}

void WatchedFileOps::announce(std::string_view operation, const fs::path& path) {
  const std::lock_guard lock{guard_};
  ++count_;
  before_({operation, path, count_});
}

UniqueFd WatchedFileOps::create(const fs::path& path) {
  announce("create", path);
  return FileOps::create(path);
}
void WatchedFileOps::write(int fd, std::span<const std::byte> bytes, std::uint64_t at,
                           const fs::path& path) {
  announce("write", path);
  const auto half = bytes.size() / 2;
  FileOps::write(fd, bytes.first(half), at, path);
  announce("half", path);
  FileOps::write(fd, bytes.subspan(half), at + half, path);
}
void WatchedFileOps::sync(int fd, const fs::path& path) {
  announce("sync", path);
  FileOps::sync(fd, path);
}
void WatchedFileOps::make_folder(const fs::path& path) {
  announce("make_folder", path);
  FileOps::make_folder(path);
}
void WatchedFileOps::rename(const fs::path& from, const fs::path& to) {
  announce("rename", to);
  FileOps::rename(from, to);
}
bool WatchedFileOps::exchange(const fs::path& one, const fs::path& other) {
  if (!can_exchange) return false;
  announce("exchange", other);
  return FileOps::exchange(one, other);
}
void WatchedFileOps::remove(const fs::path& path) {
  announce("remove", path);
  FileOps::remove(path);
}
void WatchedFileOps::sync_folder(const fs::path& path) {
  announce("sync_folder", path);
  FileOps::sync_folder(path);
}

namespace {

/// As even as it goes: the first ranks have one more.
template <class T, class Make>
std::vector<T> piece(std::size_t total, int rank, int ranks, std::size_t width, Make make) {
  const auto begin = total * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks);
  const auto end = total * static_cast<std::size_t>(rank + 1) / static_cast<std::size_t>(ranks);
  std::vector<T> values;
  for (auto i = begin * width; i < end * width; ++i) values.push_back(make(i));
  return values;
}

}  // namespace

SmallRun::SmallRun(int of_rank, int of_ranks, int seed) : rank{of_rank}, ranks{of_ranks} {
  const auto value = [seed](std::size_t i) {
    return seed < 0 ? 0.0F : static_cast<float>(seed) * 10000.0F + static_cast<float>(i);
  };
  for (std::size_t i = 0; i < 300; ++i) weights.push_back(value(i));
  steps = {seed};
  momentum = piece<float>(kMomentum, rank, ranks, 1, value);
  second = piece<BFloat16>(kRows, rank, ranks, 3,
                           [&](std::size_t i) { return BFloat16{value(i % 16)}; });
  if (seed < 0) return;
  shared = {{"sampler", "{\"epoch\":" + std::to_string(seed) + ",\"seen\":640}"}};
  per_rank = {{"rng", "[" + std::to_string(seed) + "," + std::to_string(rank) + "]"}};
}

CheckpointState SmallRun::state() {
  CheckpointState all;
  all.tensors = {
      {"weights", TensorView{std::span{weights}, {3, 100}}},
      {"steps", TensorView{std::span{steps}, {}}, Placement::replicated, "optimizer"},
      {"momentum", std::span{momentum}, Placement::sharded, "optimizer"},
      {"second", TensorView{std::span{second}, {static_cast<std::int64_t>(second.size() / 3), 3}},
       Placement::sharded, "optimizer"},
  };
  all.shared = shared;
  all.per_rank = per_rank;
  return all;
}

CheckpointOptions quiet_options(const fs::path& folder) {
  CheckpointOptions options;
  options.folder = folder;
  options.tell = [](const std::string&) {};
  return options;
}

Checkpointer checkpointer_with(ProcessGroup group, CheckpointOptions options,
                               checkpoint::FileOps& files) {
  return Checkpointer{
      std::make_unique<Checkpointer::Impl>(std::move(group), std::move(options), files)};
}

std::optional<int> loaded_seed(const fs::path& folder, int ranks, std::vector<std::string>* told) {
  std::mutex guard;
  std::vector<int> seeds;
  on_ranks(ranks, [&](ProcessGroup& group) {
    auto options = quiet_options(folder);
    if (told != nullptr) {
      options.tell = [&](const std::string& what) {
        const std::lock_guard lock{guard};
        told->push_back(what);
      };
    }
    Checkpointer checkpoints{group, options};
    SmallRun run{group.rank(), ranks};
    const auto restored = checkpoints.load(run.state());
    if (!restored) return;
    run.shared = restored->shared;
    run.per_rank = restored->per_rank;
    SmallRun expected{group.rank(), ranks, static_cast<int>(run.steps.at(0))};
    if (group.rank() >= restored->checkpoint.ranks()) expected.per_rank.clear();
    const std::lock_guard lock{guard};
    seeds.push_back(run == expected ? static_cast<int>(run.steps.at(0)) : -1000);
  });
  if (seeds.empty()) return std::nullopt;
  REQUIRE(seeds.size() == static_cast<std::size_t>(ranks));
  REQUIRE(std::ranges::count(seeds, seeds.front()) == ranks);
  REQUIRE(seeds.front() != -1000);  // a mixture of states
  return seeds.front();
}

void go_on(Checkpointer& checkpoints, ProcessGroup& group) {
  SmallRun before{group.rank(), group.size()};
  checkpoints.load(before.state());
}

void save_seed(const fs::path& folder, int ranks, std::uint64_t number, int seed, int keep_last) {
  on_ranks(ranks, [&](ProcessGroup& group) {
    auto options = quiet_options(folder);
    options.keep_last = keep_last;
    Checkpointer checkpoints{group, options};
    SmallRun run{group.rank(), ranks, seed};
    if (keep_last > 0) go_on(checkpoints, group);
    checkpoints.save(number, run.state());
  });
}

}  // namespace acc::testing
