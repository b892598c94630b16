#include "common/agent_client.hpp"

#include "common/text.hpp"
#include "common/unmapped_id.hpp"
#include "common/worker_env.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace acc {

using worker_socket::Answer;
using worker_socket::Request;
using worker_socket::Verb;
using Clock = std::chrono::steady_clock;

namespace {

std::string variable(std::string_view name) {
  const char* value = std::getenv(std::string{name}.c_str());
  return value != nullptr ? value : "";
}

// With a full backlog connect() waits; the limit on sending also limits it.
void limit_connect(int fd, Millis patience) {
  timeval limit{};
  limit.tv_sec = patience.count() / 1000;
  limit.tv_usec = (patience.count() % 1000) * 1000;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

// An abstract name belongs to the first process that binds it; after our agent's death that may be
// any user's.
bool is_ours(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return is_own_user(peer.uid, peer.pid) || peer.uid == 0;
}

// A refusal by the store or the agent, as an error.
Error refused(const Request& request, const Answer& answer) {
  const std::string about = "'" + printable(request.key, 80) + "'";
  switch (answer.word) {
    case Answer::Word::missing:
      return {Errc::not_found, "key " + about + " isn't in the agent's store"};
    case Answer::Word::timed_out:
      if (request.verb == Verb::barrier)
        return {Errc::timed_out, "barrier " + about + ": " + std::to_string(answer.number) +
                                     " of " + std::to_string(request.count) + " arrived within " +
                                     describe(request.timeout)};
      if (request.verb == Verb::current)
        return {Errc::timed_out,
                "no coordinator of the job could confirm within " + describe(request.timeout) +
                    " that round " + std::to_string(request.round.value_or(Round{0}).value()) +
                    " is still the current one: it is out of reach, or being replaced"};
      if (request.verb == Verb::lost)
        return {Errc::timed_out, "no rank was lost within " + describe(request.timeout)};
      return {Errc::timed_out, "key " + about + " didn't come within " + describe(request.timeout)};
    case Answer::Word::too_big:
      return {Errc::exhausted, "key or value too big for the agent's store: " + about};
    case Answer::Word::full:
      return {Errc::exhausted, "the agent's store is full: " + about + " has no room"};
    case Answer::Word::wrong_round:
      return {Errc::unavailable, "the round is over: " + about + " had no answer"};
    case Answer::Word::error:
      return {Errc::bad_usage, "the agent refused: " + answer.value};
    default:
      return {Errc::bad_usage, "the agent's store refused " + about + ": " +
                                   std::string{worker_socket::to_string(answer.word)}};
  }
}

Request about(Verb verb, const std::string& key, Millis timeout = Millis{0}) {
  Request request;
  request.verb = verb;
  request.key = key;
  request.timeout = std::clamp(timeout, Millis{0}, worker_socket::kLongestWait);
  return request;
}

Request step_of(Verb verb, std::uint64_t step) {
  Request request;
  request.verb = verb;
  request.step = step;
  return request;
}

}  // namespace

// ---- opening ----

Result<AgentClient> AgentClient::connect(const std::string& address, Rank rank,
                                         std::optional<Round> round, Millis patience) {
  const std::string attempted = "connect to the agent's socket '" + address + "'";
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (address.size() < 2 || address.size() > sizeof to.sun_path || address[0] != '@')
    return Error{Errc::bad_usage, attempted + ": not a name that begins with '@'"};
  std::memcpy(to.sun_path + 1, address.data() + 1, address.size() - 1);  // '@' stands for a zero
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!fd) return system_error(errno, attempted);
  limit_connect(fd.get(), patience);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), length) != 0)
    return system_error(errno, attempted);
  if (!is_ours(fd.get()))
    return Error{Errc::not_permitted, attempted + ": another user listens there"};
  AgentClient client{KeptFd{std::move(fd)}, patience};
  Request hello;
  hello.verb = Verb::hello;
  hello.rank = rank;
  hello.round = round;
  if (auto said = client.say(hello); !said) return said.error();
  return client;
}

