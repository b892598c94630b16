#include "agent/gpu_sampler.hpp"

#include <nlohmann/json.hpp>

#include <dlfcn.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

// NVML as of version 11; see health_nvml.cpp.
namespace acc::agent::gpu {

namespace {

using SampleJson = nlohmann::json;

constexpr unsigned kMostGpus = 64;
constexpr unsigned kMostProcesses = 256;

struct NvmlUse {
  unsigned gpu = 0;
  unsigned memory = 0;
};
struct NvmlMemory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};
/// nvmlProcessInfo_t of the functions _v2 and _v3.
struct NvmlProcess {
  unsigned pid = 0;
  unsigned long long memory = 0;
  unsigned gpu_instance = 0;
  unsigned compute_instance = 0;
};

template <class Function>
Function sampler_symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

struct NvmlSampling {
  int (*init)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, void**) = nullptr;
  int (*use)(void*, NvmlUse*) = nullptr;
  int (*memory)(void*, NvmlMemory*) = nullptr;
  int (*processes)(void*, unsigned*, NvmlProcess*) = nullptr;

  explicit NvmlSampling(void* library)
      : init{sampler_symbol<decltype(init)>(library, "nvmlInit_v2")},
        count{sampler_symbol<decltype(count)>(library, "nvmlDeviceGetCount_v2")},
        handle{sampler_symbol<decltype(handle)>(library, "nvmlDeviceGetHandleByIndex_v2")},
        use{sampler_symbol<decltype(use)>(library, "nvmlDeviceGetUtilizationRates")},
        memory{sampler_symbol<decltype(memory)>(library, "nvmlDeviceGetMemoryInfo")},
        processes{sampler_symbol<decltype(processes)>(library,
                                                      "nvmlDeviceGetComputeRunningProcesses_v3")} {
    if (processes == nullptr)
      processes =
          sampler_symbol<decltype(processes)>(library, "nvmlDeviceGetComputeRunningProcesses_v2");
  }
  [[nodiscard]] bool is_usable() const { return init && count && handle && init() == 0; }
};

Sample sample_of(const NvmlSampling& nvml, unsigned index, void* device) {
  Sample sample{.index = index, .percent = {}, .pids = {}};
  NvmlUse use;
  if (nvml.use != nullptr && nvml.use(device, &use) == 0) sample.percent = use.gpu;
  NvmlMemory memory;
  if (nvml.memory != nullptr && nvml.memory(device, &memory) == 0) {
    sample.memory_used = memory.used;
    sample.memory_total = memory.total;
  }
  std::vector<NvmlProcess> processes(kMostProcesses);
  unsigned count = kMostProcesses;
  if (nvml.processes != nullptr && nvml.processes(device, &count, processes.data()) == 0) {
    for (unsigned i = 0; i < std::min(count, kMostProcesses); ++i)
      sample.pids.push_back(processes[i].pid);
  }
  return sample;
}

std::vector<Sample> sample_all(const NvmlSampling& nvml) {
  std::vector<Sample> samples;
  unsigned count = 0;
  if (nvml.count(&count) != 0) return samples;
  for (unsigned i = 0; i < std::min(count, kMostGpus); ++i) {
    void* device = nullptr;
    if (nvml.handle(i, &device) == 0) samples.push_back(sample_of(nvml, i, device));
  }
  return samples;
}

bool write_line(const std::string& line) {
  std::string_view rest = line;
  while (!rest.empty()) {
    const auto n = ::write(STDOUT_FILENO, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

std::string encode(const std::vector<Sample>& samples) {
  auto list = SampleJson::array();
  for (const auto& one : samples) {
    list.push_back({one.index, one.percent ? SampleJson(*one.percent) : SampleJson(nullptr),
                    one.memory_used, one.memory_total, one.pids});
  }
  return list.dump();
}

std::optional<std::vector<Sample>> decode_samples(std::string_view line) {
  try {
    std::vector<Sample> samples;
    for (const auto& one : SampleJson::parse(line)) {
      Sample sample{one.at(0).get<std::uint32_t>(),
                    {},
                    one.at(2).get<std::uint64_t>(),
                    one.at(3).get<std::uint64_t>(),
                    one.at(4).get<std::vector<std::int64_t>>()};
      if (!one.at(1).is_null()) sample.percent = one.at(1).get<std::uint32_t>();
      samples.push_back(std::move(sample));
    }
    return samples;
  } catch (const SampleJson::exception&) {
    return std::nullopt;
  }
}

std::vector<std::vector<std::uint32_t>> gpus_of_workers(
    const std::vector<Sample>& samples, const std::vector<std::int64_t>& workers,
    std::int64_t (*group_of)(std::int64_t pid)) {
  std::vector<std::vector<std::uint32_t>> used(workers.size());
  bool may_guess = workers.size() == samples.size();
  for (const auto& sample : samples) {
    for (const auto pid : sample.pids) {
      const auto group = group_of(pid);
      may_guess = may_guess && group <= 0;
      const auto found = std::ranges::find_if(
          workers, [&](std::int64_t worker) { return worker > 0 && worker == group; });
      if (found == workers.end()) continue;
      auto& mine = used[static_cast<std::size_t>(found - workers.begin())];
      if (mine.empty() || mine.back() != sample.index) mine.push_back(sample.index);
    }
  }
  if (!may_guess) return used;
  for (std::size_t local = 0; local < workers.size(); ++local)
    if (workers[local] > 0) used[local].push_back(samples[local].index);
  return used;
}

std::optional<int> sampler_main(int argc, char** argv) {
  if (argc != 1 || std::string_view{argv[0]} != kSamplerName) return std::nullopt;
  ::prctl(PR_SET_NAME, kSamplerName);
  std::signal(SIGPIPE, SIG_DFL);  // nobody reads any more: it ends
  const char* name = std::getenv("ACC_NVML_LIBRARY");
  void* const library = ::dlopen(name != nullptr && *name != '\0' ? name : "libnvidia-ml.so.1",
                                 RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 1;
  const NvmlSampling nvml{library};
  if (!nvml.is_usable()) return 1;
  constexpr timespec kInterval{1, 0};
  while (write_line(encode(sample_all(nvml)) + "\n")) ::nanosleep(&kInterval, nullptr);
  return 0;
}

}  // namespace acc::agent::gpu
