#include "agent/health_probes.hpp"

#include <dlfcn.h>

#include <optional>
#include <string>

// NVML is loaded at run time: the programs are the same with and without a GPU. The few functions
// and numbers that are used here have been the same since NVML 11.
namespace acc::agent::health {

namespace {

using NvmlDevice = void*;
using NvmlReturn = int;
constexpr NvmlReturn kNvmlLost = 15;  // NVML_ERROR_GPU_IS_LOST
constexpr NvmlReturn kNvmlReset = 16;
constexpr int kNvmlUncorrected = 1;  // NVML_MEMORY_ERROR_TYPE_UNCORRECTED
constexpr int kNvmlVolatile = 0;     // NVML_VOLATILE_ECC: since the driver was loaded
constexpr unsigned long long kNvmlHwSlowdown = 0x08;
constexpr unsigned long long kNvmlSwThermal = 0x20;
constexpr unsigned long long kNvmlHwThermal = 0x40;
constexpr unsigned long long kNvmlPowerBrake = 0x80;

template <class Function>
Function nvml_symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

struct Nvml {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  NvmlReturn (*count)(unsigned*) = nullptr;
  NvmlReturn (*handle)(unsigned, NvmlDevice*) = nullptr;
  NvmlReturn (*ecc)(NvmlDevice, int, int, unsigned long long*) = nullptr;
  NvmlReturn (*rows)(NvmlDevice, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  NvmlReturn (*throttle)(NvmlDevice, unsigned long long*) = nullptr;
  NvmlReturn (*link)(NvmlDevice, unsigned, int*) = nullptr;
  const char* (*words)(NvmlReturn) = nullptr;

  explicit Nvml(void* library)
      : init{nvml_symbol<decltype(init)>(library, "nvmlInit_v2")},
        shutdown{nvml_symbol<decltype(shutdown)>(library, "nvmlShutdown")},
        count{nvml_symbol<decltype(count)>(library, "nvmlDeviceGetCount_v2")},
        handle{nvml_symbol<decltype(handle)>(library, "nvmlDeviceGetHandleByIndex_v2")},
        ecc{nvml_symbol<decltype(ecc)>(library, "nvmlDeviceGetTotalEccErrors")},
        rows{nvml_symbol<decltype(rows)>(library, "nvmlDeviceGetRemappedRows")},
        throttle{
            nvml_symbol<decltype(throttle)>(library, "nvmlDeviceGetCurrentClocksThrottleReasons")},
        link{nvml_symbol<decltype(link)>(library, "nvmlDeviceGetNvLinkState")},
        words{nvml_symbol<decltype(words)>(library, "nvmlErrorString")} {}
  [[nodiscard]] bool is_usable() const { return init && count && handle; }
  [[nodiscard]] std::string text(NvmlReturn code) const {
    return words != nullptr ? words(code) : "NVML error " + std::to_string(code);
  }
};

std::string throttle_words(unsigned long long reasons) {
  if ((reasons & (kNvmlHwThermal | kNvmlSwThermal)) != 0) return "heat";
  if ((reasons & kNvmlPowerBrake) != 0) return "power brake";
  return (reasons & kNvmlHwSlowdown) != 0 ? "hardware slowdown" : "";
}

// How many of a GPU's NVLinks are up; nothing where it has none.
std::optional<unsigned> links_up(const Nvml& nvml, NvmlDevice device) {
  constexpr unsigned kMostLinks = 18;  // NVML_NVLINK_MAX_LINKS
  std::optional<unsigned> up;
  for (unsigned i = 0; nvml.link != nullptr && i < kMostLinks; ++i) {
    int is_active = 0;
    if (nvml.link(device, i, &is_active) != 0) continue;
    up = up.value_or(0) + (is_active != 0 ? 1U : 0U);
  }
  return up;
}

// What a GPU doesn't support is left out.
void measure_gpu_at(const Nvml& nvml, unsigned index, std::vector<Reading>& readings) {
  const std::string name = "GPU " + std::to_string(index);
  bool is_lost = false;
  const auto works = [&](NvmlReturn code) {
    if (!is_lost && (code == kNvmlLost || code == kNvmlReset)) {
      is_lost = true;
      readings.push_back({"gpu", name, "is_lost", 1, nvml.text(code)});
    }
    return code == 0;
  };
  NvmlDevice device = nullptr;
  if (!works(nvml.handle(index, &device))) return;
  unsigned long long errors = 0;
  if (nvml.ecc && works(nvml.ecc(device, kNvmlUncorrected, kNvmlVolatile, &errors)))
    readings.push_back({"gpu", name, "ecc_uncorrected", static_cast<double>(errors), ""});
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned is_pending = 0;
  unsigned has_failed = 0;
  if (nvml.rows && works(nvml.rows(device, &corrected, &uncorrected, &is_pending, &has_failed))) {
    readings.push_back({"gpu", name, "row_remap_pending", static_cast<double>(is_pending), ""});
    readings.push_back({"gpu", name, "row_remap_failed", static_cast<double>(has_failed), ""});
  }
  if (const auto up = links_up(nvml, device))
    readings.push_back({"gpu", name, "nvlinks_up", static_cast<double>(*up), ""});
  unsigned long long reasons = 0;
  if (nvml.throttle && works(nvml.throttle(device, &reasons))) {
    const auto words = throttle_words(reasons);
    readings.push_back({"gpu", name, "throttled", words.empty() ? 0.0 : 1.0, words});
  }
}

}  // namespace

std::vector<Reading> measure_gpus(const std::string& library) {
  void* const handle =
      ::dlopen(library.empty() ? "libnvidia-ml.so.1" : library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {};
  const Nvml nvml{handle};
  if (!nvml.is_usable()) return {};
  // A driver that has gone: all GPUs that were there are missing.
  if (const auto failed = nvml.init(); failed != 0)
    return {{"gpu", "", "count", 0, nvml.text(failed)}};
  unsigned count = 0;
  std::vector<Reading> readings;
  if (nvml.count(&count) == 0) {
    readings.push_back({"gpu", "", "count", static_cast<double>(count), ""});
    for (unsigned i = 0; i < count; ++i) measure_gpu_at(nvml, i, readings);
  }
  if (nvml.shutdown != nullptr) nvml.shutdown();
  return readings;
}

}  // namespace acc::agent::health
