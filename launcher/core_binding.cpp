#include "launcher/core_binding.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace acc::launcher {

namespace {

/// Cores, not hardware threads, are what is dealt out: two workers on one core slow each other.
using Core = std::vector<std::uint32_t>;

std::vector<Core> cores_of(const std::vector<Cpu>& cpus) {
  std::map<std::uint32_t, Core> cores;
  for (const auto& cpu : cpus) cores[cpu.core].push_back(cpu.number);
  std::vector<Core> list;
  list.reserve(cores.size());
  for (auto& [first, core] : cores) list.push_back(std::move(core));
  return list;
}

template <class Predicate>
std::vector<Cpu> those(const std::vector<Cpu>& cpus, Predicate predicate) {
  std::vector<Cpu> some;
  std::ranges::copy_if(cpus, std::back_inserter(some), predicate);
  return some;
}

std::vector<std::uint32_t> numbers_of(const std::vector<Cpu>& cpus) {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(cpus.size());
  for (const auto& cpu : cpus) numbers.push_back(cpu.number);
  return numbers;
}

class Binder {
 public:
  Binder(const CpuTopology& topology, std::uint32_t workers, const std::vector<std::uint32_t>& gpus)
      : topology_{topology} {
    std::set<std::uint32_t> nodes;
    for (const auto& cpu : topology.cpus) nodes.insert(cpu.node);
    nodes_.assign(nodes.begin(), nodes.end());
    for (std::uint32_t rank = 0; rank < workers; ++rank)
      node_of_.push_back(node_of(rank, workers, gpus));
  }

  BoundWorkers bind(Binding binding) {
    BoundWorkers bound;
    for (std::uint32_t rank = 0; rank < node_of_.size() && bound.problem.empty(); ++rank) {
      bound.cores.push_back(cores_for(rank, binding, bound.problem));
    }
    if (!bound.problem.empty()) bound.cores.clear();
    return bound;
  }

 private:
  [[nodiscard]] std::uint32_t node_of(std::uint32_t rank, std::uint32_t workers,
                                      const std::vector<std::uint32_t>& gpus) const {
    const std::size_t gpu = gpus.empty() ? rank : rank < gpus.size() ? gpus[rank] : SIZE_MAX;
    if (gpu < topology_.gpu_nodes.size() && topology_.gpu_nodes[gpu] &&
        std::ranges::binary_search(nodes_, *topology_.gpu_nodes[gpu]))
      return *topology_.gpu_nodes[gpu];
    return nodes_[static_cast<std::size_t>(rank) * nodes_.size() / workers];
  }

  /// The workers of this one's node, and its place among them.
  struct Share {
    std::size_t place = 0;
    std::size_t of = 0;
  };
  [[nodiscard]] Share share_of(std::uint32_t rank) const {
    Share share;
    for (std::uint32_t other = 0; other < node_of_.size(); ++other) {
      if (node_of_[other] != node_of_[rank]) continue;
      share.place += other < rank ? 1 : 0;
      ++share.of;
    }
    return share;
  }

  [[nodiscard]] std::vector<std::uint32_t> cores_for(std::uint32_t rank, Binding binding,
                                                     std::string& problem) const {
    const auto node = node_of_[rank];
    const auto on_node = those(topology_.cpus, [&](const Cpu& cpu) { return cpu.node == node; });
    switch (binding) {
      case Binding::node:
        return numbers_of(on_node);
      case Binding::socket: {
        const auto package = on_node.front().package;
        return numbers_of(
            those(topology_.cpus, [&](const Cpu& cpu) { return cpu.package == package; }));
      }
      case Binding::exclusive:
        return exclusive(rank, cores_of(on_node), problem);
      case Binding::core_complex:
        return complex(rank, on_node);
    }
    return {};
  }

  // The first ones get one more where it doesn't come out even.
  [[nodiscard]] std::vector<std::uint32_t> exclusive(std::uint32_t rank,
                                                     const std::vector<Core>& cores,
                                                     std::string& problem) const {
    const auto share = share_of(rank);
    if (cores.size() < share.of) {
      problem = "exclusive cores for each: NUMA node " + std::to_string(node_of_[rank]) + " has " +
                plural(cores.size(), "core") + " for " + plural(share.of, "worker");
      return {};
    }
    const std::size_t each = cores.size() / share.of;
    const std::size_t more = cores.size() % share.of;
    const std::size_t begin = share.place * each + std::min(share.place, more);
    const std::size_t end = begin + each + (share.place < more ? 1 : 0);
    std::vector<std::uint32_t> mine;
    for (std::size_t i = begin; i < end; ++i)
      mine.insert(mine.end(), cores[i].begin(), cores[i].end());
    std::ranges::sort(mine);
    return mine;
  }

  // The largest ones first, as in torch; more workers than caches begin anew.
  [[nodiscard]] std::vector<std::uint32_t> complex(std::uint32_t rank,
                                                   const std::vector<Cpu>& on_node) const {
    std::map<std::uint32_t, std::vector<std::uint32_t>> by_cache;
    for (const auto& cpu : on_node) by_cache[cpu.cache].push_back(cpu.number);
    std::vector<std::vector<std::uint32_t>> complexes;
    complexes.reserve(by_cache.size());
    for (auto& [first, cpus] : by_cache) complexes.push_back(std::move(cpus));
    std::ranges::stable_sort(complexes,
                             [](const auto& a, const auto& b) { return a.size() > b.size(); });
    return complexes[share_of(rank).place % complexes.size()];
  }

  const CpuTopology& topology_;
  std::vector<std::uint32_t> nodes_;
  std::vector<std::uint32_t> node_of_;  ///< by local rank
};

}  // namespace

std::optional<Binding> binding_of(std::string_view word) {
  if (word == "node") return Binding::node;
  if (word == "socket") return Binding::socket;
  if (word == "exclusive") return Binding::exclusive;
  if (word == "core-complex") return Binding::core_complex;
  return std::nullopt;
}

BoundWorkers bind_workers(const CpuTopology& topology, Binding binding, std::uint32_t workers,
                          const std::vector<std::uint32_t>& gpus) {
  if (topology.cpus.empty()) return {{}, "/sys doesn't show this machine's cores"};
  return Binder{topology, workers, gpus}.bind(binding);
}

std::vector<std::uint32_t> parse_cpu_list(std::string_view text) {
  constexpr std::uint32_t kMost = 1U << 16U;
  std::vector<std::uint32_t> cpus;
  for (const auto& part : split(trim(text), ',')) {
    const auto dash = part.find('-');
    const auto first = parse_number<std::uint32_t>(part.substr(0, dash));
    const auto last =
        dash == std::string::npos ? first : parse_number<std::uint32_t>(part.substr(dash + 1));
    if (!first || !last || *last >= kMost) continue;
    for (auto cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::string cpu_list_text(const std::vector<std::uint32_t>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (end - i > 1) text += "-" + std::to_string(cpus[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace acc::launcher
