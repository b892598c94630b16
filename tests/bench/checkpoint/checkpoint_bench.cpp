// How fast a checkpoint is written, beside `dd conv=fsync` of as many bytes to the same disk in the
// same run, by turns; how long an asynchronous save holds the loop up; how fast it is read.
// Last line: JSON.
#include "common/text.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <acc/checkpoint.hpp>
#include <acc/process_group.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;
using namespace acc::runtime;

struct Settings {
  std::uint64_t bytes = std::uint64_t{1} << 30;
  fs::path folder = ".";
  int rounds = 7;
  int ranks = 1;
  int threads = 2;
};

/// "1G", "64M", "4096"
std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  int shift = 0;
  if (text.ends_with('G')) shift = 30;
  if (text.ends_with('M')) shift = 20;
  if (text.ends_with('K')) shift = 10;
  if (shift > 0) text.remove_suffix(1);
  const auto number = acc::parse_number<std::uint64_t>(text);
  if (!number || *number == 0) return std::nullopt;
  return *number << shift;
}

bool read_settings(int argc, char** argv, Settings& settings) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i], value = argv[i + 1];
    if (name == "--folder") {
      settings.folder = value;
      continue;
    }
    const auto number = parse_bytes(value);
    if (!number) return false;
    if (name == "--bytes") {
      settings.bytes = *number;
    } else if (name == "--rounds") {
      settings.rounds = static_cast<int>(*number);
    } else if (name == "--ranks") {
      settings.ranks = static_cast<int>(*number);
    } else if (name == "--threads") {
      settings.threads = static_cast<int>(*number);
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// `dd` as a user would run it. @throws std::runtime_error
double dd_seconds(const Settings& settings, const fs::path& file) {
  const auto of = "of=" + file.native();
  const auto count = "count=" + std::to_string(settings.bytes >> 20);
  std::vector<std::string> words{"dd", "if=/dev/zero", of, "bs=1M", count, "conv=fsync"};
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  ::posix_spawn_file_actions_init(&quiet);
  ::posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  int status = -1;
  const auto seconds = seconds_of([&] {
    pid_t child = 0;
    if (::posix_spawnp(&child, "dd", &quiet, nullptr, argv.data(), environ) == 0) {
      ::waitpid(child, &status, 0);
    }
  });
  ::posix_spawn_file_actions_destroy(&quiet);
  fs::remove(file);
  if (status != 0) throw std::runtime_error{"dd failed in " + file.parent_path().native()};
  return seconds;
}

/// Tensors as models have them: some large, many small; no page of them is like another.
class Model {
 public:
  explicit Model(std::uint64_t bytes) : values_(bytes / sizeof(float)) {
    std::uint64_t state = 88172645463325252ULL;
    for (auto& value : values_) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      const auto bits = static_cast<std::uint32_t>(state);
      std::memcpy(&value, &bits, sizeof value);
    }
  }
  [[nodiscard]] CheckpointState state() {
    constexpr std::size_t kSizes[] = {4'194'304, 1024, 16'777'216, 333};
    CheckpointState all;
    std::size_t at = 0;
    for (std::size_t i = 0; at < values_.size(); ++i) {
      const auto count = std::min(kSizes[i % std::size(kSizes)], values_.size() - at);
      all.tensors.push_back({"tensor" + std::to_string(i), std::span{values_}.subspan(at, count),
                             Placement::sharded});
      at += count;
    }
    all.shared = {{"step", "1"}};
    return all;
  }
  friend bool operator==(const Model& a, const Model& b) {
    return std::memcmp(a.values_.data(), b.values_.data(), a.values_.size() * sizeof(float)) == 0;
  }

 private:
  std::vector<float> values_;
};

/// One thread a rank, each with its share of the bytes.
class Ranks {
 public:
  explicit Ranks(const Settings& settings)
      : settings_{settings}, groups_{ProcessGroup::threads(settings.ranks)} {
    for (int i = 0; i < settings.ranks; ++i) {
      models_.emplace_back(settings.bytes / static_cast<std::uint64_t>(settings.ranks));
    }
  }

