#include "launcher/hosts_inputs.hpp"

#include "common/host_name.hpp"
#include "common/random.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "launcher/host_list.hpp"
#include "launcher/key_table.hpp"
#include "launcher/program.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace acc::launcher {

using namespace literals;

namespace {

/// Else by PATH.
std::string program_beside(const std::string& own, const std::string& name) {
  const auto path = own.substr(0, own.rfind('/') + 1) + name;
  return ::access(path.c_str(), X_OK) == 0 ? path : name;
}

/// What a transport starts on the hosts. This process may be acc-test.
std::string acc_launch_program() {
  const auto own = own_program("acc-launch");
  const auto beside = program_beside(own, "acc-launch");
  return beside.find('/') == std::string::npos ? own : beside;
}

Result<std::string> read_hostfile(const std::string& path) {
  const auto attempted = "--hostfile: read '" + printable(path) + "'";
  const UniqueFd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!file) return Error{Errc::bad_usage, system_error(errno, attempted).what};
  std::string text;
  char buffer[65536];
  while (text.size() <= kMaxHostfileBytes) {
    const ssize_t n = ::read(file.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(errno, attempted);
    if (n == 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

}  // namespace

Result<HostsInputs> look_at_inputs(const CommandLine& line, const JobSpec& spec,
                                   const Environment& environment) {
  HostsInputs inputs{environment, {}, acc_launch_program(), host_name(), {}, random_name(), {}};
  if (line.given("hostfile"_key) != nullptr) {
    auto text = read_hostfile(spec.text("hostfile"_key));
    if (!text) return text.error();
    inputs.hostfile_text = std::move(*text);
  }
  inputs.daemon = find_daemon(environment);
  inputs.ctl = program_beside(inputs.program, "acc-ctl");
  return inputs;
}

}  // namespace acc::launcher
