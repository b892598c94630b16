#include "rendezvous/listener.hpp"

#include "tests/unit/rendezvous/net_tools.hpp"

#include <catch2/catch.hpp>

#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>

using namespace acc;
using namespace acc::rendezvous;
using namespace acc::rendezvous::test;
using Catch::Contains;
using Cause = Closed::Cause;
using Kind = DialError::Kind;

namespace {

const Secret kOther = secret("fedcba9876543210fedcba9876543210");

/// A port where something listens that is none of ours, by hand.
struct Silent {
  UniqueFd fd;
  HostPort at{"127.0.0.1", 0};
  explicit Silent(int backlog = 16) {
    fd.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length);
    ::listen(fd.get(), backlog);
    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length);
    at.port = ntohs(address.sin_port);
  }
  UniqueFd accept() {
    return UniqueFd{::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
  }
};

void raise_descriptor_limit(rlim_t wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(wanted, limit.rlim_max));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

TEST_CASE("a listener whose user couldn't be looked up was taken for another user's",
          "[rendezvous][listener]") {
  Loop loop;
  const Silent silent;
  Guest guest{loop, dial_to(silent.at)};
  // The connection is there, and the kernel's answer about it needs one more descriptor.
  REQUIRE(loop.until([&] {
    pollfd waits{silent.fd.get(), POLLIN, 0};
    return ::poll(&waits, 1, 0) == 1;
  }));
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  const bool has_failed = loop.until([&] { return guest.has_failed(); });
  ::setrlimit(RLIMIT_NOFILE, &before);
  REQUIRE(has_failed);
  CAPTURE(guest.failures.at(0).what);
  CHECK(guest.failures.at(0).kind == Kind::reset);
}

SCENARIO("a node comes in", "[rendezvous][listener]") {
  const bool is_tls = GENERATE(false, true);
  const std::string address = GENERATE("127.0.0.1", "::1");
  CAPTURE(is_tls, address);
  Loop loop;
  Host host{loop, is_tls ? tls_at(secret(), address) : plain_at(address)};
  CHECK(host.at().host == address);
  Guest guest{loop, is_tls ? dial_to(host.at(), secret(), "job-1") : dial_to(host.at()),
              heartbeat(7)};
  REQUIRE(loop.until([&] { return host.peers.size() == 1; }));
  auto& peer = *host.peers.at(0);
  THEN("its first frame comes with it, and both know whom they talk to") {
    CHECK(peer.frames.at(0) == heartbeat(7));
    CHECK(peer.channel->peer() == guest.channel->local());
    CHECK(guest.channel->peer() == host.at());
    CHECK(host.listener->half_open() == 0);
    if (is_tls) {
      CHECK(peer.channel->proof().job == "job-1");
      CHECK(peer.channel->proof().key_id == secret().keys.at(0).id);
    }
  }
  THEN("frames go on both ways") {
    peer.channel->send(heartbeat(8));
    guest.channel->send(heartbeat(9));
    CHECK(loop.until([&] { return guest.frames.size() == 1 && peer.frames.size() == 2; }));
  }
  THEN("its end is seen") {
    guest.channel->close();
    CHECK(loop.until([&] { return !peer.closed.empty(); }));
    CHECK(peer.closed.at(0).cause == Cause::ended);
  }
}

TEST_CASE("a name stands for all its addresses", "[rendezvous][listener]") {
  Loop loop;
  Host host{loop, plain_at("127.0.0.1")};
  Guest guest{loop, dial_to({"localhost", host.at().port})};
  CHECK(loop.until([&] { return host.peers.size() == 1; }));
}

TEST_CASE("a dual-stack listener takes both kinds", "[rendezvous][listener]") {
  Loop loop;
  auto options = tls_at(secret(), "::");
  options.is_dual_stack = true;
  Host host{loop, options};
  Guest four{loop, dial_to({"127.0.0.1", host.at().port}, secret())};
  Guest six{loop, dial_to({"::1", host.at().port}, secret())};
  REQUIRE(loop.until([&] { return host.peers.size() == 2; }));
  std::set<std::string> hosts;
  for (const auto& peer : host.peers) hosts.insert(peer->channel->peer().host);
  CHECK(hosts == std::set<std::string>{"127.0.0.1", "::1"});
}

