#include "launcher/hosts_plan.hpp"

#include "launcher/hosts_flags.hpp"
#include "launcher/hosts_json.hpp"
#include "launcher/shell_words.hpp"
#include "tests/unit/launcher/trial.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace acc;
using namespace acc::launcher;
using Catch::Contains;
using Words = std::vector<std::string>;

namespace {

struct HostsTrial {
  Words words;
  std::string yaml{};
  Environment environment{};
  std::string hostfile{};
  DaemonFound daemon{};

  PlannedHosts planned() {
    const auto line = parse_command_line(words);
    REQUIRE(line.complaints.empty());
    std::optional<Config> config;
    if (!yaml.empty()) config = parse_config(yaml, "cfg.yaml").value();
    const auto facts = unknown_facts();
    const auto merged = merge(line, config, *facts, environment);
    REQUIRE(merged.complaints.empty());
    return plan_hosts(line, merged.spec,
                      {environment, "/job", "/opt/acc-launch", "login1", hostfile, "r4nd0m", {},
                       daemon});
  }
  std::string complaints() {
    std::string text;
    for (const auto& complaint : planned().complaints) text += complaint.what + "\n";
    return text;
  }
  /// The command on one host, as its shell reads it.
  std::string command(std::size_t host) {
    auto plan = planned();
    REQUIRE(plan.complaints.empty());
    return plan.launch.hosts.at(host).command.back();
  }
};

}  // namespace

TEST_CASE("each host gets its rank, its workers and the job's words", "[launcher][hosts]") {
  HostsTrial trial{
      {"--hosts", "a:2,me@b:1", "--ssh", "--max_restarts", "3", "-q", "train.py", "--lr", "it's"}};
  const auto plan = trial.planned();
  CHECK(plan.launch.hosts.at(1).name == "me@b");
  const auto& ssh = plan.launch.hosts.at(1).command;
  CHECK(ssh.front() == "ssh");
  CHECK(ssh.at(ssh.size() - 2) == "me@b");
  CHECK(std::find(ssh.begin(), ssh.end(), "BatchMode=yes") != ssh.end());
  const auto line = trial.command(1);
  for (const auto* word :
       {"/opt/acc-launch", "--life_line=0 --secret_fd=0", "--max_restarts=3", "--quiet",
        "--nnodes=2", "--node_rank=1", "--nproc_per_node=1", "--rdzv_backend=tcp",
        "--main_process_ip=a", "--main_process_port=2", "-- train.py --lr 'it'\\''s'"})
    CHECK_THAT(line, Contains(word));
  CHECK_THAT(line, !Contains("--hosts") && !Contains("--ssh"));
  CHECK_THAT(trial.command(0), Contains("--node_rank=0") && Contains("--nproc_per_node=2"));
}

TEST_CASE("the user's own rendezvous, secret and report are kept", "[launcher][hosts]") {
  HostsTrial trial{{"--hosts", "a,b", "--ssh", "--main_process_ip", "10.0.0.1", "--secret_file",
                    "/s", "--report", "r.json", "x.py"}};
  CHECK(!trial.planned().launch.sends_secret);
  CHECK_THAT(trial.command(1), Contains("--main_process_ip=10.0.0.1") &&
                                   !Contains("--main_process_ip=a") && !Contains("--secret_fd") &&
                                   !Contains("--report"));
  CHECK_THAT(trial.command(0), Contains("--report=r.json"));
}

TEST_CASE("hosts took each line for torchrun's, which has more time to end", "[launcher][hosts]") {
  const auto command = [](Words words, Environment environment = {}) {
    words.insert(words.begin(), {"--hosts", "a,b", "--ssh"});
    words.emplace_back("x.py");
    return HostsTrial{std::move(words), {}, std::move(environment)}.command(1);
  };
  CHECK_THAT(command({"--num_processes", "4"}), Contains("--grace=15"));
  CHECK_THAT(command({"--nproc_per_node", "2"}), Contains("--grace=30"));
  CHECK_THAT(command({}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "40"}}), Contains("--grace=40"));
  CHECK_THAT(command({"--grace", "5"}), Contains("--grace=5") && !Contains("--grace=15"));
}

