#include "agent/health_probes.hpp"

#include "agent/small_file.hpp"
#include "common/host_name.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

namespace acc::agent::health {

namespace {

namespace fs = std::filesystem;

// Numbers of file systems that several nodes share (statfs): NFS, SMB, CIFS, SMB2, Lustre, Ceph,
// FUSE, GPFS, BeeGFS, AFS, OCFS2, GFS2, 9P.
constexpr std::array<std::uint32_t, 13> kSharedFileSystems{
    0x6969,     0x517B,     0xFF534D42, 0xFE534D42, 0x0BD00BD0, 0x00C36400, 0x65735546,
    0x47504653, 0x19830326, 0x5346414F, 0x7461636F, 0x01161970, 0x01021997};

bool is_shared(const std::string& path) {
  struct statfs facts {};
  if (::statfs(path.c_str(), &facts) != 0) return false;
  return std::ranges::find(kSharedFileSystems, static_cast<std::uint32_t>(facts.f_type)) !=
         kSharedFileSystems.end();
}

// A folder that isn't there yet is made in its parent.
std::string nearest_folder(const std::string& path) {
  fs::path at = fs::absolute(path);
  std::error_code failed;
  while (!fs::exists(at, failed) && !failed && at.has_relative_path()) at = at.parent_path();
  return at.string();
}

std::vector<Reading> measure_space(const std::string& probe, const std::string& path,
                                   const std::string& use) {
  const std::string at = nearest_folder(path);
  struct statvfs facts {};
  if (::statvfs(at.c_str(), &facts) != 0)
    return {{probe, path, "errno", static_cast<double>(errno), std::strerror(errno)}};
  const std::string text = use == "checkpoints" && is_shared(at) ? "shared" : use;
  std::error_code failed;
  const bool is_missing = use == "checkpoints" && !fs::exists(path, failed) && !failed;
  const double free_bytes =
      static_cast<double>(facts.f_bavail) * static_cast<double>(facts.f_frsize);
  std::vector<Reading> readings{{probe, path, "free_bytes", free_bytes, text}};
  if (facts.f_files > 0)  // else the file system doesn't count them
    readings.push_back({probe, path, "free_inodes", static_cast<double>(facts.f_favail), text});
  if (is_missing) readings.push_back({probe, path, "is_missing", 1.0, at});
  readings.push_back(
      {probe, path, "is_read_only", (facts.f_flag & ST_RDONLY) != 0 ? 1.0 : 0.0, text});
  return readings;
}

std::vector<Reading> measure_memory(const std::string& root) {
  for (const auto& line : split(read_small_file(root + "/proc/meminfo"), '\n')) {
    if (!line.starts_with("MemAvailable:")) continue;
    const auto words = split(trim(line.substr(line.find(':') + 1)), ' ');
    if (const auto kib = parse_number<std::uint64_t>(words[0]))
      return {{"memory", "", "available_bytes", static_cast<double>(*kib) * 1024, ""}};
  }
  return {};
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator at{folder, failed}, end; !failed && at != end; at.increment(failed))
    names.push_back(at->path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::optional<double> number_in(const std::string& path) {
  const auto number = parse_number<std::int64_t>(trim(read_small_file(path)));
  return number ? std::optional{static_cast<double>(*number)} : std::nullopt;
}

std::vector<Reading> measure_throttling(const std::string& root) {
  const std::string cpus = root + "/sys/devices/system/cpu";
  std::optional<double> sum;
  for (const auto& cpu : entries_of(cpus)) {
    const auto count = number_in(cpus + "/" + cpu + "/thermal_throttle/core_throttle_count");
    if (count) sum = sum.value_or(0) + *count;
  }
  if (!sum) return {};
  return {{"cpu", "", "throttle_count", *sum, ""}};
}

std::vector<Reading> measure_name() {
  const std::string name = host_name();
  addrinfo* found = nullptr;
  const int why = ::getaddrinfo(name.c_str(), nullptr, nullptr, &found);
  if (why != 0) return {{"name", name, "resolves", 0, ::gai_strerror(why)}};
  ::freeaddrinfo(found);
  return {{"name", name, "resolves", 1, ""}};
}

// Interfaces with a device of their own: those of containers come and go. And InfiniBand's ports.
std::vector<Reading> measure_links(const std::string& root) {
  std::vector<Reading> readings;
  const std::string net = root + "/sys/class/net";
  for (const auto& name : entries_of(net)) {
    std::error_code failed;
    if (!fs::exists(net + "/" + name + "/device", failed) && !name.starts_with("bond")) continue;
    // Unreadable while the interface is down.
    readings.push_back(
        {"net", name, "carrier", number_in(net + "/" + name + "/carrier").value_or(0), ""});
  }
  const std::string infiniband = root + "/sys/class/infiniband";
  for (const auto& device : entries_of(infiniband)) {
    for (const auto& port : entries_of(infiniband + "/" + device + "/ports")) {
      const auto state = read_small_file(infiniband + "/" + device + "/ports/" + port + "/state");
      const bool is_active = state.find("ACTIVE") != std::string::npos;
      readings.push_back({"net", device + " port " + port, "carrier", is_active ? 1.0 : 0.0, ""});
    }
  }
  return readings;
}

// Each read of /dev/kmsg gives one record; a plain file gives many.
std::string kernel_log(const std::string& root) {
  constexpr std::size_t kMost = std::size_t{4} << 20U;
  const UniqueFd fd{::open((root + "/dev/kmsg").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  std::string text;
  char record[8192];
  while (fd && text.size() < kMost) {
    const ssize_t n = ::read(fd.get(), record, sizeof record);
    if (n < 0 && (errno == EPIPE || errno == EINTR)) continue;  // records were overwritten
    if (n <= 0) break;
    text.append(record, static_cast<std::size_t>(n));
  }
  return text;
}

std::vector<Reading> measure_gpu(const ProbeSetting& setting) {
  auto readings = measure_gpus(setting.nvml);
  if (readings.empty()) return readings;
  for (auto& xid : xids_in(kernel_log(setting.root), setting.kernel_log_from_us))
    readings.push_back(std::move(xid));
  return readings;
}

}  // namespace

std::vector<Reading> xids_in(std::string_view kernel_log, std::int64_t from_us) {
  constexpr std::string_view kMark = ";NVRM: Xid (PCI:";
  std::vector<Reading> readings;
  for (const auto& line : split(kernel_log, '\n')) {
    const auto mark = line.find(kMark);
    if (mark == std::string::npos) continue;
    const auto fields = split(line.substr(0, mark), ',');
    const auto when = fields.size() > 2 ? parse_number<std::int64_t>(fields[2]) : std::nullopt;
    const auto place_end = line.find("): ", mark);
    if (!when || *when < from_us || place_end == std::string::npos) continue;
    const auto rest = line.substr(place_end + 3);
    const auto code_end = rest.find_first_not_of("0123456789");
    const auto code = parse_number<std::uint32_t>(rest.substr(0, code_end));
    if (!code) continue;
    const auto place = line.substr(mark + kMark.size(), place_end - mark - kMark.size());
    const std::string said =
        code_end == std::string::npos ? "" : rest.substr(std::min(code_end + 2, rest.size()));
    readings.push_back({"gpu", "GPU at " + printable(place, 32), "xid", static_cast<double>(*code),
                        printable(said, 160)});
  }
  return readings;
}

std::vector<Reading> measure(const Probe& probe, const ProbeSetting& setting) {
  if (probe.name == "disk") return measure_space("disk", probe.subject, probe.use);
  if (probe.name == "shm") return measure_space("shm", "/dev/shm", "");
  if (probe.name == "memory") return measure_memory(setting.root);
  if (probe.name == "cpu") return measure_throttling(setting.root);
  if (probe.name == "name") return measure_name();
  if (probe.name == "net") return measure_links(setting.root);
  if (probe.name == "gpu") return measure_gpu(setting);
  return {};
}

}  // namespace acc::agent::health