  void on_all(const std::function<void(ProcessGroup&, Model&)>& work) {
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < groups_.size(); ++i) {
      others.emplace_back([&, i] { work(groups_[i], models_[i]); });
    }
    work(groups_[0], models_[0]);
    for (auto& other : others) other.join();
  }

  [[nodiscard]] CheckpointOptions options() const {
    CheckpointOptions options;
    options.folder = settings_.folder / "checkpoints";
    options.threads = settings_.threads;
    return options;
  }

 private:
  Settings settings_;
  std::vector<ProcessGroup> groups_;
  std::vector<Model> models_;
};

struct Figures {
  std::vector<double> dd, save, exposed, load;
};

void measure(Ranks& ranks, const Settings& settings, const fs::path& folder, Figures& figures) {
  const auto checkpoints = folder / "checkpoints";
  auto options = ranks.options();
  options.folder = checkpoints;
  ::sync();
  figures.dd.push_back(dd_seconds(settings, folder / "dd"));
  ::sync();
  figures.save.push_back(seconds_of([&] {
    ranks.on_all([&](ProcessGroup& group, Model& model) {
      Checkpointer{group, options}.save(1, model.state());
    });
  }));
  figures.load.push_back(seconds_of([&] {
    ranks.on_all([&](ProcessGroup& group, Model& model) {
      if (!Checkpointer{group, options}.load(model.state())) std::abort();
    });
  }));
  fs::remove_all(checkpoints);
  options.async = true;
  double exposed = 0;
  ranks.on_all([&](ProcessGroup& group, Model& model) {
    Checkpointer checkpointer{group, options};
    checkpointer.save(1, model.state());  // takes the memory of the copy
    checkpointer.wait();
    const auto seconds = seconds_of([&] { checkpointer.save(2, model.state()); });
    if (group.rank() == 0) exposed = seconds;
  });
  figures.exposed.push_back(exposed);
  fs::remove_all(checkpoints);
}

int run(const Settings& settings) {
  auto name = (fs::absolute(settings.folder) / "acc-bench-checkpoint-XXXXXX").native();
  if (::mkdtemp(name.data()) == nullptr) {
    std::perror(name.c_str());
    return 1;
  }
  struct Remove {
    fs::path path;
    ~Remove() {
      std::error_code none;
      fs::remove_all(path, none);
    }
  } folder{name};
  Ranks ranks{settings};
  Figures figures, warm;
  measure(ranks, settings, folder.path, warm);  // the disk's and our own first time
  for (int i = 0; i < settings.rounds; ++i) measure(ranks, settings, folder.path, figures);
  const auto gigabytes = static_cast<double>(settings.bytes) / 1e9;
  const auto rate = [&](const std::vector<double>& seconds) { return gigabytes / median(seconds); };
  std::vector<double> ratios;
  for (std::size_t i = 0; i < figures.dd.size(); ++i) {
    ratios.push_back(figures.dd[i] / figures.save[i]);
  }
  std::printf("%.3f GB, %d ranks, %d rounds; medians\n", gigabytes, settings.ranks,
              settings.rounds);
  std::printf("  dd conv=fsync        %6.2f GB/s\n", rate(figures.dd));
  std::printf("  save                 %6.2f GB/s   ours / dd %.2f\n", rate(figures.save),
              median(ratios));
  std::printf("  save, asynchronous   %6.0f ms in the loop\n", median(figures.exposed) * 1e3);
  std::printf("  load, checked        %6.2f GB/s\n", rate(figures.load));
  std::printf(
      "{\"bytes\":%llu,\"ranks\":%d,\"dd_GBps\":%.3f,\"save_GBps\":%.3f,\"ratio\":%.3f,"
      "\"async_ms\":%.1f,\"load_GBps\":%.3f}\n",
      static_cast<unsigned long long>(settings.bytes), settings.ranks, rate(figures.dd),
      rate(figures.save), median(ratios), median(figures.exposed) * 1e3, rate(figures.load));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  if (!read_settings(argc, argv, settings)) {
    std::fprintf(stderr,
                 "usage: acc-bench-checkpoint [--bytes 1G] [--folder F] [--rounds N] [--ranks N] "
                 "[--threads N]\n");
    return 2;
  }
  try {
    return run(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "acc-bench-checkpoint: %s\n", error.what());
    return 1;
  }
}
