#include "launcher/machines_plan.hpp"

#include "rendezvous/secret.hpp"
#include "tests/unit/launcher/trial.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <stdlib.h>

#include <filesystem>

using namespace acc;
using namespace acc::launcher;
using Words = std::vector<std::string>;

namespace {

Words with(Words base, const Words& more) {
  base.insert(base.begin(), more.begin(), more.end());
  return base;
}

const Words kStatic{"--num_processes=4",          "--num_machines=2",          "--machine_rank=1",
                    "--main_process_ip=10.0.0.1", "--main_process_port=29700", "train.py"};
const Words kElastic{"--nnodes=2:4",        "--nproc-per-node=3",
                     "--rdzv-backend=c10d", "--rdzv-endpoint=node1:29500",
                     "--rdzv-id=job7",      "train.py"};

agent::JobPlan plan_of(Words words) {
  Trial c{std::move(words)};
  auto planned = c.planned();
  INFO(c.complaints());
  CHECK(planned.complaints.empty());
  return planned.plan;
}

std::string complaints_of(Words words) { return Trial{std::move(words)}.complaints(); }

bool holds(const std::string& text, std::string_view part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

std::string check_text(const agent::JobPlan& plan) {
  std::string text;
  for (const auto& complaint : check_machines(JobSpec{}, plan)) text += complaint.what + "\n";
  return text;
}

/// A home without a secret, and no variable that names one.
class EmptyHome {
 public:
  EmptyHome() {
    char name[] = "/tmp/acc-home-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
    for (const char* variable :
         {"HOME", "XDG_CONFIG_HOME", "ACC_SECRET_FILE", "CREDENTIALS_DIRECTORY"}) {
      const char* old = ::getenv(variable);
      before_.emplace_back(variable,
                           old == nullptr ? std::nullopt : std::optional{std::string{old}});
      ::unsetenv(variable);
    }
    ::setenv("HOME", path.c_str(), 1);
  }
  EmptyHome(const EmptyHome&) = delete;
  EmptyHome& operator=(const EmptyHome&) = delete;
  ~EmptyHome() {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace

TEST_CASE("static machines meet beside the workers' port, at machine 0", "[launcher][cluster]") {
  const auto plan = plan_of(kStatic);
  const auto& cluster = plan.cluster;
  CHECK(cluster.several());
  CHECK(cluster.backend == agent::Backend::fixed);
  CHECK(cluster.control_host == "10.0.0.1");
  CHECK(cluster.control_port == 29701);
  CHECK(cluster.serve_seed == rendezvous::ServeSeed::never);
  CHECK(cluster.wanted == NodeRank{1});
  CHECK(cluster.job == "none");
  CHECK(!cluster.loopback);
  CHECK(cluster.listen.empty());
  CHECK(plan.master.port == 29700);
  CHECK(plan.master.port_is_given);
  auto first = kStatic;
  first[2] = "--machine_rank=0";
  CHECK(plan_of(first).cluster.serve_seed == rendezvous::ServeSeed::must);
  CHECK(plan_of(with(kStatic, {"--control_port=4000"})).cluster.control_port == 4000);
}

TEST_CASE("a job that can't grow beyond one machine needs no network", "[launcher][cluster]") {
  CHECK(!plan_of({"--num_processes=2", "s.py"}).cluster.several());
  for (const char* backend : {"c10d", "tcp", "etcd", "static"}) {
    CHECK(!plan_of({"--nnodes=1:1", "--nproc-per-node=2", "--rdzv-backend=" + std::string{backend},
                    "--rdzv-endpoint=h:1", "s.py"})
               .cluster.several());
  }
}

TEST_CASE("an elastic job counts its workers per machine and meets at the endpoint",
          "[launcher][cluster]") {
  const auto plan = plan_of(kElastic);
  const auto& cluster = plan.cluster;
  CHECK(cluster.nodes_min == 2);
  CHECK(cluster.nodes_max == 4);
  CHECK(cluster.backend == agent::Backend::tcp);
  CHECK(cluster.control_host == "node1");
  CHECK(cluster.control_port == 29500);
  CHECK(cluster.serve_seed == rendezvous::ServeSeed::may);
  CHECK(!cluster.wanted);
  CHECK(cluster.job == "job7");
  CHECK(plan.local_world_size == 3);
  CHECK(plan.master.port == 0);
  CHECK(!plan.master.port_is_given);
  CHECK(plan_of({"--nnodes=1:4", "--rdzv-backend=tcp", "--rdzv-endpoint=n", "s.py"})
            .cluster.control_port == 29400);
}

TEST_CASE(
    "with c10d the endpoint's address says who hosts, or is_host, but no rank: each node of "
    "rank 0 hosted a job of its own",
    "[launcher][cluster]") {
  const auto hosting = [](const Words& more) {
    return plan_of(with(kElastic, more)).cluster.serve_seed;
  };
  CHECK(hosting({"--node-rank=0"}) == rendezvous::ServeSeed::may);
  CHECK(hosting({"--node-rank=3"}) == rendezvous::ServeSeed::may);
  CHECK(hosting({"--rdzv-backend=tcp", "--node-rank=0"}) == rendezvous::ServeSeed::may);
  CHECK(plan_of(with(kElastic, {"--node-rank=3"})).cluster.wanted == NodeRank{3});
  // --hosts numbers its nodes itself, and may reach the first one by the address of a NAT.
  CHECK(hosting({"--life_line=0", "--node-rank=0"}) == rendezvous::ServeSeed::must);
  CHECK(hosting({"--secret_fd=3", "--node-rank=1"}) == rendezvous::ServeSeed::never);
  CHECK(hosting({"--rdzv-conf=is_host=true"}) == rendezvous::ServeSeed::must);
  CHECK(hosting({"--rdzv-conf=is_host=0", "--node-rank=0"}) == rendezvous::ServeSeed::never);
  CHECK(holds(complaints_of(with(kElastic, {"--rdzv-conf=is_host=maybe"})),
              "--rdzv-conf: is_host: 'maybe' is neither yes nor no"));
  // torchrun's default of 0 is no claim: whoever has the address is first
  CHECK(plan_of({"--nnodes=2", "--master-addr=h", "s.py"}).cluster.serve_seed ==
        rendezvous::ServeSeed::may);
}

TEST_CASE("a port that is named beside the endpoint is the workers'", "[launcher][cluster]") {
  const auto plan = plan_of(with(kElastic, {"--master-port=4000"}));
  CHECK(plan.master.port == 4000);
  CHECK(plan.master.port_is_given);
  CHECK(plan.cluster.control_port == 29500);
  CHECK(plan.warnings.empty());
  const auto one = plan_of({"--num_processes=2", "--num_machines=2", "--rdzv_backend=tcp",
                            "--main_process_ip=h", "--main_process_port=4000", "s.py"});
  CHECK(one.cluster.control_port == 4000);
  CHECK(!one.master.port_is_given);
}

TEST_CASE(
    "a line that names the endpoint's port as --master_port, too, gave the workers' store the "
    "coordinator's port",
    "[launcher][cluster]") {
  for (const char* port : {"--master-port=29500", "--main_process_port=29500"}) {
    const auto plan = plan_of(with(kElastic, {"--master-addr=node1", port}));
    CHECK(plan.master.port == 0);
    CHECK(!plan.master.port_is_given);
    CHECK(plan.cluster.control_port == 29500);
    REQUIRE(plan.warnings.size() == 1);
    CHECK_THAT(plan.warnings[0],
               Catch::Contains("port 29500 is the one at which the machines meet"));
  }
  const auto usual = plan_of({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node1",
                              "--master-port=29400", "s.py"});
  CHECK(!usual.master.port_is_given);
  CHECK(usual.cluster.control_port == 29400);
}

TEST_CASE("loopback is known by its look, IPv6 keeps its colons", "[launcher][cluster]") {
  const auto at = [](const std::string& endpoint) {
    return plan_of({"--nnodes=2", "--rdzv-backend=tcp", "--rdzv-endpoint=" + endpoint, "s.py"})
        .cluster;
  };
  CHECK(at("127.0.0.1:1").loopback);
  CHECK(at("localhost:1").listen == "localhost");
  CHECK(at("localhost:1").address == "localhost");
  CHECK(at("10.0.0.1:1").address.empty());
  CHECK(at("[::1]:7").loopback);
  CHECK(at("[::1]:7").control_host == "::1");
  CHECK(at("[fd00::2]:7").control_port == 7);
  CHECK(at("fd00::2").control_port == 29400);
  CHECK(!at("127.example.org:1").loopback);
  CHECK(!at("10.0.0.1:1").loopback);
  for (const char* wrong : {":1", "h:0", "h:70000", "h:x", "[::1", "http://h:1", "h i:1"})
    CHECK(holds(complaints_of({"--nnodes=2", "--rdzv-backend=tcp",
                               "--rdzv-endpoint=" + std::string{wrong}, "s.py"}),
                "is not HOST:PORT"));
}

TEST_CASE("an IPv6 address in front of a port is shown its brackets", "[launcher][cluster]") {
  for (const char* backend : {"static", "tcp", "etcd"}) {
    INFO(backend);
    const auto said = complaints_of({"--nnodes=2", "--nproc_per_node=1", "--node_rank=0",
                                     "--rdzv-backend=" + std::string{backend},
                                     "--rdzv-endpoint=::1:29400", "s.py"});
    CHECK(holds(said,
                "--rdzv-endpoint: '::1:29400': an IPv6 address in front of a port needs "
                "brackets: [::1]:29400"));
  }
  CHECK(holds(complaints_of({"--nproc_per_node=1", "--rdzv-endpoint=fd00::2:29400", "s.py"}),
              "[fd00::2]:29400"));
  CHECK(holds(complaints_of({"--nnodes=2", "--master_addr=::1:29500", "s.py"}),
              "'::1:29500' holds a port"));
  CHECK(holds(complaints_of({"--nnodes=2", "--rdzv-backend=tcp", "--rdzv-endpoint=a:b:1", "s.py"}),
              "is not HOST:PORT"));
}

TEST_CASE("times come from our flags, then from torchrun's options, then by default",
          "[launcher][cluster]") {
  const auto times = [](const Words& more) { return plan_of(with(kElastic, more)).cluster; };
  const auto plain = times({});
  CHECK(plain.join_timeout == Millis{600'000});
  CHECK(!plain.last_call);
  CHECK(plain.timings.heartbeat_timeout == Millis{5000});
  CHECK(plain.timings.lease == Millis{10'000});
  CHECK(plain.timings.heartbeat_interval() == Millis{1000});
  const auto conf =
      times({"--rdzv-conf=join_timeout=60,last_call_timeout=3,keep_alive_interval=2,"
             "keep_alive_max_attempt=4"});
  CHECK(conf.join_timeout == Millis{60'000});
  CHECK(conf.last_call == Millis{3000});
  CHECK(conf.timings.heartbeat_timeout == Millis{8000});
  CHECK(conf.timings.lease == Millis{16'000});
  CHECK(times({"--rdzv-conf=timeout=9"}).join_timeout == Millis{9000});
  const auto ours = times({"--rdzv-conf=join_timeout=60,keep_alive_interval=9", "--join_timeout=5s",
                           "--dead_after=500ms", "--lease=2s", "--last_call=0"});
  CHECK(ours.join_timeout == Millis{5000});
  CHECK(ours.timings.heartbeat_timeout == Millis{500});
  CHECK(ours.timings.lease == Millis{2000});
  CHECK(ours.last_call == Millis{0});
}

TEST_CASE("times that can't work are refused", "[launcher][cluster]") {
  const auto said = [](const Words& more) { return complaints_of(with(kElastic, more)); };
  CHECK(holds(said({"--lease=7s"}),
              "--lease: 7 s is too short: with --dead_after 5 s it must be more than 7 s"));
  CHECK(said({"--lease=7.1s"}).empty());
  CHECK(holds(said({"--dead_after=100ms"}), "--dead_after: 100 ms is too short"));
  CHECK(holds(said({"--rdzv-conf=join_timeout=soon"}), "--rdzv-conf: join_timeout: 'soon'"));
  CHECK(holds(said({"--rdzv-conf=keep_alive_interval=x"}), "keep_alive_interval is a time"));
  CHECK(holds(said({"--rdzv-conf=keep_alive_max_attempt=0"}), "keep_alive_max_attempt a number"));
  CHECK(holds(said({"--scale_up=later"}), "scale_up"));
}

TEST_CASE("a node name with an escape sequence reached the terminals of the other nodes",
          "[launcher][cluster]") {
  const auto refusal = [](const std::string& name) {
    return complaints_of(with(kElastic, {"--node_name=" + name}));
  };
  CHECK_THAT(refusal("n2\x1b[31m"),
             Catch::Contains("'n2\\x1b[31m' has characters that a terminal doesn't show"));
  CHECK_FALSE(refusal("n2\nn3").empty());
  CHECK(refusal("knoten-ä").empty());
  CHECK(refusal("node/7").empty());
}

TEST_CASE("what all machines must agree on", "[launcher][cluster]") {
  auto words = kStatic;
  words.back() = "/somewhere/train.py";
  words.insert(words.end(), {"--lr", "0.1", "two words", ""});
  const auto fixed = plan_of(with(words, {"--mixed_precision=fp16"})).cluster.facts;
  CHECK(fixed == std::vector<agent::JobFact>{{"world size", "4"},
                                             {"script", "train.py"},
                                             {"arguments", "--lr 0.1 'two words' ''"},
                                             {"precision", "fp16"}});
  CHECK(plan_of(kElastic).cluster.facts.front().name == "script");  // slots may differ
}

TEST_CASE("torchrun's static lines count each machine's workers, Accelerate's all machines'",
          "[launcher][cluster]") {
  const auto counts_of = [](const Words& more) {
    auto words = with({"--node_rank=1", "--master_addr=10.0.0.1", "s.py"}, more);
    auto facts = plan_of(std::move(words)).cluster.facts;
    std::erase_if(facts, [](const agent::JobFact& fact) {
      return fact.name != "world size" && fact.name != "processes per node";
    });
    return facts;
  };
  using Facts = std::vector<agent::JobFact>;
  const Facts two{{"world size", "4"}, {"processes per node", "2"}};
  CHECK(counts_of({"--nnodes=2", "--nproc_per_node=2"}) == two);
  CHECK(counts_of({"--num_machines=2", "--nproc_per_node=2"}) == two);
  CHECK(counts_of({"--nnodes=2"}) == Facts{{"world size", "2"}, {"processes per node", "1"}});
  CHECK(counts_of({"--num_machines=2", "--num_processes=4", "--main_process_port=29700"}) ==
        Facts{{"world size", "4"}});
}

TEST_CASE("etcd's servers are listed, and every machine may host", "[launcher][cluster]") {
  const auto cluster =
      plan_of({"--nnodes=2", "--rdzv-backend=etcd-v2", "--rdzv-endpoint=e1:2379, [fd00::5],e3:4001",
               "--rdzv-conf=protocol=http", "--etcd_prefix=/jobs", "s.py"})
          .cluster;
  CHECK(cluster.backend == agent::Backend::etcd);
  CHECK(cluster.etcd_endpoints ==
        Words{"http://e1:2379", "http://[fd00::5]:2379", "http://e3:4001"});
  CHECK(cluster.etcd_prefix == "/jobs");
  CHECK(cluster.serve_seed == rendezvous::ServeSeed::may);
  CHECK(cluster.control_port == 0);
  CHECK(!cluster.loopback);
  const auto local = plan_of({"--nnodes=2", "--rdzv-backend=etcd",
                              "--rdzv-endpoint=http://127.0.0.1:2379", "s.py"})
                         .cluster;
  CHECK(local.etcd_endpoints == Words{"http://127.0.0.1:2379"});
  CHECK(local.loopback);
  CHECK(local.address == "127.0.0.1");
  CHECK(holds(complaints_of({"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=h:1",
                             "--rdzv-conf=protocol=ftp", "s.py"}),
              "protocol: 'ftp' is not http or https"));
  CHECK(holds(complaints_of({"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=h:1",
                             "--etcd_cacert=ca.pem", "s.py"}),
              "without https:// in --rdzv_endpoint no certificate is looked at"));
  CHECK(holds(complaints_of({"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=https://h:1",
                             "--etcd_cert=c.pem", "s.py"}),
              "a certificate and its key go together"));
  CHECK(holds(
      complaints_of({"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=grpc://h:1", "s.py"}),
      "'grpc://' is not http:// or https://"));
  const auto safe = plan_of({"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=e1,e2:2400",
                             "--rdzv-conf=protocol=https", "--etcd_cacert=ca.pem",
                             "--etcd_cert=c.pem", "--etcd_key=k.pem", "--etcd_user_file=u", "s.py"})
                        .cluster;
  CHECK(safe.etcd_endpoints == Words{"https://e1:2379", "https://e2:2400"});
  CHECK(safe.etcd_ca_file == "ca.pem");
  CHECK(safe.etcd_cert_file == "c.pem");
  CHECK(safe.etcd_key_file == "k.pem");
  CHECK(safe.etcd_user_file == "u");
}

TEST_CASE("what can't be shared out over machines is refused", "[launcher][cluster]") {
  CHECK(holds(complaints_of({"--nnodes=1:2", "--master-addr=h", "s.py"}),
              "a number of machines that may change needs --rdzv_backend=tcp"));
  CHECK(holds(complaints_of({"--num_processes=5", "--num_machines=2", "--rdzv_backend=tcp",
                             "--main_process_ip=h", "--main_process_port=1", "s.py"}),
              "uneven share"));
  CHECK(holds(complaints_of(with(kElastic, {"--node-rank=-1"})), "-1 is out of range: 0 or more"));
  CHECK(complaints_of(with(kElastic, {"--node-rank=9"})).empty());  // a spare
  auto last = kStatic;
  last[4] = "--main_process_port=65535";
  CHECK(holds(complaints_of(last), "there is no next port"));
  CHECK(holds(complaints_of(with(kStatic, {"--control_port=70000"})), "70000 is not a port"));
}

TEST_CASE("the machine that listens looks whether its port is free", "[launcher][cluster]") {
  Trial c{kStatic};
  c.facts.taken = {29701};
  CHECK(c.complaints().empty());  // machine 1 only dials
  c.words[2] = "--machine_rank=0";
  CHECK(holds(c.complaints(), "port 29701 is already in use on this machine"));
  CHECK(holds(c.complaints(), "--control_port"));
  Trial may{kElastic};
  may.facts.taken = {29500};
  CHECK(may.complaints().empty());  // the coordinator may be here already
}

TEST_CASE("several machines need a secret, and the complaint says how to make one",
          "[launcher][cluster]") {
  const EmptyHome home;
  const auto said = check_text(plan_of(kStatic));
  CHECK(holds(said, "acc-launch --make_secret"));
  CHECK(holds(said, "--insecure"));
  CHECK(holds(said, home.path));
  CHECK(check_text(plan_of(with(kStatic, {"--insecure"}))).empty());
  auto loopback = kStatic;
  loopback[3] = "--main_process_ip=127.0.0.1";
  CHECK(check_text(plan_of(loopback)).empty());
  CHECK(holds(check_text(plan_of(with(kStatic, {"--secret_file=" + home.path + "/none"}))),
              home.path + "/none"));
  REQUIRE(rendezvous::make_secret(home.path + "/secret").has_value());
  CHECK(check_text(plan_of(with(kStatic, {"--secret_file=" + home.path + "/secret"}))).empty());
  ::setenv("ACC_SECRET_FILE", (home.path + "/secret").c_str(), 1);
  CHECK(check_text(plan_of(kStatic)).empty());
  std::filesystem::permissions(home.path + "/secret", std::filesystem::perms{0644});
  CHECK(!check_text(plan_of(kStatic)).empty());
}

TEST_CASE("machines can't meet at port 0", "[launcher][cluster]") {
  auto words = kStatic;
  words[4] = "--main_process_port=0";
  CHECK(holds(check_text(plan_of(words)), "the machines need a fixed port to meet"));
  CHECK(plan_of(with(words, {"--control_port=4000", "--insecure"})).cluster.control_port == 4000);
  CHECK(check_text(plan_of(with(words, {"--control_port=4000", "--insecure"}))).empty());
}

TEST_CASE("the plan shows how machines meet only where there are several", "[launcher][cluster]") {
  const auto json = nlohmann::json::parse(Trial{kElastic}.printed());
  CHECK(json["cluster"]["control_host"] == "node1");
  CHECK(json["cluster"]["wanted_rank"].is_null());
  CHECK(json["cluster"]["lease_s"] == 10.0);
  CHECK(json["launch"]["nnodes_min"] == 2);
  CHECK(!nlohmann::json::parse(Trial{{"--num_processes=2", "s.py"}}.printed()).contains("cluster"));
}

TEST_CASE("the flag --make_secret takes a file if one follows", "[launcher][cli]") {
  const auto path = [](const Words& words) { return parse_command_line(words).secret_path; };
  CHECK(path({"--make_secret"}) == "");
  CHECK(path({"--make-secret", "f"}) == "f");
  CHECK(path({"--make_secret=f"}) == "f");
  CHECK(path({"--make_secret", "--quiet"}) == "");
  CHECK(!path({"s.py", "--make_secret"}));
}
