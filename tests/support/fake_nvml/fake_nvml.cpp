// A libnvidia-ml without a GPU, loaded through ACC_NVML_LIBRARY. What its GPUs report stands in the
// file that FAKE_NVML names, read anew by each nvmlInit_v2:
//
//   gpus=4 links:0=18 ecc:1=2 pending:0=1 failed:0=1 throttle:2=8 lost:3=1 init=9 hang=1
//   use:0=93 memory:0=1048576 pid:0=1234
//
// ecc:1=2 is two uncorrected errors of GPU 1; hang: nvmlInit_v2 never returns.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

namespace {

std::map<std::string, unsigned long>& facts() {
  static std::map<std::string, unsigned long> all;
  return all;
}

unsigned long fact(const std::string& name) {
  const auto found = facts().find(name);
  return found == facts().end() ? 0 : found->second;
}

std::string of_gpu(const char* name, void* device) {
  return std::string{name} + ':' + std::to_string(reinterpret_cast<std::uintptr_t>(device) - 1);
}

constexpr int kLost = 15;

int answer(void* device) { return fact(of_gpu("lost", device)) != 0 ? kLost : 0; }

}  // namespace

extern "C" {

int nvmlInit_v2() {
  facts().clear();
  if (const char* path = std::getenv("FAKE_NVML")) {
    std::ifstream file{path};
    for (std::string word; file >> word;) {
      const auto sign = word.find('=');
      if (sign != std::string::npos)
        facts()[word.substr(0, sign)] = std::stoul(word.substr(sign + 1));
    }
  }
  while (fact("hang") != 0) ::pause();
  return static_cast<int>(fact("init"));
}

int nvmlShutdown() { return 0; }

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(fact("gpus"));
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(std::uintptr_t{index} + 1);
  return answer(*device);
}

int nvmlDeviceGetTotalEccErrors(void* device, int kind, int counter, unsigned long long* count) {
  *count = kind == 1 && counter == 0 ? fact(of_gpu("ecc", device)) : 0;
  return answer(device);
}

int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* is_pending, unsigned* has_failed) {
  *corrected = *uncorrected = 0;
  *is_pending = static_cast<unsigned>(fact(of_gpu("pending", device)));
  *has_failed = static_cast<unsigned>(fact(of_gpu("failed", device)));
  return answer(device);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  *reasons = fact(of_gpu("throttle", device));
  return answer(device);
}

int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* is_active) {
  constexpr unsigned kLinks = 18;
  constexpr int kNotSupported = 3;
  if (facts().find(of_gpu("links", device)) == facts().end() || link >= kLinks)
    return kNotSupported;
  *is_active = link < fact(of_gpu("links", device)) ? 1 : 0;
  return answer(device);
}

struct Use {
  unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(void* device, Use* use) {
  *use = {static_cast<unsigned>(fact(of_gpu("use", device))), 0};
  return answer(device);
}

struct Memory {
  unsigned long long total, free, used;
};
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  const auto used = fact(of_gpu("memory", device));
  *memory = {2 * used, used, used};
  return answer(device);
}

struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  const auto pid = fact(of_gpu("pid", device));
  *count = pid != 0 ? 1 : 0;
  if (pid != 0) processes[0] = {static_cast<unsigned>(pid), 0, 0, 0};
  return answer(device);
}

const char* nvmlErrorString(int code) { return code == kLost ? "GPU is lost" : "other error"; }
}
