#include "launcher/env/collect.hpp"

#include "agent/memory_limit.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "common/version.hpp"
#include "launcher/check/worker_program.hpp"
#include "launcher/host_facts.hpp"
#include "launcher/host_limits.hpp"
#include "launcher/host_probes.hpp"
#include "launcher/program.hpp"
#include "launcher/scheduler.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>

namespace acc::env {

namespace fs = std::filesystem;
using launcher::Environment;

namespace {

constexpr std::chrono::seconds kVersionTime{2};

std::string whole_file(const std::string& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

std::string gibibytes(std::optional<std::uint64_t> bytes) {
  if (!bytes) return {};
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f GiB",
                static_cast<double>(*bytes) / (1024.0 * 1024 * 1024));
  return text.data();
}

Section about_us() {
  std::error_code ignored;
  return {"acc",
          {{"version", version()}, {"program", fs::read_symlink("/proc/self/exe", ignored)}}};
}

Section about_system() {
  utsname name{};
  ::uname(&name);
  const auto cgroup = launcher::cgroup_folder();
  std::string group = cgroup.empty() ? "version 1, or none" : "version 2, " + cgroup;
  if (!cgroup.empty())
    group += ::access(cgroup.c_str(), W_OK) == 0 ? " (writable)" : " (read-only)";
  return {"system",
          {{"host", launcher::full_host_name()},
           {"system", os_name(whole_file("/etc/os-release"))},
           {"kernel", std::string{name.release}},
           {"machine", std::string{name.machine}},
           {"control group", group}}};
}

Section about_hardware() {
  const auto cgroup = launcher::cgroup_folder();
  const auto quota = launcher::cpu_quota(cgroup);
  const auto limit = parse_number<std::uint64_t>(launcher::first_line(cgroup + "/memory.max"));
  std::error_code ignored;
  std::size_t nodes = 0;
  for (const auto& entry : fs::directory_iterator{"/sys/devices/system/node", ignored}) {
    const auto name = entry.path().filename().string();
    nodes += name.size() > 4 && name.starts_with("node") && name[4] >= '0' && name[4] <= '9';
  }
  std::array<char, 32> cores{};
  if (quota) std::snprintf(cores.data(), cores.size(), ", quota %g", *quota);
  return {"hardware",
          {{"CPU", cpu_model(whole_file("/proc/cpuinfo"))},
           {"cores", plural(launcher::count_physical_cores(), "core") + ", " +
                         plural(launcher::allowed_cores(), "hardware thread") + " that we may use" +
                         cores.data()},
           {"NUMA nodes", nodes == 0 ? "" : std::to_string(nodes)},
           {"memory", gibibytes(launcher::memory_field("MemTotal")) + ", available " +
                          gibibytes(agent::free_memory_bytes())},
           {"memory limit", limit ? gibibytes(limit) : "none"},
           {"/dev/shm", gibibytes(launcher::shared_memory_size())}}};
}

std::string cuda_toolkit(const Environment& environment) {
  auto nvcc = launcher::find_program("nvcc", environment);
  if (nvcc.empty()) nvcc = launcher::find_program("/usr/local/cuda/bin/nvcc", environment);
  if (nvcc.empty()) return {};
  const auto found = nvcc_version(launcher::version_text(nvcc, kVersionTime));
  return found.empty() ? nvcc : found + " (" + nvcc + ")";
}

Section about_gpus(const Environment& environment) {
  const auto devices = launcher::count_devices();
  std::map<std::string, int> kinds;
  for (const auto& name : launcher::nvidia_names()) ++kinds[name];
  std::vector<std::string> names;
  for (const auto& [name, count] : kinds) names.push_back(std::to_string(count) + " x " + name);
  const auto interpreter = launcher::find_interpreter(environment);
  const auto nccl = check::probe_nccl(check::find_worker_program(), interpreter);
  return {
      "GPU",
      {{"for a worker",
        devices.count == 0 ? "none" : std::to_string(devices.count) + " (" + devices.kind + ")"},
       {"GPUs", names.empty() ? "none" : join(names, ", ")},
       {"driver", launcher::nvidia_driver()},
       {"CUDA toolkit", cuda_toolkit(environment)},
       {"NCCL",
        nccl.found.empty() && !nccl.error.empty() ? "not found: " + nccl.error : nccl.found}}};
}

Section about_python(const Environment& environment) {
  const auto interpreter = launcher::find_interpreter(environment);
  const auto program = launcher::find_program(interpreter, environment);
  Section section{"Python", {{"interpreter", program}}};
  if (program.empty()) return section;
  section.facts.push_back(
      {"version", std::string{trim(launcher::version_text(program, kVersionTime))}});
  for (const char* package : {"torch", "accelerate", "transformers", "deepspeed", "numpy",
                              "nvidia_nccl_cu12", "nvidia_nccl_cu13"}) {
    const bool is_library = std::string_view{package}.starts_with("nvidia");  // in nvidia/nccl
    const auto found = is_library ? launcher::listed_version(program, package)
                                  : launcher::installed_version(program, package);
    if (found.empty() && is_library) continue;
    const bool is_hidden = found.empty() && !launcher::shows_packages(program);
    section.facts.push_back({package, is_hidden ? "can't be seen without running the interpreter"
                                      : found == "0" ? "there, version not found"
                                                     : found});
  }
  return section;
}

std::string address_text(const sockaddr* address) {
  std::array<char, NI_MAXHOST> text{};
  const auto size = static_cast<socklen_t>(address->sa_family == AF_INET ? sizeof(sockaddr_in)
                                                                         : sizeof(sockaddr_in6));
  if (::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return text.data();
}

/// What another node sees of us where the default route leads: the source address that the kernel
/// would take to 192.0.2.1 (TEST-NET-1). Nothing is sent.
std::string advertised_address() {
  const UniqueFd fd{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(9);
  ::inet_pton(AF_INET, "192.0.2.1", &there.sin_addr);
  sockaddr_in here{};
  socklen_t size = sizeof here;
  if (!fd || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&there), sizeof there) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&here), &size) != 0)
    return {};
  return address_text(reinterpret_cast<sockaddr*>(&here));
}

