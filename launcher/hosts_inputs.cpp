#include "launcher/hosts_inputs.hpp"

#include "common/host_name.hpp"
#include "common/random.hpp"
#include "launcher/host_list.hpp"
#include "launcher/input_file.hpp"
#include "launcher/key_table.hpp"
#include "launcher/program.hpp"

#include <unistd.h>

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
  auto text = read_input(path, kMaxHostfileBytes);
  if (!text) return Error{Errc::bad_usage, "--hostfile: " + text.error().what};
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