Result<AgentClient> AgentClient::from_environment(Millis patience) {
  const auto named = variable(worker_env::kAccAgentSocket);
  const std::string address{worker_env::worker_socket_in(named)};
  if (address.empty())
    return Error{Errc::not_found,
                 "ACC_AGENT_SOCKET names no worker's socket: no acc-launch started this process"};
  const auto rank = variable(worker_env::kRank);
  const auto number = rank.empty() ? 0 : parse_number<std::uint32_t>(rank);
  if (!number) return Error{Errc::bad_usage, "RANK '" + printable(rank, 40) + "' isn't a number"};
  const auto round = parse_number<std::uint64_t>(variable(worker_env::kAccRound));
  return connect(address, Rank{*number}, round ? std::optional{Round{*round}} : std::nullopt,
                 patience);
}

// ---- sending and receiving ----

Error AgentClient::hang_up(Error error) {
  fd_.reset();
  return error;
}

// A program may close all descriptors above some number: its next file has the number of ours.
Result<void> AgentClient::check_owner() {
  if (fd_.is_ours()) return {};
  return hang_up({Errc::unavailable, "this program has closed its line to the agent"});
}

Result<void> AgentClient::await(short events, Instant deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<Millis>(deadline - Clock::now());
    pollfd wait{fd_.get(), events, 0};
    const auto limit = std::clamp<Millis::rep>(left.count(), 0, 1'000'000'000);
    const int ready = ::poll(&wait, 1, static_cast<int>(limit));
    if (ready > 0) return {};
    if (ready == 0)
      return hang_up(
          {Errc::timed_out, "no answer from the agent; it may be stopped or overloaded"});
    if (errno != EINTR) return hang_up(system_error(errno, "wait for the agent"));
  }
}

Result<void> AgentClient::say(const Request& request, WhenFull when_full) {
  if (!fd_) return Error{Errc::unavailable, "the line to the agent is closed"};
  const std::string text = worker_socket::to_text(request);
  std::string_view rest = text;
  const Instant deadline = Clock::now() + patience_;
  while (!rest.empty()) {
    if (auto owner = check_owner(); !owner) return owner;
    const auto n = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      if (when_full == WhenFull::leave_out && rest.size() == text.size()) return {};
      if (auto ready = await(POLLOUT, deadline); !ready) return ready;
    } else if (errno != EINTR) {
      // The agent closed the connection; it may have sent the reason before.
      const int errnum = errno;
      if (auto last = read_answer(deadline); last && last->word == Answer::Word::error)
        return hang_up(refused(request, *last));
      return hang_up(system_error(errnum, "speak to the agent"));
    }
  }
  return {};
}

Result<Answer> AgentClient::read_answer(Instant deadline) {
  std::array<char, 16384> chunk;
  while (fd_) {
    auto answer = reader_.next();
    if (!answer) return hang_up(answer.error());
    if (*answer) return std::move(**answer);
    if (auto owner = check_owner(); !owner) return owner.error();
    const auto n = ::recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n > 0) {
      reader_.feed({chunk.data(), static_cast<std::size_t>(n)});
    } else if (n == 0) {
      return hang_up({Errc::system, "the agent closed the connection"});
    } else if (errno == EAGAIN) {
      if (auto ready = await(POLLIN, deadline); !ready) return ready.error();
    } else if (errno != EINTR) {
      return hang_up(system_error(errno, "listen to the agent"));
    }
  }
  return Error{Errc::unavailable, "the line to the agent is closed"};
}

Result<Answer> AgentClient::ask(const Request& request) {
  const bool has_key =
      request.verb != Verb::table && request.verb != Verb::lost && request.verb != Verb::current;
  if (has_key && !worker_socket::is_key(request.key))
    return Error{Errc::bad_usage, "key '" + printable(request.key, 80) +
                                      "' isn't 1 to 256 printable bytes without a space"};
  if (std::max(request.value.size(), request.expected.size()) > worker_socket::kMaxValue)
    return Error{Errc::exhausted, "the value of '" + request.key + "' has " +
                                      std::to_string(request.value.size()) + " bytes, at most " +
                                      std::to_string(worker_socket::kMaxValue) + " are allowed"};
  if (auto said = say(request); !said) return said.error();
  auto answer = read_answer(Clock::now() + request.timeout + patience_);
  if (answer && answer->word == Answer::Word::error) return hang_up(refused(request, *answer));
  return answer;
}

