#include "common/text.hpp"
#include "launcher/document.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/input_file.hpp"

#include <algorithm>
#include <set>

namespace acc::launcher {

namespace {

struct Facts {
  std::string accelerator = "cuda";
  std::uint32_t gpus = 0;
  std::vector<std::string> gpu_names;
  std::string driver;
  bool bf16 = true;
  std::uint32_t physical_cores = 16;
  std::set<std::uint16_t> ports_in_use;
  std::string mpi;
  bool fp8 = false;
  std::string deepspeed;
  std::string host_name;
  std::string sysfs;  ///< where a copy of /sys lies
};

class FixedFacts : public HostFacts {
 public:
  explicit FixedFacts(Facts facts) : facts_{std::move(facts)} {}
  std::string accelerator() override { return facts_.accelerator; }
  std::uint32_t gpus() override { return facts_.gpus; }
  std::vector<std::string> gpu_names() override { return facts_.gpu_names; }
  std::string driver() override { return facts_.driver; }
  bool bf16() override { return facts_.bf16; }
  std::uint32_t physical_cores() override { return facts_.physical_cores; }
  std::uint32_t logical_cores() override { return facts_.physical_cores; }
  bool port_in_use(std::uint16_t port) override { return facts_.ports_in_use.contains(port); }
  std::string mpi() override { return facts_.mpi; }
  bool fp8(const std::string&) override { return facts_.fp8; }
  std::string host_name() override { return facts_.host_name; }
  std::string deepspeed(const std::string&) override { return facts_.deepspeed; }
  CpuTopology topology() override {
    return facts_.sysfs.empty() ? CpuTopology{} : read_topology(facts_.sysfs, {});
  }

 private:
  Facts facts_;
};

std::string text_of(const Value& value) {
  return truthy(value) ? python_text(value) : std::string{};
}

std::uint32_t count_of(const Value& value) {
  const auto* number = value.integer();
  return number == nullptr
             ? 0U
             : static_cast<std::uint32_t>(std::clamp<std::int64_t>(*number, 0, 1'000'000));
}

bool take(Facts& facts, const std::string& key, const Value& value) {
  static const List empty;
  const List& list = value.list() == nullptr ? empty : *value.list();
  if (key == "accelerator") {
    facts.accelerator = python_text(value);
  } else if (key == "gpus") {
    facts.gpus = count_of(value);
  } else if (key == "gpu_names") {
    for (const auto& name : list) facts.gpu_names.push_back(python_text(name));
  } else if (key == "driver") {
    facts.driver = text_of(value);
  } else if (key == "bf16") {
    facts.bf16 = truthy(value);
  } else if (key == "physical_cores") {
    facts.physical_cores = count_of(value);
  } else if (key == "ports_in_use") {
    for (const auto& port : list)
      facts.ports_in_use.insert(static_cast<std::uint16_t>(count_of(port)));
  } else if (key == "mpi") {
    facts.mpi = text_of(value);
  } else if (key == "fp8") {
    facts.fp8 = truthy(value);
  } else if (key == "deepspeed") {
    facts.deepspeed = text_of(value);
  } else if (key == "host_name") {
    facts.host_name = text_of(value);
  } else if (key == "sysfs") {
    facts.sysfs = text_of(value);
  } else {
    return key == "tpu";  // known, but TPUs are refused anyway
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<HostFacts>> facts_from_file(const std::string& path) {
  const auto text = read_input(path, kMaxConfigBytes);
  if (!text) return Error{Errc::bad_config, "--host_facts: " + text.error().what};
  const auto document = read_json(*text, path);
  if (!document) return document.error();
  if (document->root.map() == nullptr)
    return Error{Errc::bad_config, path + ": host facts must be a JSON object"};
  Facts facts;
  for (const auto& [key, value] : *document->root.map()) {
    if (!take(facts, key, value)) {
      return Error{Errc::bad_config, path + ":" + std::to_string(value.line) +
                                         ": unknown host fact '" + printable(key) +
                                         "': known are gpus, accelerator, gpu_names, driver, bf16, "
                                         "physical_cores, ports_in_use, mpi, fp8, deepspeed, "
                                         "host_name, sysfs"};
    }
  }
  return std::unique_ptr<HostFacts>{std::make_unique<FixedFacts>(std::move(facts))};
}

}  // namespace acc::launcher
