#include "agent/pmi_server.hpp"
#include "agent/pmi_session.hpp"

#include "agent/local_store.hpp"

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::agent;
using namespace std::chrono_literals;
using rendezvous::KvReply;
using rendezvous::KvRequest;

namespace {

pmi::Session session_of(std::uint32_t rank = 1, std::uint32_t world = 4) {
  return pmi::Session{{Rank{rank}, WorldSize{world}, "space"}};
}

std::string written(pmi::Step step) {
  const auto* write = std::get_if<pmi::Write>(&step);
  return write != nullptr ? write->text : "(nothing)";
}

KvRequest asked(pmi::Step step) {
  REQUIRE(std::holds_alternative<pmi::AskStore>(step));
  return std::get<pmi::AskStore>(step).request;
}

KvReply reply(KvReply::Status status, std::string value = {}) {
  KvReply r;
  r.status = status;
  r.value = std::move(value);
  return r;
}

/// The server for `world` workers of one node, driven by hand.
struct Node {
  explicit Node(std::uint32_t world) : store{io, world}, server{io, calls(world), [this](Rank rank, int code) { aborted = {rank.value(), code}; }} {
    store.begin_round(Round{0});
    server.begin_round("space", Rank{0}, WorldSize{world});
    for (std::uint32_t i = 0; i < world; ++i) {
      auto end = server.connect(LocalRank{i});
      REQUIRE(end.has_value());
      workers.push_back(std::move(*end));
    }
  }
  WorkerCalls calls(std::uint32_t world) {
    WorkerCalls c;
    c.on_kv = [this](std::uint64_t connection, KvRequest request, WorkerCalls::KvAnswer answer) {
      store.ask(connection, std::move(request), std::move(answer));
    };
    c.on_table = [world](const WorkerCalls::TableAnswer& answer) {
      answer({{"n", "n", "127.0.0.1", Rank{0}, world}});
    };
    c.on_gone = [this](std::uint64_t connection) { store.gone(connection); };
    return c;
  }
  void say(std::size_t worker, const std::string& text) {
    REQUIRE(::send(workers[worker].get(), text.data(), text.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(text.size()));
    io.restart();
    io.poll();
  }
  /// What is there now; "" if nothing, "(end)" after a hang-up.
  std::string hear(std::size_t worker) {
    io.restart();
    io.poll();
    std::array<char, 4096> text{};
    const auto got = ::recv(workers[worker].get(), text.data(), text.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return "(end)";  // reset: bytes were unread
    return got < 0 ? "" : std::string{text.data(), static_cast<std::size_t>(got)};
  }

  boost::asio::io_context io{1};
  LocalStore store;
  std::pair<std::uint32_t, int> aborted;
  PmiServer server;
  std::vector<UniqueFd> workers;
};

}  // namespace

TEST_CASE("an MPICH program gets the answers that its start needs", "[agent][pmi]") {
  auto session = session_of();
  CHECK(written(session.on_line("cmd=init pmi_version=1 pmi_subversion=1")) ==
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
  CHECK(written(session.on_line("cmd=get_maxes")).starts_with("cmd=maxes kvsname_max=256 "));
  CHECK(written(session.on_line("cmd=get_appnum")) == "cmd=appnum appnum=0\n");
  CHECK(written(session.on_line("cmd=get_universe_size")) == "cmd=universe_size size=4\n");
  CHECK(written(session.on_line("cmd=get_my_kvsname")) == "cmd=my_kvsname kvsname=space\n");
  CHECK(written(session.on_line("cmd=finalize")) == "cmd=finalize_ack\n");
}

TEST_CASE("MPI programs could not start in a job whose id holds a blank, or is long",
          "[agent][pmi]") {
  CHECK(pmi::space_name("nightly-7.b_2", Round{3}) == "acc_nightly-7.b_2_3");
  const auto spaced = pmi::space_name("my run", Round{0});
  CHECK(spaced.find_first_of(" =\n") == std::string::npos);
  CHECK(spaced != pmi::space_name("my_run", Round{0}));
  CHECK(spaced != pmi::space_name("my run", Round{1}));
  const std::string one(300, 'x');
  CHECK(pmi::space_name(one, Round{4'000'000'000}).size() <= 256);
  CHECK(pmi::space_name(one, Round{0}) != pmi::space_name(one + "y", Round{0}));
}

TEST_CASE("a program that wants PMI-2 learns that it isn't spoken", "[agent][pmi]") {
  CHECK(written(session_of().on_line("cmd=init pmi_version=2 pmi_subversion=0")) ==
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n");
}

TEST_CASE("put and get go to the round's store", "[agent][pmi]") {
  auto session = session_of();
  const auto set = asked(session.on_line("cmd=put kvsname=space key=P1-card value=a=b#c$"));
  CHECK(set.op == KvRequest::Op::set);
  CHECK(set.key == "pmi/P1-card");
  CHECK(set.value == "a=b#c$");
  CHECK(written(session.on_reply(reply(KvReply::Status::ok))) ==
        "cmd=put_result rc=0 msg=success\n");

  const auto get = asked(session.on_line("cmd=get kvsname=space key=P0-card"));
  CHECK(get.op == KvRequest::Op::get);
  CHECK(get.timeout == 0ms);
  CHECK(written(session.on_reply(reply(KvReply::Status::ok, "value"))) ==
        "cmd=get_result rc=0 msg=success value=value\n");

  asked(session.on_line("cmd=get kvsname=space key=none"));
  CHECK(written(session.on_reply(reply(KvReply::Status::missing))) ==
        "cmd=get_result rc=-1 msg=key_not_found\n");
  CHECK(written(session.on_line("cmd=get kvsname=other key=k")) ==
        "cmd=get_result rc=-1 msg=unknown_kvsname\n");
}

TEST_CASE("each barrier has a name of its own, and waits on after a time-out", "[agent][pmi]") {
  auto session = session_of();
  const auto first = asked(session.on_line("cmd=barrier_in"));
  CHECK(first.op == KvRequest::Op::barrier);
  CHECK(first.count == 4);
  const auto again = asked(session.on_reply(reply(KvReply::Status::timed_out)));
  CHECK(again.key == first.key);
  CHECK(written(session.on_reply(reply(KvReply::Status::ok))) == "cmd=barrier_out\n");
  CHECK(asked(session.on_line("cmd=barrier_in")).key != first.key);
}

TEST_CASE("which ranks share a node is told as MPICH's vector", "[agent][pmi]") {
  const auto row = [](std::uint32_t first, std::uint32_t slots) {
    return rendezvous::TableRow{"n", "n", "h", Rank{first}, slots};
  };
  CHECK(pmi::process_mapping(std::vector{row(0, 4)}) == "(vector,(0,1,4))");
  CHECK(pmi::process_mapping(std::vector{row(0, 4), row(4, 4), row(8, 2)}) ==
        "(vector,(0,2,4),(2,1,2))");
}

TEST_CASE("MPI_Comm_spawn is refused when its last program is described", "[agent][pmi]") {
  auto session = session_of();
  for (const auto* line : {"mcmd=spawn", "nprocs=2", "execname=./a", "totspawns=2", "spawnssofar=1",
                           "endcmd", "mcmd=spawn", "totspawns=2", "spawnssofar=2"})
    CHECK(std::holds_alternative<pmi::Continue>(session.on_line(line)));
  CHECK(written(session.on_line("endcmd")).starts_with("cmd=spawn_result rc=-1 "));
}

TEST_CASE("a published name is found by others", "[agent][pmi]") {
  Node node{2};
  node.say(0, "cmd=publish_name service=ocean port=tag#0$\n");
  CHECK(node.hear(0) == "cmd=publish_result rc=0 msg=success\n");
  node.say(1, "cmd=lookup_name service=ocean\n");
  CHECK(node.hear(1) == "cmd=lookup_result rc=0 msg=success port=tag#0$\n");
}

TEST_CASE("workers exchange addresses over their descriptors", "[agent][pmi]") {
  Node node{2};
  node.say(0, "cmd=put kvsname=space key=P0 value=zero\n");
  CHECK(node.hear(0) == "cmd=put_result rc=0 msg=success\n");
  node.say(0, "cmd=barrier_in\n");
  CHECK(node.hear(0).empty());
  node.say(1, "cmd=barrier_in\n");
  CHECK(node.hear(0) == "cmd=barrier_out\n");
  CHECK(node.hear(1) == "cmd=barrier_out\n");
  node.say(1, "cmd=get kvsname=space key=P0\n");
  CHECK(node.hear(1) == "cmd=get_result rc=0 msg=success value=zero\n");
  node.say(1, "cmd=get kvsname=space key=PMI_process_mapping\n");
  CHECK(node.hear(1) == "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))\n");
}

TEST_CASE("MPI_Abort is a failure with its code, and gets no answer", "[agent][pmi]") {
  Node node{2};
  node.say(1, "cmd=abort exitcode=3\n");
  CHECK(node.aborted == std::pair{1U, 3});
  CHECK(node.hear(1).empty());
  CHECK(std::get<pmi::Abort>(session_of().on_line("cmd=abort exitcode=0")).code == 1);
  CHECK(std::get<pmi::Abort>(session_of().on_line("cmd=abort")).code == 1);
}

TEST_CASE("a line in pieces is one line, two lines at once are two", "[agent][pmi]") {
  Node node{1};
  node.say(0, "cmd=get_app");
  CHECK(node.hear(0).empty());
  node.say(0, "num\ncmd=get_universe_size\n");
  std::string heard;
  for (std::string more = node.hear(0); !more.empty(); more = node.hear(0)) heard += more;
  CHECK(heard == "cmd=appnum appnum=0\ncmd=universe_size size=1\n");
}

TEST_CASE("garbage and endless lines end one worker's connection only", "[agent][pmi]") {
  Node node{2};
  SECTION("an unknown command") { node.say(0, "cmd=reboot\n"); }
  SECTION("a line without end") { node.say(0, std::string(2 * pmi::kMaxLine, 'x')); }
  CHECK(node.hear(0) == "(end)");
  node.say(1, "cmd=get_appnum\n");
  CHECK(node.hear(1) == "cmd=appnum appnum=0\n");
}

TEST_CASE("a round's end hangs up, also on those that wait", "[agent][pmi]") {
  Node node{2};
  node.say(0, "cmd=barrier_in\n");
  node.server.begin_round("next", Rank{0}, WorldSize{2});
  CHECK(node.hear(0) == "(end)");
  CHECK(node.hear(1) == "(end)");
}
