#include "launcher/configure/deepspeed_line.hpp"

#include "common/text.hpp"
#include "launcher/configure/config_map.hpp"
#include "launcher/host_list.hpp"

#include <algorithm>
#include <utility>

namespace acc::configure {

namespace {

constexpr const char* kDefaultHostfile = "/job/hostfile";  // DeepSpeed's own

struct Node {
  std::string name;
  std::vector<std::string> devices;
};
using Nodes = std::vector<Node>;

std::vector<std::string> numbers_below(std::int64_t count) {
  std::vector<std::string> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(std::to_string(i));
  return numbers;
}

/// "n1:0,1@n2", as --include and --exclude take it.
std::string in_filter(const Nodes& nodes) {
  std::vector<std::string> parts;
  for (const auto& node : nodes) parts.push_back(node.name + ":" + join(node.devices, ","));
  return join(parts, "@");
}

/// deepspeed's own file, which its scripts take as an argument.
std::string deepspeed_file_in(std::span<const std::string> command) {
  for (std::size_t i = 1; i < command.size(); ++i) {
    for (const std::string_view flag : {"--deepspeed_config", "--deepspeed"}) {
      if (command[i].starts_with(std::string{flag} + "="))
        return command[i].substr(flag.size() + 1);
      const bool has_value = i + 1 < command.size() && command[i + 1].ends_with(".json");
      if (command[i] == flag && has_value) return command[i + 1];
    }
  }
  return {};
}

class DeepspeedLine {
 public:
  DeepspeedLine(std::span<const std::string> words, const LineContext& context)
      : read_{read_deepspeed_flags(words)}, line_{read_.line}, context_{context} {}

  Result<ForeignLine> read() {
    if (!read_.complaints.empty()) return joined(read_.complaints);
    drop_defaults();
    put(line_.map, "distributed_type", Value{"DEEPSPEED"});
    read_hosts();
    if (read_.complaints.empty()) choose();
    if (!read_.complaints.empty()) return joined(read_.complaints);
    put_counts();
    if (last_of(read_, "@no_ssh") != nullptr) put_section("deepspeed_multinode_launcher", "nossh");
    const auto file = deepspeed_file_in(line_.command);
    if (!file.empty()) put_section("deepspeed_config_file", file);
    if (last_of(read_, "@no_local_rank") == nullptr)
      line_.notes.emplace_back(
          "deepspeed appends --local_rank=N to the arguments of the script, acc-launch doesn't: "
          "read LOCAL_RANK there");
    return std::move(line_);
  }

 private:
  void complain(std::string what) {
    read_.complaints.push_back({Errc::bad_usage, std::move(what)});
  }
  void put_section(std::string_view key, const std::string& text) {
    put_in_section(line_.map, "deepspeed_config", key, Value{text});
  }

  /// -1 is DeepSpeed's own default of these.
  void drop_defaults() {
    std::erase_if(read_.special, [](const SpecialFlag& flag) {
      return (flag.to == "@hosts" || flag.to == "@per_host") && flag.value == "-1";
    });
    std::erase_if(line_.map, [](const Entry& entry) {
      return entry.key == "machine_rank" && python_text(entry.value) == "-1";
    });
  }

  void read_hosts() {
    const auto* flag = last_of(read_, "@hostfile");
    hostfile_ = flag == nullptr ? kDefaultHostfile : flag->value;
    const auto text = context_.read_file(hostfile_);
    if (!text && flag != nullptr) return complain(flag->name + ": " + text.error().what);
    if (!text) {
      hostfile_.clear();
      nodes_ = {{"localhost", numbers_below(context_.gpus)}};
      return;
    }
    const auto list = launcher::parse_hostfile(*text, hostfile_);
    for (const auto& complaint : list.complaints) complain(complaint.what);
    for (const auto& host : list.hosts) {
      if (!host.slots)
        complain(host.where + ": " + in_quotes(host.login, 80) + " has no slots: write slots=N");
      nodes_.push_back({host.login, numbers_below(host.slots.value_or(0))});
    }
    all_ = nodes_;
  }

  void choose() {
    const auto* include = last_of(read_, "@include");
    const auto* exclude = last_of(read_, "@exclude");
    const auto hosts = count_of(read_, "@hosts");
    const auto devices = count_of(read_, "@per_host");
    if (int{include != nullptr} + int{exclude != nullptr} + int{hosts > 0 || devices > 0} > 1)
      return complain(
          "deepspeed takes one of --include, --exclude, and --num_gpus with --num_nodes: give one "
          "of them");
    if (hosts > 1 && hostfile_.empty())
      return complain("--num_nodes " + std::to_string(hosts) + " needs --hostfile in deepspeed");
    if (exclude != nullptr && hostfile_.empty() && context_.gpus == 0)
      return complain(
          exclude->name +
          ": there is no GPU here that could tell which are left: name those with --include");
    if (include != nullptr) filter(*include, true);
    if (exclude != nullptr) filter(*exclude, false);
    if (hosts > 0 && std::cmp_less(hosts, nodes_.size()))
      nodes_.resize(static_cast<std::size_t>(hosts));
    if (devices > 0)
      for (auto& node : nodes_) node.devices = numbers_below(devices);
    is_counted_ = devices > 0 || !hostfile_.empty() || include_names_devices_ || exclude != nullptr;
  }

