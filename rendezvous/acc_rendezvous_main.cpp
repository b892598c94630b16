// acc-rendezvous: a coordinator that belongs to no node. It serves any number of jobs; each begins
// with its first agent, which also reports the number of nodes.

#include "common/duration.hpp"
#include "common/exit_codes.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"
#include "common/random.hpp"
#include "common/text.hpp"
#include "common/version.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/last_leader_file.hpp"
#include "rendezvous/listener.hpp"
#include "rendezvous/lookup.hpp"
#include "rendezvous/own_address.hpp"
#include "rendezvous/peer_text.hpp"
#include "rendezvous/secret.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace acc;
using namespace acc::rendezvous;

constexpr const char* kAnyAddress = "::";

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

struct Wishes {
  HostPort at{"", 29400};
  std::string secret_file;
  bool is_insecure = false;
  Timings timings;
};

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

class Server {
 public:
  Server(boost::asio::io_context& io, const Wishes& wishes)
      : io_{io}, wishes_{wishes}, last_leader_timer_{io} {
    renew_notes();
  }

  /// At the first of these addresses that is one of this host. @return 0, or the exit code of the
  /// failure
  int open(const std::vector<std::string>& addresses) {
    Result<void> opened{};
    for (const auto& address : addresses) {
      const bool is_hidden = is_name_on_loopback(wishes_.at.host, address);
      opened = listen(is_hidden ? kAnyAddress : address);
      if (opened && is_hidden)
        say(wishes_.at.host + " is " + address +
            " on this machine (/etc/hosts?), which others can't reach: listening on all its "
            "addresses");
      if (opened || !is_no_own_address(opened.error())) break;
    }
    if (opened) return 0;
    say(opened.error().what);
    return to_int(ExitCode::failure);  // as acc-launch
  }

 private:
  Result<void> listen(const std::string& address) {
    ListenOptions options;
    options.at = {address, wishes_.at.port};
    options.is_dual_stack = address == kAnyAddress;
    options.is_insecure = wishes_.is_insecure;
    options.channel.heartbeat_timeout = wishes_.timings.heartbeat_timeout;
    std::string words;
    const auto places = secret_places(wishes_.secret_file);
    const bool is_loopback = address == "127.0.0.1" || address == "::1";
    if (!wishes_.is_insecure && (!is_loopback || is_secret_named(places))) {
      const auto secret = load_secret(places);
      if (!secret) return secret.error();
      options.tls = TlsContext::for_listening(*secret);
      words = "secret: " + secret->path + ", key id " + secret->keys.front().id;
    }
    auto opened = Listener::open(io_, options);
    if (!opened) return opened.error();
    if (!words.empty()) say(words);
    is_everywhere_ = options.is_dual_stack;
    listener_ = std::move(*opened);
    listener_->start([this](std::shared_ptr<Channel> channel,
                            std::string_view first) { greet(std::move(channel), first); },
                     [](const TurnedAway& who) {
                       say("turned away a connection from " + who.source + ": " + who.what);
                     });
    say("listening at " + describe(listener_->at()) +
        (options.tls           ? ""
         : wishes_.is_insecure ? ", insecure"
                               : ", loopback only"));
    return {};
  }

  void greet(std::shared_ptr<Channel> channel, std::string_view first) {
    const auto frame = decode_of_peer(first);
    if (const auto* moved = frame ? std::get_if<LeaderMoved>(&frame->message) : nullptr) {
      // This process was restarted, and the job has elected a coordinator meanwhile: redirect the
      // agents that wait here.
      const auto job = jobs_.find(moved->job);
      const bool is_proved = !channel->is_tls() || channel->proof().job == moved->job;
      if (is_proved && job != jobs_.end() && job->second.coordinator)
        job->second.coordinator->moved(moved->to);
      return channel->close();
    }
    const auto* join = frame ? std::get_if<Join>(&frame->message) : nullptr;
    const bool is_proved =
        join != nullptr && (!channel->is_tls() || channel->proof().job == join->job);
    if (!is_proved) {
      say("turned away " + describe(channel->peer()) + ": " +
          (!frame            ? frame.error().what
           : join == nullptr ? "it doesn't join"
                             : "its key is for another job"));
      return channel->close();
    }
    auto& job = jobs_[join->job];
    // Where all went before the first round, the next who come may be started with other options.
    if (!job.coordinator || job.coordinator->is_deserted()) begin(job, join->job);
    job.coordinator->admit(PeerId{++peers_}, link_over(std::move(channel)), *join);
  }

  struct Job {
    std::optional<LastLeaderFile> note;
    std::unique_ptr<Coordinator> coordinator;
  };

  void begin(Job& job, const std::string& name) {
    job.note.emplace(name, listener_->at().port);
    const auto left_ago = job.note->age();
    const auto& times = wishes_.timings;
    MembershipOptions options;
    options.is_restarted_seed = left_ago && *left_ago < (times.lease + times.heartbeat_timeout) * 2;
    options.job = name;
    options.name = "acc-rendezvous@" + host_name();
    const auto at = listener_->at();
    options.where = is_everywhere_ ? host_name() + ":" + std::to_string(at.port) : describe(at);
    options.timings = wishes_.timings;
    options.seed = random_number();
    const std::string prefix = "job " + printable(name) + ": ";
    Coordinator::Hooks hooks;
    hooks.tell = [prefix](const std::string& text, bool) { say(prefix + text); };
    hooks.stepped_down = [this, name, prefix](const std::string& why) {
      say(prefix + why);
      end(name);
    };
    hooks.job_over = [this, name, prefix](const Close& close) {
      say(prefix + "over, exit code " + std::to_string(close.exit_code) +
          (close.reason.empty() ? "" : ": " + close.reason));
      constexpr Millis kCloseLimit{5'000};
      jobs_[name].note->remove();
      jobs_[name].coordinator->when_all_left(kCloseLimit, [this, name] { end(name); });
    };
    say(prefix + "begins");
    job.coordinator = std::make_unique<Coordinator>(io_, std::move(options), std::move(hooks));
  }

  void renew_notes() {
    for (const auto& [name, job] : jobs_) {
      if (job.coordinator && job.coordinator->membership().has_round() &&
          job.coordinator->membership().phase() != MembershipPhase::closed)
        job.note->renew();
    }
    last_leader_timer_.expires_after(wishes_.timings.heartbeat_timeout / 2);
    last_leader_timer_.async_wait([this](boost::system::error_code error) {
      if (!error) renew_notes();
    });
  }

  void end(const std::string& name) {
    std::shared_ptr<Coordinator> ended{std::move(jobs_[name].coordinator)};  // it is on the stack
    jobs_.erase(name);
    boost::asio::post(io_, [ended] {});
  }

  boost::asio::io_context& io_;
  Wishes wishes_;
  std::shared_ptr<Listener> listener_;
  bool is_everywhere_ = false;  ///< it listens at all addresses
  std::map<std::string, Job> jobs_;
  boost::asio::steady_timer last_leader_timer_;
  std::uint64_t peers_ = 0;
};

int serve(const Wishes& wishes) {
  boost::asio::io_context io{1};
  Server server{io, wishes};
  int code = 0;
  std::shared_ptr<Lookup> lookup;
  if (wishes.at.host.empty()) {
    code = server.open({kAnyAddress});
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