TEST_CASE("workers are shared as the user counts them", "[launcher][hosts]") {
  using Workers = std::vector<std::optional<std::uint32_t>>;
  const auto workers = [](Words words, std::string yaml = {}) {
    words.insert(words.end(), {"--ssh", "x.py"});
    return HostsTrial{std::move(words), std::move(yaml)}.planned().workers;
  };
  CHECK(workers({"--hosts", "a,b:8"}) == Workers{1, 8});
  CHECK(workers({"--hosts", "a,b,c", "--num_processes", "7"}) == Workers{3, 2, 2});
  CHECK(workers({"--hosts", "a,b"}) == Workers{std::nullopt, std::nullopt});
  CHECK(workers({"--hosts", "a:4,b:4", "--num_processes", "8"}) == Workers{4, 4});
  const std::string yaml =
      "distributed_type: MULTI_CPU\nuse_cpu: true\nnum_processes: 6\nnum_machines: 1\n"
      "machine_rank: 0\nrdzv_backend: static\n";
  CHECK(workers({"--hosts", "a,b"}, yaml) == Workers{3, 3});
  CHECK(workers({"--hosts", "a:1,b:2"}, yaml) == Workers{1, 2});  // a flag beats the file
}

TEST_CASE("workers of each node, or of the most nodes, were taken for the whole job's and shared",
          "[launcher][hosts]") {
  using Workers = std::vector<std::optional<std::uint32_t>>;
  const auto trial = [](const std::string& hosts, Words flags, std::string yaml = {}) {
    Words words{"--hosts", hosts, "--ssh"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.emplace_back("x.py");
    return HostsTrial{std::move(words), std::move(yaml)};
  };
  const std::string base = "distributed_type: MULTI_GPU\nmixed_precision: 'no'\n";
  const Workers each_of_two{std::nullopt, std::nullopt};
  const Workers each_of_three{std::nullopt, std::nullopt, std::nullopt};
  SECTION("nproc_per_node of a file") {
    auto eight = trial("a,b", {}, base + "nproc_per_node: 8\n");
    CHECK(eight.planned().workers == each_of_two);
    CHECK_THAT(eight.command(1), Contains("--nproc_per_node=8"));
  }
  SECTION("nnodes of a file, a range") {
    auto elastic = trial("a,b,c", {}, base + "nnodes: '3:4'\nnproc_per_node: 8\n");
    CHECK(elastic.planned().workers == each_of_three);
    CHECK_THAT(elastic.command(2), Contains("--nproc_per_node=8") && Contains("--nnodes=3 "));
  }
  SECTION("a word, which each host counts") {
    auto gpus = trial("a,b,c", {}, base + "nnodes: '3:4'\nnproc_per_node: gpu\n");
    CHECK(gpus.planned().workers == each_of_three);
    CHECK_THAT(gpus.command(0), Contains("--nproc_per_node=gpu"));
  }
  SECTION("--nnodes alone: one each") {
    auto nodes = trial("a,b,c", {"--nnodes", "2:4"});
    CHECK(nodes.planned().workers == each_of_three);
    CHECK_THAT(nodes.command(0), Contains("--nnodes=2:4") && !Contains("--nproc_per_node"));
  }
  SECTION("what is given for the whole job is still shared, and slots beat the file") {
    const auto file = base + "nproc_per_node: 8\n";
    auto total = trial("a,b", {"--num_processes", "6"}, file);
    CHECK(total.planned().workers == Workers{3, 3});
    auto slots = trial("a:1,b:2", {}, file);
    CHECK(slots.planned().workers == Workers{1, 2});
    CHECK_THAT(slots.command(1), Contains("--nproc_per_node=2") && !Contains("=8"));
    auto flag = trial("a,b", {"--nproc_per_node", "4"}, file);
    CHECK_THAT(flag.command(1), Contains("--nproc_per_node=4") && !Contains("=8"));
  }
}

TEST_CASE("slots suffice where the config file has no num_processes", "[launcher][hosts]") {
  const std::string yaml = "distributed_type: MULTI_GPU\nmixed_precision: bf16\n";
  HostsTrial slots{{"--hosts", "a:1,b:2", "--ssh", "x.py"}, yaml};
  CHECK(slots.planned().workers == std::vector<std::optional<std::uint32_t>>{1, 2});
  CHECK_THAT(slots.command(1), Contains("--nproc_per_node=2"));
  HostsTrial file{{"--hostfile", "h", "--ssh", "x.py"}, yaml, {}, "a slots=1\nb slots=2\n"};
  CHECK(file.complaints().empty());
  HostsTrial per_node{{"--hosts", "a,b", "--ssh", "--nproc_per_node", "4", "x.py"}, yaml};
  CHECK(per_node.complaints().empty());
  HostsTrial bare{{"--hosts", "a,b", "--ssh", "x.py"}, yaml};
  CHECK_THAT(bare.complaints(),
             Contains("cfg.yaml: num_processes is not set") && Contains("HOST:2"));
}

TEST_CASE("what contradicts the hosts is refused with both values", "[launcher][hosts]") {
  const auto complaints = [](Words words) {
    words.emplace_back("x.py");
    return HostsTrial{std::move(words)}.complaints();
  };
  CHECK_THAT(complaints({"--hosts", "a,b", "--ssh", "--nnodes", "3"}),
             Contains("--nnodes 3, but there are 2 hosts"));
  CHECK_THAT(complaints({"--hosts", "a,b", "--ssh", "--num_machines", "4"}),
             Contains("--num_machines 4, but there are 2 hosts"));
  CHECK_THAT(complaints({"--hosts", "a:2,b:2", "--ssh", "--num_processes", "5"}),
             Contains("--num_processes 5, but the hosts have 4 slots"));
  CHECK_THAT(complaints({"--hosts", "a:2,b:2", "--ssh", "--nproc_per_node", "3"}),
             Contains("--nproc_per_node 3, but --hosts gives a 2 slots"));
  CHECK_THAT(complaints({"--hosts", "a,b", "--ssh", "--machine_rank", "0"}),
             Contains("--machine_rank can't be given with --hosts"));
  CHECK_THAT(complaints({"--hosts", "a,b", "--ssh", "--launch_agent", "pdsh"}),
             Contains("two ways"));
  CHECK_THAT(complaints({"--hosts", "localhost,b", "--ssh"}), Contains("--main_process_ip"));
  CHECK_THAT(complaints({"--hosts", "a:1,b:2", "--ssh", "--rdzv_backend", "static"}),
             Contains("different numbers"));
  CHECK_THAT(complaints({"--hosts", "a,b"}), Contains("a is another machine") && Contains("--ssh"));
  CHECK(complaints({"--hosts", "localhost:2,login1"}).empty());
  CHECK_THAT(complaints({"--hosts", "a,b", "--ssh", "--env", "NOT_SET"}),
             Contains("isn't set here"));
}

TEST_CASE("another program takes the place of ssh", "[launcher][hosts]") {
  const auto command = [](const std::string& agent) {
    return HostsTrial{
        {"--hosts", "c1", "--launch_agent", agent, "--remote_launch", "/bin/acc", "x.py"}}
        .planned()
        .launch.hosts.at(0)
        .command;
  };
  const auto plain = command("rsh -n");
  REQUIRE(plain.size() == 4);
  CHECK(Words(plain.begin(), plain.begin() + 3) == Words{"rsh", "-n", "c1"});
  CHECK_THAT(plain[3], Catch::StartsWith("exec /bin/acc --life_line=0 "));
  const auto docker = command("docker exec -i {host} sh -c {command}");
  REQUIRE(docker.size() == 7);
  CHECK(docker[3] == "c1");
  CHECK(docker[6] == plain[3]);
  CHECK(command("docker exec -i c1 sh -c {command}") ==
        Words{"docker", "exec", "-i", "c1", "sh", "-c", plain[3]});
}

TEST_CASE("of all transports the shell that becomes acc-launch on this machine heeds signals",
          "[launcher][hosts]") {
  const auto direct = [](Words words, DaemonFound daemon = {}) {
    words.insert(words.end(), {"--main_process_ip", "10.0.0.1", "x.py"});
    HostsTrial trial{std::move(words)};
    trial.daemon = std::move(daemon);
    std::vector<bool> found;
    for (const auto& host : trial.planned().launch.hosts) found.push_back(host.is_direct);
    return found;
  };
  CHECK(direct({"--hosts", "login1,b", "--ssh"}) == std::vector{true, false});
  CHECK(direct({"--hosts", "login1"}) == std::vector{true});
  CHECK(direct({"--hosts", "login1,b", "--launch_agent", "rsh"}) == std::vector{false, false});
  CHECK(direct({"--hosts", "login1,b"}, {"/run/acc/agent.sock", false, {}}) ==
        std::vector{false, false});
}

TEST_CASE(
    "beside {host} the mark {command} of --launch_agent stayed as it is, or the command was left "
    "out",
    "[launcher][hosts]") {
  const auto command = [](const std::string& agent) {
    return HostsTrial{{"--hosts", "c1", "--launch_agent", agent, "--remote_launch", "/bin/acc",
                       "x.py", "it's {host}"}}
        .planned()
        .launch.hosts.at(0)
        .command;
  };
  const auto line = command("rsh").at(2);
  CHECK_THAT(line, Contains("{host}"));  // an argument, which stays as it is
  CHECK(command("kubectl exec -i {host} -- sh -c") ==
        Words{"kubectl", "exec", "-i", "c1", "--", "sh", "-c", line});
  const auto text = command("bash -c 'ssh -l x {host} {command}; echo {host}'");
  REQUIRE(text.size() == 3);
  CHECK(text[2] == "ssh -l x c1 " + quote_for_shell(line) + "; echo c1");
  CHECK(command("run --on={host}:{command}").at(1) == "--on=c1:" + line);
  CHECK(command("ssh {host} 'module load x; {command}'").at(2) == "module load x; " + line);
}

TEST_CASE("variables come from here or from the flag, and the plan shows only names",
          "[launcher][hosts]") {
  HostsTrial trial{{"--hosts", "a,b", "--ssh", "--env", "HERE", "--env", "TOKEN=hid,den=x", "x.py"},
                   {},
                   {{"HERE", "value"}}};
  const auto plan = trial.planned();
  REQUIRE(plan.launch.variables.size() == 2);
  CHECK(plan.launch.variables[0].value == "value");
  CHECK(plan.launch.variables[1].value == "hid,den=x");
  const auto shown = hosts_to_json(plan);
  CHECK_THAT(shown, Contains("TOKEN") && !Contains("hid,den") && !Contains("\"value\""));
}

TEST_CASE("flags for hosts need hosts", "[launcher][hosts]") {
  const Words words{"--ssh", "--env", "A=1", "--tag_output", "x.py"};
  CHECK(check_without_hosts(parse_command_line(words)).size() == 3);
}

TEST_CASE("without ssh the way to other machines is our own daemon's", "[launcher][hosts]") {
  HostsTrial trial{{"--hosts", "login1:2,b:4", "--env", "A=1", "x.py", "arg"}};
  trial.daemon = {"/run/acc/agent.sock", false, {}};
  const auto plan = trial.planned();
  REQUIRE(plan.complaints.empty());
  CHECK(plan.launch.uses_daemons);
  CHECK_FALSE(plan.launch.sends_secret);
  const auto& here = plan.launch.hosts[0].command;
  CHECK(Words(here.begin(), here.begin() + 10) ==
        Words{"acc-ctl", "bridge", "--socket=/run/acc/agent.sock", "--launch=hosts-r4nd0m",
              "--nodes=2", "--node_rank=0", "--slots=2", "--secret", "--here", "login1"});
  const auto& other = plan.launch.hosts[1].command;
  CHECK(Words(other.begin() + 5, other.begin() + 10) ==
        Words{"--node_rank=1", "--slots=4", "--secret", "b", "--"});
  CHECK(std::find(other.begin(), other.end(), "--node_rank=1") != other.end());
  CHECK(Words(other.end() - 3, other.end()) == Words{"--", "x.py", "arg"});
}

TEST_CASE("workers that each node counts itself took one slot of its acc-agent",
          "[launcher][hosts]") {
  const auto slots = [](Words flags, std::string yaml = {}) {
    Words words{"--hosts", "login1,b"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.emplace_back("x.py");
    HostsTrial trial{std::move(words), std::move(yaml)};
    trial.daemon = {"/run/acc/agent.sock", false, {}};
    const auto plan = trial.planned();
    REQUIRE(plan.complaints.empty());
    std::string found;
    for (const auto& host : plan.launch.hosts) {
      for (const auto& word : host.command)
        if (word.starts_with("--slots")) found += word + " ";
    }
    return found;
  };
  for (const auto* word : {"gpu", "auto", "cpu"}) CHECK(slots({"--nproc_per_node", word}).empty());
  CHECK(slots({}, "distributed_type: MULTI_GPU\nnproc_per_node: gpu\n").empty());
  CHECK(slots({"--nproc_per_node", "3"}) == "--slots=3 --slots=3 ");
  CHECK(slots({}, "distributed_type: MULTI_GPU\nnproc_per_node: 4\n") == "--slots=4 --slots=4 ");
  CHECK(slots({}) == "--slots=1 --slots=1 ");
}

TEST_CASE("hosts that are only this one took no slots of its acc-agent", "[launcher][hosts]") {
  HostsTrial trial{{"--hosts", "login1:9", "x.py"}};
  CHECK_FALSE(trial.planned().launch.uses_daemons);
  trial.daemon = {"/run/acc/agent.sock", false, {}};
  const auto plan = trial.planned();
  REQUIRE(plan.complaints.empty());
  CHECK(plan.launch.uses_daemons);
  CHECK(std::ranges::count(plan.launch.hosts.at(0).command, "--slots=9") == 1);
}

TEST_CASE("what the daemons can't do is refused with its cure", "[launcher][hosts]") {
  HostsTrial none{{"--hosts", "a,b", "x.py"}};
  none.daemon.why = "/run/acc/agent.sock: nothing listens there";
  CHECK_THAT(none.complaints(), Contains("no acc-agent answers here") &&
                                    Contains("nothing listens there") && Contains("add --ssh"));
  // A scheduler would not requeue what is wrong on the command line.
  CHECK(none.planned().complaints.at(0).code == Errc::unavailable);
  HostsTrial own{{"--hosts", "a,b", "x.py"}};
  own.daemon = {"/run/user/1/acc/agent.sock", true, {}};
  CHECK(own.planned().complaints.at(0).code == Errc::unavailable);
  CHECK_THAT(own.complaints(), Contains("is your own") && Contains("runs as root"));
  HostsTrial login{{"--hosts", "me@a,b", "x.py"}};
  login.daemon = {"/run/acc/agent.sock", false, {}};
  CHECK_THAT(login.complaints(), Contains("leave the name in front of @ out"));
  HostsTrial detached{{"--hosts", "a,b", "--ssh", "--detach", "x.py"}};
  CHECK_THAT(detached.complaints(), Contains("--detach needs acc-agent"));
  HostsTrial waits{{"--hosts", "a,b", "--ssh", "--wait", "x.py"}};
  CHECK_THAT(waits.complaints(), Contains("--wait needs acc-agent"));
}