// ---- the calls ----

Result<void> AgentClient::beat(std::uint64_t step) {
  return say(step_of(Verb::beat, step), WhenFull::leave_out);
}

Result<void> AgentClient::checkpoint(std::uint64_t step) {
  return say(step_of(Verb::checkpoint, step));
}

Result<void> AgentClient::no_restart(const std::string& why) {
  Request request;
  request.verb = Verb::no_restart;
  request.text = why;
  return say(request);
}

Result<void> AgentClient::section(const std::string& name, Millis limit) {
  auto request = about(Verb::section, {}, limit);
  request.text = name;
  return say(request);
}

Result<void> AgentClient::section_end() { return say(about(Verb::section_end, {})); }

Result<void> AgentClient::set(const std::string& key, std::string value) {
  auto request = about(Verb::set, key);
  request.value = std::move(value);
  const auto answer = ask(request);
  if (!answer) return answer.error();
  if (answer->word != Answer::Word::ok) return refused(request, *answer);
  return {};
}

Result<std::string> AgentClient::get(const std::string& key, Millis timeout) {
  const auto request = about(Verb::get, key, timeout);
  auto answer = ask(request);
  if (!answer) return answer.error();
  if (answer->word != Answer::Word::value) return refused(request, *answer);
  return std::move(answer->value);
}

Result<std::int64_t> AgentClient::add(const std::string& key, std::int64_t delta) {
  auto request = about(Verb::add, key);
  request.delta = delta;
  const auto answer = ask(request);
  if (!answer) return answer.error();
  if (answer->word != Answer::Word::number) return refused(request, *answer);
  return answer->number;
}

Result<void> AgentClient::wait(const std::string& key, Millis timeout) {
  const auto request = about(Verb::wait, key, timeout);
  const auto answer = ask(request);
  if (!answer) return answer.error();
  if (answer->word != Answer::Word::ok) return refused(request, *answer);
  return {};
}

Result<std::uint32_t> AgentClient::barrier(const std::string& name, std::uint32_t count,
                                           Millis timeout) {
  auto request = about(Verb::barrier, name, timeout);
  request.count = count;
  const auto answer = ask(request);
  if (!answer) return answer.error();
  if (answer->word != Answer::Word::number) return refused(request, *answer);
  return static_cast<std::uint32_t>(answer->number);
}

Result<bool> AgentClient::remove(const std::string& key) {
  const auto request = about(Verb::remove, key);
  const auto answer = ask(request);
  if (!answer) return answer.error();
  if (answer->word == Answer::Word::ok) return true;
  if (answer->word == Answer::Word::missing) return false;
  return refused(request, *answer);
}

Result<bool> AgentClient::compare_set(const std::string& key, std::string expected,
                                      std::string value) {
  auto request = about(Verb::compare_set, key);
  request.expected = std::move(expected);
  request.value = std::move(value);
  const auto answer = ask(request);
  if (!answer) return answer.error();
  if (answer->word == Answer::Word::ok) return true;
  if (answer->word == Answer::Word::differs || answer->word == Answer::Word::missing) return false;
  return refused(request, *answer);
}

Result<std::vector<worker_socket::TableRow>> AgentClient::table() {
  Request request;
  const auto answer = ask(request);
  if (!answer) return answer.error();
  if (answer->word != Answer::Word::value) return refused(request, *answer);
  return worker_socket::parse_table(answer->value);
}

Result<std::vector<worker_socket::LostRank>> AgentClient::lost(Millis timeout) {
  const auto request = about(Verb::lost, {}, timeout);
  const auto answer = ask(request);
  if (!answer) return answer.error();
  if (answer->word != Answer::Word::value) return refused(request, *answer);
  return worker_socket::parse_lost(answer->value);
}

Result<std::optional<Millis>> AgentClient::current(Round round, Millis timeout) {
  auto request = about(Verb::current, {}, timeout);
  request.round = round;
  const auto answer = ask(request);
  if (!answer) return answer.error();
  if (answer->word == Answer::Word::wrong_round) return std::optional<Millis>{};
  if (answer->word != Answer::Word::number) return refused(request, *answer);
  return std::optional{Millis{answer->number}};
}

}  // namespace acc