std::string speed_of(const std::string& interface) {
  const auto speed =
      parse_number<std::int64_t>(launcher::first_line("/sys/class/net/" + interface + "/speed"));
  return speed && *speed > 0 ? ", " + std::to_string(*speed) + " Mbit/s" : "";
}

Section about_network() {
  Section section{"network", {}};
  const auto address = advertised_address();
  section.facts.push_back({"address for other nodes", address.empty() ? "no route" : address});
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return section;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner{list, &::freeifaddrs};
  std::map<std::string, std::vector<std::string>> addresses;
  std::map<std::string, bool> is_up;
  for (const auto* one = list; one != nullptr; one = one->ifa_next) {
    is_up[one->ifa_name] = (one->ifa_flags & IFF_RUNNING) != 0;
    if (one->ifa_addr == nullptr) continue;
    const auto family = one->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6)
      addresses[one->ifa_name].push_back(address_text(one->ifa_addr));
  }
  for (const auto& [name, up] : is_up) {
    auto found = addresses[name];
    section.facts.push_back({name, (found.empty() ? "no address" : join(found, ", ")) +
                                       (up ? speed_of(name) : ", down")});
  }
  return section;
}

Section about_config(const Environment& environment, const std::string& config_file) {
  const auto path = config_file.empty() ? launcher::default_config_path(environment) : config_file;
  Section section{"config", {{"file", path}}};
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    section.facts.front().value += " (not there)";
  } else if (!fs::is_regular_file(path, ignored) || ::access(path.c_str(), R_OK) != 0) {
    section.facts.front().value += " (can't be read)";
  } else {
    const auto text = shown_config(whole_file(path));
    section.facts.push_back({"contents", text.size() > 1 ? "\n" + text : "empty"});
  }
  return section;
}

Section about_variables(const Environment& environment) {
  Section section{"variables", {}};
  if (const auto place = launcher::find_placement(environment, launcher::full_host_name()))
    section.facts.push_back({"scheduler", place->who});
  for (const auto& [name, value] : environment)
    if (is_wanted_variable(name))
      section.facts.push_back({name, value.empty() ? "(empty)" : shown_value(name, value)});
  if (section.facts.empty()) section.facts.push_back({"of launchers and schedulers", "none"});
  return section;
}

// Of servers; the numbers stand in MIDR_EL1.
struct ArmCore {
  std::string_view implementer, part, name;
};
constexpr ArmCore kArmCores[] = {
    {"0x41", "0xd08", "Arm Cortex-A72"},  {"0x41", "0xd0c", "Arm Neoverse N1"},
    {"0x41", "0xd40", "Arm Neoverse V1"}, {"0x41", "0xd49", "Arm Neoverse N2"},
    {"0x41", "0xd4f", "Arm Neoverse V2"}, {"0x41", "0xd83", "Arm Neoverse V3AE"},
    {"0x41", "0xd84", "Arm Neoverse V3"}, {"0x41", "0xd8e", "Arm Neoverse N3"},
    {"0xc0", "0xac3", "Ampere Ampere-1"}, {"0xc0", "0xac4", "Ampere Ampere-1A"},
    {"0x46", "0x001", "Fujitsu A64FX"},   {"0x48", "0xd01", "HiSilicon TSV110"},
};

/// The value of the first line "name : value"; empty: there is none.
std::string value_in(std::string_view text, std::string_view name) {
  for (const auto& line : split(text, '\n')) {
    const auto colon = line.find(':');
    if (colon != std::string::npos && trim(std::string_view{line}.substr(0, colon)) == name)
      return std::string{trim(std::string_view{line}.substr(colon + 1))};
  }
  return {};
}

}  // namespace

std::string os_name(std::string_view os_release) {
  constexpr std::string_view kName = "PRETTY_NAME=";
  for (const auto& line : split(os_release, '\n')) {
    if (!line.starts_with(kName)) continue;
    auto name = trim(std::string_view{line}.substr(kName.size()));
    if (name.size() >= 2 && name.front() == '"' && name.back() == '"')
      name = name.substr(1, name.size() - 2);
    return std::string{name};
  }
  return {};
}

std::string cpu_model(std::string_view cpuinfo) {
  if (auto name = value_in(cpuinfo, "model name"); !name.empty()) return name;
  const auto implementer = value_in(cpuinfo, "CPU implementer");
  const auto part = value_in(cpuinfo, "CPU part");
  if (implementer.empty() || part.empty()) return {};
  const auto numbers = "implementer " + implementer + ", part " + part;
  for (const auto& core : kArmCores) {
    if (core.implementer == implementer && core.part == part)
      return std::string{core.name} + " (" + numbers + ")";
  }
  return numbers;
}

std::string nvcc_version(std::string_view text) {
  const auto at = text.find(", V");
  if (at == std::string_view::npos) return {};
  const auto rest = text.substr(at + 3);
  return std::string{rest.substr(0, rest.find_first_not_of("0123456789."))};
}

std::vector<Section> collect_facts(const Environment& environment, const std::string& config_file) {
  return {about_us(),
          about_system(),
          about_hardware(),
          about_gpus(environment),
          about_python(environment),
          about_network(),
          about_config(environment, config_file),
          about_variables(environment)};
}

}  // namespace acc::env