  /// Keeps, or drops, what "n1@n2:0,1" names: whole hosts, or devices of them.
  void filter(const SpecialFlag& flag, bool keeps) {
    Nodes kept = keeps ? Nodes{} : nodes_;
    for (const auto& part : split(flag.value, '@')) {
      const auto colon = part.find(':');
      const auto name = part.substr(0, colon);
      const auto node = std::ranges::find(nodes_, name, &Node::name);
      if (node == nodes_.end())
        return complain(flag.name + ": " + in_quotes(name, 80) + " is none of the hosts" +
                        (hostfile_.empty() ? ": without --hostfile that is localhost alone"
                                           : " in " + printable(hostfile_)));
      const auto devices =
          colon == std::string::npos ? node->devices : split(part.substr(colon + 1), ',');
      for (const auto& device : devices)
        if (!parse_number<std::uint32_t>(device))
          return complain(flag.name + ": " + in_quotes(device, 80) +
                          " is no device: write numbers, as " + name + ":0,1");
      include_names_devices_ |= keeps && colon != std::string::npos;
      if (keeps) {
        kept.push_back({name, devices});
        continue;
      }
      const auto other = std::ranges::find(kept, name, &Node::name);
      std::erase_if(other->devices, [&](const std::string& one) {
        return std::ranges::find(devices, one) != devices.end();
      });
    }
    is_chosen_ = true;
    nodes_ = std::move(kept);
    std::erase_if(nodes_, [&](const Node& node) {
      return node.devices.empty() && !(hostfile_.empty() && keeps);
    });
    if (nodes_.empty()) complain(flag.name + ": no device is left");
  }

  void put_counts() {
    std::int64_t workers = 0;
    for (const auto& node : nodes_) workers += std::ssize(node.devices);
    workers = std::max<std::int64_t>(workers, 1);
    put(line_.map, "num_processes", Value{workers});
    if (!is_counted_)
      line_.notes.push_back("the line leaves the number of GPUs to the launcher: " +
                            std::to_string(workers) + " by the devices of this machine");
    if (nodes_.size() == 1) {  // which deepspeed starts here, whatever its name is
      if (is_chosen_ && !nodes_.front().devices.empty())
        put(line_.map, "gpu_ids", Value{join(nodes_.front().devices, ",")});
      return;
    }
    put(line_.map, "num_machines", Value{std::int64_t{std::ssize(nodes_)}});
    put_section("deepspeed_hostfile", hostfile_);
    const auto& first = nodes_.front().devices;
    const bool is_even = std::ranges::all_of(
        nodes_, [&](const Node& node) { return node.devices == numbers_below(std::ssize(first)); });
    if (!is_even || nodes_.size() != all_.size())
      put_section("deepspeed_inclusion_filter", in_filter(nodes_));
  }

  OtherFlags read_;
  ForeignLine& line_;  ///< read_'s
  const LineContext& context_;
  std::string hostfile_;  ///< empty: there is none
  Nodes all_;             ///< of the host file
  Nodes nodes_;           ///< that the job uses
  bool is_chosen_ = false;
  bool include_names_devices_ = false;
  bool is_counted_ = false;
};

}  // namespace

bool has_deepspeed_file(const launcher::Map& keys) {
  const auto* section = value_of(keys, "deepspeed_config");
  const auto* file = section == nullptr || section->map() == nullptr
                         ? nullptr
                         : value_of(*section->map(), "deepspeed_config_file");
  return file != nullptr && !file->is_none() && python_text(*file) != "none";
}

bool is_of_deepspeed_file(std::string_view key) {
  // As DeepSpeedPlugin of Accelerate 1.x lists them.
  constexpr std::string_view kKeys[] = {
      "gradient_accumulation_steps", "gradient_clipping",      "zero_stage",
      "offload_optimizer_device",    "offload_param_device",   "offload_param_nvme_path",
      "offload_optimizer_nvme_path", "zero3_save_16bit_model", "mixed_precision"};
  return std::ranges::find(kKeys, key) != std::end(kKeys);
}

bool ignores_visible_devices(std::span<const std::string> words) {
  const auto flags = read_deepspeed_flags(words);
  const auto* nodes = last_of(flags, "@hosts");
  const auto* devices = last_of(flags, "@per_host");
  return last_of(flags, "@hostfile") == nullptr &&
         (last_of(flags, "@include") != nullptr || last_of(flags, "@exclude") != nullptr ||
          (devices != nullptr && devices->value != "-1") ||
          (nodes != nullptr && nodes->value != "-1" && nodes->value != "1"));
}

Result<ForeignLine> read_deepspeed(std::span<const std::string> words, const LineContext& context) {
  return DeepspeedLine{words, context}.read();
}

}  // namespace acc::configure