SCENARIO("the secrets differ", "[rendezvous][listener]") {
  Loop loop;
  Host host{loop, tls_at(secret())};
  const auto check = [&](const Secret& wrong) {
    Guest guest{loop, dial_to(host.at(), wrong)};
    REQUIRE(loop.until([&] { return guest.has_failed() && host.turned_away.size() == 1; }));
    CHECK(guest.failures.at(0).kind == Kind::authentication);
    CHECK_THAT(guest.failures.at(0).what,
               Contains("authentication failed") &&
                   Contains("/etc/acc/secret, key id " + wrong.keys.at(0).id));
    CHECK(host.peers.empty());
    CHECK_THAT(host.turned_away.at(0).what, Contains("authentication failed"));
    return guest.failures.at(0).what;
  };
  WHEN("it is another one") { check(kOther); }
  WHEN("it has the same key id") {
    THEN("the answer is the same: a stranger can't ask which ids there are") {
      check(secret("fedcba9876543210fedcba9876543210", secret().keys.at(0).id));
    }
  }
}

TEST_CASE("while a secret is changed, both are good", "[rendezvous][listener]") {
  Loop loop;
  Secret both = kOther;
  both.keys.push_back(secret().keys.at(0));
  Host host{loop, tls_at(both)};
  Guest old_one{loop, dial_to(host.at(), secret())};
  Guest new_one{loop, dial_to(host.at(), both)};
  REQUIRE(loop.until([&] { return host.peers.size() == 2; }));
  std::set<std::string> ids;
  for (const auto& peer : host.peers) ids.insert(peer->channel->proof().key_id);
  CHECK(ids == std::set{kOther.keys.at(0).id, secret().keys.at(0).id});
}

SCENARIO("one side has a secret and the other none", "[rendezvous][listener]") {
  Loop loop;
  WHEN("a node without one comes to a job with one") {
    Host host{loop, tls_at(secret())};
    Guest guest{loop, dial_to(host.at())};
    REQUIRE(loop.until([&] { return !guest.closed.empty() && !host.turned_away.empty(); }));
    THEN("both are told") {
      CHECK(guest.closed.at(0).cause == Cause::needs_secret);
      CHECK_THAT(guest.closed.at(0).what, Contains("asks for a secret"));
      CHECK_THAT(host.turned_away.at(0).what, Contains("it has no secret"));
      CHECK(host.peers.empty());
    }
  }
  WHEN("a node with one comes to a job without") {
    Host host{loop, plain_at()};
    Guest guest{loop, dial_to(host.at(), secret())};
    REQUIRE(loop.until([&] { return guest.has_failed() && !host.turned_away.empty(); }));
    THEN("both are told") {
      CHECK(guest.failures.at(0).kind == Kind::has_no_secret);
      CHECK_THAT(guest.failures.at(0).what, Contains("--insecure"));
      CHECK_THAT(host.turned_away.at(0).what, Contains("it has a secret and this side has none"));
      CHECK(host.peers.empty());
    }
  }
}

