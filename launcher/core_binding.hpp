#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// --numa_binding and --enable_cpu_affinity: which cores each worker of this machine is bound to.
namespace acc::launcher {

/// A hardware thread that this process may use, and what it shares with others.
struct Cpu {
  std::uint32_t number = 0;
  std::uint32_t node = 0;     ///< NUMA node
  std::uint32_t package = 0;  ///< socket
  std::uint32_t core = 0;     ///< lowest number of its hardware threads
  std::uint32_t cache = 0;    ///< lowest number of those with the same last-level cache
};

struct CpuTopology {
  std::vector<Cpu> cpus;  ///< by number
  /// NUMA node of each GPU in the order of their PCI addresses; nothing where the machine doesn't
  /// say.
  std::vector<std::optional<std::uint32_t>> gpu_nodes;
};

/// As /sys shows it. @param allowed  only these; empty: all that are there
CpuTopology read_topology(const std::string& sysfs, const std::vector<std::uint32_t>& allowed);
/// Of this process.
std::vector<std::uint32_t> allowed_cpus();

/// torchrun's words.
enum class Binding {
  node,          ///< all cores of the GPU's NUMA node
  socket,        ///< all cores of that node's socket
  exclusive,     ///< a share of the node's cores, which no other worker has
  core_complex,  ///< the cores of one last-level cache of the node
};
[[nodiscard]] std::optional<Binding> binding_of(std::string_view word);

struct BoundWorkers {
  std::vector<std::vector<std::uint32_t>> cores;  ///< by local rank; empty: not bound
  std::string problem;                            ///< why not
};

/// Pure. A worker belongs to the node of its GPU; without one, workers are dealt out to the nodes
/// in even blocks.
/// @param gpus  number of each local rank's GPU in the topology's order; empty: as the local ranks
[[nodiscard]] BoundWorkers bind_workers(const CpuTopology& topology, Binding binding,
                                        std::uint32_t workers,
                                        const std::vector<std::uint32_t>& gpus);

/// "0-3,8" as in /sys and in taskset; what can't be read is left out.
[[nodiscard]] std::vector<std::uint32_t> parse_cpu_list(std::string_view text);
[[nodiscard]] std::string cpu_list_text(const std::vector<std::uint32_t>& cpus);

}  // namespace acc::launcher
