#include "common/text.hpp"
#include "launcher/host_probes.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

namespace acc::launcher {

namespace {

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir{::opendir(folder.c_str()), ::closedir};
  if (!dir) return names;
  while (const auto* entry = ::readdir(dir.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  std::ranges::sort(names);
  return names;
}

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::uint32_t count_nodes(const std::vector<std::string>& names, std::string_view prefix) {
  return static_cast<std::uint32_t>(std::ranges::count_if(names, [&](const std::string& name) {
    return name.starts_with(prefix) && is_number(std::string_view{name}.substr(prefix.size()));
  }));
}

std::string first_value(const std::string& path, std::string_view label) {
  std::ifstream file{path};
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(label))
      return std::string{trim(std::string_view{line}.substr(label.size()))};
  }
  return {};
}

/// A container may see all cards in /proc but only some nodes in /dev.
std::uint32_t nvidia_cards(const std::vector<std::string>& dev) {
  struct stat info {};
  return ::stat("/proc/driver/nvidia/version", &info) == 0 ? count_nodes(dev, "nvidia") : 0;
}

std::uint32_t visible_of(std::uint32_t cards) {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  return list == nullptr ? cards : visible_devices(list, cards);
}

}  // namespace

std::uint32_t visible_devices(std::string_view list, std::uint32_t cards) {
  std::uint32_t visible = 0;
  std::set<std::string> seen;
  for (const auto& part : split(list, ',')) {
    const std::string id{trim(part)};
    const auto number = parse_number<std::uint32_t>(id);
    const bool named = id.starts_with("GPU-") || id.starts_with("MIG-");
    if (!named && (!number || *number >= cards)) break;
    if (!seen.insert(id).second) return 0;  // a device named twice: CUDA shows none
    ++visible;
  }
  return cards == 0 ? 0 : visible;
}

Devices count_devices() {
  const auto dev = entries_of("/dev");
  if (const auto cards = nvidia_cards(dev); cards > 0) return {"cuda", visible_of(cards)};
  struct Node {
    std::string_view kind, prefix;
  };
  constexpr Node kNodes[] = {
      {"npu", "davinci"}, {"mlu", "cambricon_dev"}, {"musa", "mtgpu."}, {"neuron", "neuron"}};
  for (const auto& node : kNodes) {
    if (const auto count = count_nodes(dev, node.prefix); count > 0)
      return {std::string{node.kind}, count};
  }
  const bool has_accel =
      std::ranges::binary_search(dev, "accel");  // Gaudi's nodes have a folder of their own
  if (const auto count = has_accel ? count_nodes(entries_of("/dev/accel"), "accel") : 0; count > 0)
    return {"hpu", count};
  return {};
}

std::vector<std::string> nvidia_names() {
  std::vector<std::string> names;
  const std::filesystem::path folder = "/proc/driver/nvidia/gpus";
  for (const auto& card : entries_of(folder)) {
    auto name = first_value(folder / card / "information", "Model:");
    if (!name.empty()) names.push_back(std::move(name));
  }
  return names;
}

std::string nvidia_driver() {
  const auto line = first_value("/proc/driver/nvidia/version", "NVRM version:");
  for (const auto& word : split(line, ' ')) {
    if (!word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) != 0 &&
        word.find('.') != std::string::npos)
      return word;
  }
  return {};
}

namespace {

/// nvmlDeviceGetCudaComputeCapability of device 0; 0 if NVML can't be loaded or asked.
int compute_capability() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 0;
  using Init = int (*)();
  using GetDevice = int (*)(unsigned, void**);
  using GetCapability = int (*)(void*, int*, int*);
  const auto init = reinterpret_cast<Init>(::dlsym(library, "nvmlInit_v2"));
  const auto get_device =
      reinterpret_cast<GetDevice>(::dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
  const auto get_capability =
      reinterpret_cast<GetCapability>(::dlsym(library, "nvmlDeviceGetCudaComputeCapability"));
  const auto shutdown = reinterpret_cast<Init>(::dlsym(library, "nvmlShutdown"));
  int major = 0;
  int minor = 0;
  void* device = nullptr;
  if (init != nullptr && get_device != nullptr && get_capability != nullptr && init() == 0) {
    if (get_device(0, &device) != 0 || get_capability(device, &major, &minor) != 0) major = 0;
    if (shutdown != nullptr) shutdown();
  }
  ::dlclose(library);
  return major;
}

}  // namespace

bool nvidia_computes_bf16() {
  if (const int major = compute_capability(); major > 0) return major >= 8;
  constexpr std::string_view kOlder[] = {"V100", "P100",   "P40",   "P4",         "T4",  "K80",
                                         "GTX",  "RTX 20", "TITAN", "Quadro RTX", "M40", "M60"};
  const auto names = nvidia_names();
  return std::ranges::none_of(names, [&](const std::string& name) {
    return std::ranges::any_of(
        kOlder, [&](std::string_view old) { return name.find(old) != std::string::npos; });
  });
}

std::uint32_t count_physical_cores() {
  std::set<std::string> cores;
  const std::filesystem::path folder = "/sys/devices/system/cpu";
  for (const auto& name : entries_of(folder)) {
    if (!name.starts_with("cpu") || !is_number(std::string_view{name}.substr(3))) continue;
    std::string siblings;
    std::ifstream file{folder / name / "topology/thread_siblings_list"};
    if (std::getline(file, siblings)) cores.insert(siblings);
  }
  return std::max<std::uint32_t>(1, static_cast<std::uint32_t>(cores.size()));
}

}  // namespace acc::launcher