SCENARIO("strangers", "[rendezvous][listener]") {
  const bool is_tls = GENERATE(false, true);
  CAPTURE(is_tls);
  Loop loop;
  auto options = is_tls ? tls_at(secret()) : plain_at();
  options.admission.greeting = 500ms;
  Host host{loop, options};
  const auto is_gone = [&](Stranger& stranger, Millis limit = 5s) {
    return loop.until(
        [&] {
          stranger.hear();
          return stranger.is_gone;
        },
        limit);
  };
  WHEN("one sends an HTTP request") {
    Stranger stranger{host.at(), "GET / HTTP/1.1\r\nHost: a\r\n\r\n"};
    CHECK(is_gone(stranger, 400ms));
    REQUIRE(loop.until([&] { return !host.turned_away.empty(); }));
    CHECK_THAT(host.turned_away.at(0).what, Contains("HTTP"));
  }
  WHEN("one sends a single byte and stays") {
    const std::string byte = GENERATE("\x16", "x");
    Stranger stranger{host.at(), byte};
    Guest guest{loop, is_tls ? dial_to(host.at(), secret()) : dial_to(host.at())};
    CHECK(loop.until([&] { return host.peers.size() == 1; }, 400ms));  // nobody waits for it
    CHECK(is_gone(stranger));
  }
  WHEN("one sends nothing") {
    Stranger stranger{host.at()};
    CHECK(is_gone(stranger));
    REQUIRE(loop.until([&] { return !host.turned_away.empty(); }));
    CHECK_THAT(host.turned_away.at(0).what, Contains("within 500 ms"));
  }
  WHEN("one sends noise") {
    std::string noise;
    for (int i = 0; i < 5000; ++i) noise += static_cast<char>(i * 131 + 77);
    Stranger stranger{host.at(), noise};
    CHECK(is_gone(stranger, 400ms));
  }
  WHEN("one sends a byte now and then") {
    const auto began = std::chrono::steady_clock::now();
    const std::string bytes =
        is_tls ? std::string("\x16\x03\x01\x02\x00\x01", 6) + std::string(500, 'x') : notice(1000);
    Stranger stranger{host.at()};
    std::size_t sent = 0;
    auto next = began;
    CHECK(loop.until([&] {
      if (std::chrono::steady_clock::now() >= next) {
        next += 50ms;
        stranger.say(bytes.substr(sent++, 1));
      }
      stranger.hear();
      return stranger.is_gone;
    }));
    THEN("it is gone when its time is over, not later for each byte") {
      CHECK(std::chrono::steady_clock::now() - began > 300ms);
      CHECK(sent < bytes.size());
    }
  }
  CHECK(host.peers.size() <= 1);
}

TEST_CASE("after the handshake a first frame is due", "[rendezvous][listener]") {
  Loop loop;
  auto options = tls_at(secret());
  options.admission.greeting = 300ms;
  Host host{loop, options};
  Guest guest{loop, dial_to(host.at(), secret()), ""};
  REQUIRE(loop.until([&] { return guest.is_through(); }));
  CHECK(host.listener->half_open() == 1);
  CHECK(loop.until([&] { return !guest.closed.empty(); }));
  CHECK(host.peers.empty());
}

TEST_CASE("a first frame may not be large", "[rendezvous][listener]") {
  const bool is_tls = GENERATE(false, true);
  CAPTURE(is_tls);
  Loop loop;
  Host host{loop, is_tls ? tls_at(secret()) : plain_at()};
  const auto options = is_tls ? dial_to(host.at(), secret()) : dial_to(host.at());
  Guest guest{loop, options, notice(kMaxFirstFrame)};
  REQUIRE(loop.until([&] { return !guest.closed.empty() && !host.turned_away.empty(); }));
  CHECK(host.peers.empty());
  CHECK_THAT(host.turned_away.at(0).what, Contains("are allowed"));
}

TEST_CASE("a node that returned after the job's end read none of it: its error texts were too long",
          "[rendezvous][listener]") {
  const bool is_tls = GENERATE(false, true);
  CAPTURE(is_tls);
  Loop loop;
  Host host{loop, is_tls ? tls_at(secret()) : plain_at()};
  const Guest guest{loop, is_tls ? dial_to(host.at(), secret()) : dial_to(host.at())};
  REQUIRE(loop.until([&] { return host.peers.size() == 1; }));
  Close close;
  close.first.emplace();
  const std::string longest(kMaxText, 'x');
  for (auto* text : {&close.first->error, &close.first->traceback, &close.first->last_lines,
                     &close.first->error_lines})
    *text = longest;
  const auto frame = encode({}, close);
  REQUIRE(frame.size() > kMaxFirstFrame);
  host.peers[0]->channel->send(frame);
  REQUIRE(loop.until([&] { return !guest.frames.empty() || !guest.closed.empty(); }));
  REQUIRE(guest.frames.size() == 1);
  CHECK(guest.frames[0] == frame);
}

