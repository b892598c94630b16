// acc-rendezvous: a coordinator that belongs to no node. It serves any number of jobs; each begins
// with its first agent, which also reports the number of nodes.

#include "common/duration.hpp"
#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "common/version.hpp"
#include "rendezvous/job_server.hpp"
#include "rendezvous/lookup.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace acc;
using namespace acc::rendezvous;

constexpr std::string_view kHelp =
    "usage: acc-rendezvous [--listen ADDRESS] [--port PORT] [--secret_file FILE | --insecure]\n"
    "                      [--dead_after TIME] [--lease TIME] [--version]\n"
    "\n"
    "The meeting point of jobs on several nodes, where no node shall have that part:\n"
    "  acc-rendezvous --port 29400\n"
    "  acc-launch --nnodes 3:4 --nproc_per_node 8 --rdzv_backend tcp --rdzv_endpoint HOST:29400 …\n"
    "\n"
    "  --listen ADDRESS    an address or name of this host, also with :PORT; default: all of them\n"
    "  --port PORT         default 29400; 0: any free one, which is printed\n"
    "  --secret_file FILE  the cluster's secret; default as for acc-launch\n"
    "  --insecure          no secret: any process that reaches the port may join any job\n"
    "  --dead_after TIME   silence after which a node counts as lost; default 5s\n"
    "  --lease TIME        how long workers live without this process; default 2 x dead_after\n";

using Wishes = JobServerOptions;

void say(const std::string& text) { std::fprintf(stderr, "acc-rendezvous: %s\n", text.c_str()); }

int refuse(const std::string& what) {
  say(what);
  say("try --help");
  return to_int(ExitCode::usage);
}

int print(std::string_view text) {
  const bool is_written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (is_written || errno == EPIPE) return 0;
  say(system_error(errno, "write to the standard output").what);
  return to_int(ExitCode::output);
}

/// The options that take a value.
constexpr std::string_view kOptions[] = {"--listen", "--port", "--secret_file", "--dead_after",
                                         "--lease"};

bool is_option(std::string_view name) {
  return std::ranges::find(kOptions, name) != std::end(kOptions);
}

std::string unknown(const std::string& word) {
  if (!word.starts_with('-'))
    return "'" + printable(word) + "': no further word is needed: jobs begin with their agents";
  const auto meant = nearest(word, kOptions);
  return "there is no option " + printable(word) +
         (meant.empty() ? "" : " (did you mean " + std::string{meant} + "?)");
}

/// Empty if the value is valid.
std::string take(Wishes& wishes, std::string_view name, const std::string& value, bool& has_lease) {
  const auto time = [&](Millis& into) -> std::string {
    const auto parsed = parse_duration(value);
    if (!parsed) return std::string{name} + ": " + parsed.error().what;
    into = *parsed;
    return {};
  };
  if (name == "--listen") {
    // "host:port" and "[::1]:port" too; a bare IPv6 address has more than one colon.
    const auto colon = value.rfind(':');
    const bool has_port = colon != std::string::npos &&
                          (value.find(':') == colon || (colon > 0 && value[colon - 1] == ']'));
    wishes.at.host = has_port ? value.substr(0, colon) : value;
    if (wishes.at.host.starts_with('[') && wishes.at.host.ends_with(']'))
      wishes.at.host = wishes.at.host.substr(1, wishes.at.host.size() - 2);
    if (has_port) return take(wishes, "--port", value.substr(colon + 1), has_lease);
  } else if (name == "--port") {
    const auto port = parse_number<std::uint16_t>(value);
    if (!port) return "--port: '" + printable(value) + "' is not a port: 0 to 65535";
    wishes.at.port = *port;
  } else if (name == "--secret_file") {
    wishes.secret_file = value;
  } else if (name == "--dead_after") {
    return time(wishes.timings.heartbeat_timeout);
  } else {  // --lease
    has_lease = true;
    return time(wishes.timings.lease);
  }
  return {};
}

int serve(const Wishes& wishes) {
  boost::asio::io_context io{1};
  JobServer server{io, wishes, say};
  int code = 0;
  std::shared_ptr<Lookup> lookup;
  if (wishes.at.host.empty()) {
    code = server.open({JobServer::kAnyAddress});
  } else {
    lookup = std::make_shared<Lookup>(io);
    lookup->start(wishes.at, [&](const Lookup::Endpoints& found, const std::string& failed) {
      std::vector<std::string> addresses;
      for (const auto& one : found) addresses.push_back(host_port(one).host);
      if (found.empty()) say("--listen " + wishes.at.host + ": " + failed);
      code = found.empty() ? to_int(ExitCode::failure) : server.open(addresses);
      if (code != 0) io.stop();
    });
  }
  boost::asio::signal_set signals{io, SIGTERM, SIGINT};
  signals.async_wait([&](boost::system::error_code, int) { io.stop(); });
  if (code == 0) io.run();
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  Wishes wishes;
  bool has_lease = false;
  for (int i = 1; i < argc; ++i) {
    std::string word{argv[i]};
    if (word == "--help" || word == "-h") return print(kHelp);
    if (word == "--version") return print(std::string{"acc-rendezvous "} + version() + "\n");
    if (word == "--insecure") {
      wishes.is_insecure = true;
      continue;
    }
    std::string value;
    const auto equals = word.find('=');
    const auto name = word.substr(0, equals);
    if (!is_option(name)) return refuse(unknown(name));
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      return refuse(name + " needs a value");
    }
    const auto complaint = take(wishes, name, value, has_lease);
    if (!complaint.empty()) return refuse(complaint);
  }
  if (const auto wrong = wishes.timings.complaint(); !wrong.empty())
    return refuse("--dead_after: " + wrong);
  if (!has_lease) wishes.timings.lease = wishes.timings.heartbeat_timeout * 2;
  if (wishes.timings.lease <= wishes.timings.least_lease())
    return refuse("--lease must be more than --dead_after and two heartbeats: " +
                  describe(wishes.timings.least_lease()));
  return serve(wishes);
}
