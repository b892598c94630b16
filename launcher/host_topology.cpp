#include "common/text.hpp"
#include "launcher/core_binding.hpp"
#include "launcher/host_limits.hpp"

#include <dirent.h>
#include <sched.h>

#include <algorithm>
#include <memory>

// What /sys says of cores, caches, sockets, NUMA nodes and GPUs.
namespace acc::launcher {

namespace {

std::optional<std::uint32_t> number_in(const std::string& path) {
  return parse_number<std::uint32_t>(trim(first_line(path)));
}

std::uint32_t lowest_in(const std::string& path, std::uint32_t otherwise) {
  const auto cpus = parse_cpu_list(first_line(path));
  return cpus.empty() ? otherwise : *std::ranges::min_element(cpus);
}

std::vector<std::string> entries_of(const std::string& folder, std::string_view prefix) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir{::opendir(folder.c_str()), ::closedir};
  if (!dir) return names;
  while (const auto* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(prefix) && !name.starts_with('.')) names.emplace_back(name);
  }
  std::ranges::sort(names);
  return names;
}

/// Of the highest level: those of one level of data and of instructions share the same cores.
std::uint32_t last_cache(const std::string& cpu, std::uint32_t otherwise) {
  std::uint32_t highest = 0;
  std::uint32_t lowest_cpu = otherwise;
  for (const auto& index : entries_of(cpu + "/cache", "index")) {
    const std::string cache = cpu + "/cache/" + index;
    const auto level = number_in(cache + "/level").value_or(0);
    if (level <= highest) continue;
    highest = level;
    lowest_cpu = lowest_in(cache + "/shared_cpu_list", otherwise);
  }
  return lowest_cpu;
}

std::vector<std::optional<std::uint32_t>> nodes_of_gpus(const std::string& sysfs) {
  std::vector<std::optional<std::uint32_t>> nodes;
  for (const std::string driver : {"nvidia", "amdgpu"}) {
    const std::string folder = sysfs + "/bus/pci/drivers/" + driver;
    for (const auto& device : entries_of(folder, "")) {
      if (device.find(':') == std::string::npos) continue;               // "bind", "module" …
      nodes.push_back(number_in(folder + '/' + device + "/numa_node"));  // "-1": not known
    }
    if (!nodes.empty()) break;
  }
  return nodes;
}

}  // namespace

CpuTopology read_topology(const std::string& sysfs, const std::vector<std::uint32_t>& allowed) {
  const std::string system = sysfs + "/devices/system";
  CpuTopology topology;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> node_of_cpu;
  for (const auto& name : entries_of(system + "/node", "node")) {
    const auto node = parse_number<std::uint32_t>(name.substr(4));
    if (!node) continue;
    for (const auto cpu : parse_cpu_list(first_line(system + "/node/" + name + "/cpulist")))
      node_of_cpu.emplace_back(cpu, *node);
  }
  std::ranges::sort(node_of_cpu);
  for (const auto number : parse_cpu_list(first_line(system + "/cpu/online"))) {
    if (!allowed.empty() && !std::ranges::count(allowed, number)) continue;
    const std::string folder = system + "/cpu/cpu" + std::to_string(number);
    Cpu cpu;
    cpu.number = number;
    const auto found = std::ranges::lower_bound(node_of_cpu, std::pair{number, 0U});
    if (found != node_of_cpu.end() && found->first == number) cpu.node = found->second;
    cpu.package = number_in(folder + "/topology/physical_package_id").value_or(0);
    cpu.core = lowest_in(folder + "/topology/thread_siblings_list", number);
    cpu.cache = last_cache(folder, number);
    topology.cpus.push_back(cpu);
  }
  topology.gpu_nodes = nodes_of_gpus(sysfs);
  return topology;
}

std::vector<std::uint32_t> allowed_cpus() {
  // Grown until the kernel's own mask fits.
  for (std::size_t bits = 1024; bits <= (std::size_t{1} << 16U); bits *= 2) {
    const std::size_t bytes = CPU_ALLOC_SIZE(bits);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set{CPU_ALLOC(bits),
                                                               [](cpu_set_t* s) { CPU_FREE(s); }};
    if (!set || ::sched_getaffinity(0, bytes, set.get()) != 0) continue;
    std::vector<std::uint32_t> cpus;
    for (std::uint32_t i = 0; i < bits; ++i) {
      if (CPU_ISSET_S(i, bytes, set.get())) cpus.push_back(i);
    }
    return cpus;
  }
  return {};
}

}  // namespace acc::launcher