SCENARIO("somebody recorded a node's bytes and plays them again", "[rendezvous][listener]") {
  Loop loop;
  auto options = tls_at(secret());
  options.admission.greeting = 500ms;
  Host host{loop, options};
  Silent relay;
  Guest guest{loop, dial_to(relay.at, secret())};
  UniqueFd inside;
  REQUIRE(loop.until([&] {
    inside = relay.accept();
    return static_cast<bool>(inside);
  }));
  Stranger outside{host.at()};
  std::vector<std::string> recorded;
  REQUIRE(loop.until([&] {
    char buffer[8192];
    if (const auto n = ::recv(inside.get(), buffer, sizeof buffer, 0); n > 0) {
      recorded.emplace_back(buffer, static_cast<std::size_t>(n));
      outside.say(recorded.back());
    }
    const auto answer = outside.hear();
    ::send(inside.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    return host.peers.size() == 1;
  }));
  REQUIRE(recorded.size() >= 2);
  WHEN("only the hello is sent") {
    Stranger again{host.at(), recorded.front()};
    CHECK(loop.until([&] {
      again.hear();
      return again.is_gone;
    }));
  }
  WHEN("all of it is sent") {
    Stranger again{host.at()};
    for (const auto& bytes : recorded) again.say(bytes);
    CHECK(loop.until([&] {
      again.hear();
      return again.is_gone;
    }));
  }
  CHECK(loop.until([&] { return host.listener->half_open() == 0; }));
  CHECK(host.peers.size() == 1);
  CHECK(host.peers.at(0)->closed.empty());
}

SCENARIO("a crowd that proves nothing", "[rendezvous][listener]") {
  Loop loop;
  auto options = tls_at(secret());
  options.admission.half_open = 16;
  options.admission.half_open_per_source = 16;
  options.admission.greeting = 60s;
  options.admission.failures_per_second = 1'000'000;
  Host host{loop, options};
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(std::make_unique<Stranger>(host.at(), "\x16\x03"));
  Guest guest{loop, dial_to(host.at(), secret())};
  THEN("a node comes in all the same, and the crowd stays small") {
    REQUIRE(loop.until([&] { return host.peers.size() == 1; }));
    CHECK(loop.until([&] {
      std::size_t here = 0;
      for (const auto& stranger : crowd) {
        stranger->hear();
        here += stranger->is_gone ? 0 : 1;
      }
      return here <= 16;
    }));
    CHECK(host.listener->half_open() <= 16);
    CHECK(host.turned_away.size() == 1);  // one line, whatever they do
  }
}

SCENARIO("a source that only fails is given no handshake any more", "[rendezvous][listener]") {
  Loop loop;
  auto options = tls_at(secret());
  options.admission.failures_per_second = 3;
  options.admission.penalty = 60s;
  Host host{loop, options};
  std::string heard;
  const auto is_dropped = [&](Stranger& stranger) {
    heard.clear();
    return loop.until([&] {
      heard += stranger.hear();
      return stranger.is_gone;
    });
  };
  for (int i = 0; i < 4; ++i) {
    Stranger stranger{host.at(), "nonsense"};
    REQUIRE(is_dropped(stranger));
  }
  THEN("nothing is spent on it any more: not even an alert") {
    Stranger stranger{host.at(), "nonsense"};
    REQUIRE(is_dropped(stranger));
    CHECK(heard.empty());
    Guest other{loop, dial_to(host.at(), kOther)};
    REQUIRE(loop.until([&] { return other.has_failed(); }));
    CHECK(other.failures.at(0).kind == Kind::reset);
    CHECK(host.turned_away.size() == 1);
  }
  THEN("a node behind the same address comes in, in a flood of it") {
    std::vector<std::unique_ptr<Stranger>> crowd;
    const auto one_more = [&] { crowd.push_back(std::make_unique<Stranger>(host.at(), "")); };
    for (int i = 0; i < 300; ++i) one_more();
    Guest guest{loop, dial_to(host.at(), secret())};
    REQUIRE(loop.until([&] {
      one_more();
      return host.peers.size() == 1;
    }));
    CHECK(guest.is_through());
    CHECK(host.listener->half_open() <= options.admission.half_open);
  }
}

SCENARIO("this process is out of descriptors", "[rendezvous][listener]") {
  Loop loop;
  Host host{loop, plain_at()};
  loop.until([] { return false; }, 20ms);
  std::vector<std::unique_ptr<Stranger>> waiting;
  for (int i = 0; i < 5; ++i) waiting.push_back(std::make_unique<Stranger>(host.at(), heartbeat()));
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(waiting.back()->fd.get()) + 1;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  // A hole below the limit would still be found.
  std::vector<UniqueFd> fill;
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) fill.emplace_back(fd);
  const bool all_gone = loop.until([&] {
    for (const auto& stranger : waiting) stranger->hear();
    return std::all_of(waiting.begin(), waiting.end(), [](const auto& s) { return s->is_gone; });
  });
  fill.clear();
  ::setrlimit(RLIMIT_NOFILE, &before);
  THEN("who comes is turned away instead of waking the loop for ever, and it is told once") {
    CHECK(all_gone);
    CHECK(host.peers.empty());
    REQUIRE(host.turned_away.size() == 1);
    CHECK_THAT(host.turned_away.at(0).what, Contains("ulimit -n"));
  }
  THEN("later ones come in") {
    Guest guest{loop, dial_to(host.at())};
    CHECK(loop.until([&] { return host.peers.size() == 1; }));
  }
}

SCENARIO("a thousand nodes that say nothing", "[rendezvous][listener]") {
  const bool is_tls = GENERATE(false, true);
  CAPTURE(is_tls);
  constexpr std::size_t kNodes = 1000;
  raise_descriptor_limit(8192);
  Loop loop;
  auto options = is_tls ? tls_at(secret()) : plain_at();
  options.admission.half_open = 4096;
  options.admission.half_open_per_source = 4096;
  options.admission.greeting = 60s;
  Host host{loop, options};
  const auto tls = TlsContext::for_dialling(secret(), "job");
  // Counts what is needed once: OpenSSL's tables, the loop's.
  Guest first{loop, is_tls ? dial_to(host.at(), secret()) : dial_to(host.at())};
  REQUIRE(loop.until([&] { return host.peers.size() == 1; }));
  const auto before = ::mallinfo2().uordblks;
  std::vector<std::unique_ptr<Guest>> guests;
  for (std::size_t i = 0; i < kNodes; ++i) {
    auto to = dial_to(host.at());
    to.limit = 60s;
    if (is_tls) to.tls = tls;
    guests.push_back(std::make_unique<Guest>(loop, to));
  }
  REQUIRE(loop.until([&] { return host.peers.size() == kNodes + 1; }, 50s));
  for (const auto& guest : guests) guest->attempt.reset();
  loop.until([] { return false; }, 50ms);
  const auto each = (::mallinfo2().uordblks - before) / (2 * kNodes);  // both ends are here
  INFO(each << " bytes a connection and end");
  CHECK(each <= (is_tls ? 25 * 1024U : 4 * 1024U));
  CHECK(host.turned_away.empty());

  // They are all alive.
  for (const auto& peer : host.peers) peer->channel->send(heartbeat(3));
  CHECK(loop.until(
      [&] {
        return std::all_of(guests.begin(), guests.end(),
                           [](const auto& guest) { return guest->frames.size() == 1; });
      },
      20s));
}

TEST_CASE("a port that is taken names who has it", "[rendezvous][listener]") {
  Loop loop;
  Host host{loop, plain_at()};
  auto options = plain_at();
  options.at.port = host.at().port;
  const auto second = Listener::open(loop.io, options);
  REQUIRE(second.has_error());
  CHECK_THAT(second.error().what, Contains("the port is taken by") &&
                                      Contains("(pid " + std::to_string(::getpid()) + ")"));
}

TEST_CASE("where a listener may be", "[rendezvous][listener]") {
  Loop loop;
  const auto refusal = [&](ListenOptions options) {
    return Listener::open(loop.io, std::move(options)).error();
  };
  CHECK(refusal(plain_at("0.0.0.0")).code == Errc::not_permitted);
  CHECK_THAT(refusal(plain_at("::")).what, Contains("--make_secret") && Contains("--insecure"));
  CHECK_THAT(refusal(tls_at(secret(), "192.0.2.1")).what,
             Contains("this host has no such address"));
  CHECK_THAT(refusal(plain_at("a-name")).what, Contains("not a numeric address"));
  auto insecure = plain_at("0.0.0.0");
  insecure.is_insecure = true;
  CHECK(Listener::open(loop.io, insecure).has_value());
}

TEST_CASE("a stopped listener takes nobody, and leaves who is in", "[rendezvous][listener]") {
  Loop loop;
  Host host{loop, plain_at()};
  const auto at = host.at();
  Guest guest{loop, dial_to(at)};
  REQUIRE(loop.until([&] { return host.peers.size() == 1; }));
  Stranger half_open{at};
  REQUIRE(loop.until([&] { return host.listener->half_open() == 1; }));
  host.listener->stop();
  CHECK(loop.until([&] {
    half_open.hear();
    return half_open.is_gone;
  }));
  Guest late{loop, dial_to(at)};
  CHECK(loop.until([&] { return late.has_failed(); }));
  host.peers.at(0)->channel->send(heartbeat());
  CHECK(loop.until([&] { return guest.frames.size() == 1; }));
}

SCENARIO("a dial that finds nobody says what to look at", "[rendezvous][dialer]") {
  Loop loop;
  const auto failure = [&](DialOptions options) {
    options.limit = 300ms;
    Guest guest{loop, std::move(options)};
    REQUIRE(loop.until([&] { return guest.has_failed(); }, 2s));
    return guest.failures.at(0);
  };
  WHEN("nobody listens") {
    HostPort at;
    { at = Silent{}.at; }
    const auto error = failure(dial_to(at));
    CHECK(error.kind == Kind::refused);
    CHECK(error.errnum == ECONNREFUSED);
    CHECK_THAT(error.what, Contains("nobody listens at 127.0.0.1:" + std::to_string(at.port)));
  }
  WHEN("nothing comes back") {
    Silent full{0};
    std::vector<UniqueFd> queue;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(full.at.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 4; ++i) {
      queue.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      ::connect(queue.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    }
    const auto error = failure(dial_to(full.at));
    CHECK(error.kind == Kind::no_answer);
    CHECK_THAT(error.what, Contains("within 300 ms") && Contains("firewall"));
  }
  WHEN("the other process is stopped") {
    Silent stopped;
    const auto error = failure(dial_to(stopped.at, secret()));
    CHECK(error.kind == Kind::no_answer);
    CHECK_THAT(error.what, Contains("took the connection, but did not answer"));
  }
  WHEN("the name is unknown") {
    const auto error = failure(dial_to({"no-such-host.invalid", 1}));
    CHECK(error.kind == Kind::name_unknown);
    CHECK_THAT(error.what, Contains("no-such-host.invalid"));
  }
  WHEN("a web server is there") {
    Silent web;
    Guest guest{loop, dial_to(web.at, secret())};
    UniqueFd client;
    REQUIRE(loop.until([&] { return static_cast<bool>(client = web.accept()); }));
    const std::string answer = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    ::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    REQUIRE(loop.until([&] { return guest.has_failed(); }));
    CHECK(guest.failures.at(0).kind == Kind::not_ours);
    CHECK_THAT(guest.failures.at(0).what, Contains("another program listens at"));
  }
  WHEN("the other side goes during the handshake") {
    Silent dying;
    Guest guest{loop, dial_to(dying.at, secret())};
    UniqueFd client;
    REQUIRE(loop.until([&] { return static_cast<bool>(client = dying.accept()); }));
    client.reset();
    REQUIRE(loop.until([&] { return guest.has_failed(); }));
    CHECK(guest.failures.at(0).kind == Kind::reset);
  }
  WHEN("it is given up") {
    Silent silent;
    Guest guest{loop, dial_to(silent.at, secret())};
    loop.until([] { return false; }, 50ms);
    guest.attempt.reset();
    loop.until([] { return false; }, 100ms);
    THEN("nothing is called") {
      CHECK_FALSE(guest.has_failed());
      CHECK_FALSE(guest.is_through());
    }
  }
}
