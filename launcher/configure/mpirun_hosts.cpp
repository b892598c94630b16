#include "launcher/configure/mpirun_hosts.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace acc::configure {

namespace {

using launcher::Host;
using Shares = std::vector<std::int64_t>;  ///< workers of each host; 0: the job doesn't use it

/// Host after host gets what it has room for.
Shares filled(std::int64_t workers, const Shares& room) {
  Shares shares;
  for (const auto slots : room) {
    shares.push_back(std::min(workers, slots));
    workers -= shares.back();
  }
  return shares;
}

/// One worker for each host in turn that has room left.
Shares dealt_out(std::int64_t workers, const Shares& room) {
  Shares shares(room.size());
  while (workers > 0) {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < room.size(); ++i)
      if (shares[i] < room[i]) open.push_back(i);
    if (open.empty()) break;
    auto rounds = workers / std::ssize(open);
    for (const auto i : open) rounds = std::min(rounds, room[i] - shares[i]);
    if (rounds == 0) open.resize(static_cast<std::size_t>(std::min(workers, std::ssize(open))));
    rounds = std::max(rounds, std::int64_t{1});
    for (const auto i : open) shares[i] += rounds;
    workers -= rounds * std::ssize(open);
  }
  return shares;
}

/// What doesn't fit is shared out evenly, the first hosts get one more (as Open MPI 4).
void add_surplus(Shares& room, std::int64_t surplus) {
  const auto hosts = std::ssize(room);
  for (std::int64_t i = 0; i < hosts; ++i)
    room[static_cast<std::size_t>(i)] += surplus / hosts + (i < surplus % hosts ? 1 : 0);
}

std::string in_host_list(const Host& host, std::int64_t workers) {
  auto login = host.login;
  if (host.address.find(':') != std::string::npos)  // IPv6
    login = login.substr(0, login.size() - host.address.size()) + "[" + host.address + "]";
  return login + ":" + std::to_string(workers);
}

std::string too_few(const std::string& has, std::int64_t workers) {
  return std::to_string(workers) + " workers, but " + has +
         ": give a number that fits, more hosts, or --oversubscribe";
}

}  // namespace

Result<MpirunHosts> share_as_mpirun(const std::vector<Host>& hosts, const MpirunCounts& counts,
                                    std::vector<std::string> flags) {
  const bool has_slots =
      std::ranges::any_of(hosts, [](const Host& host) { return host.slots.has_value(); });
  const auto count = static_cast<std::int64_t>(hosts.size());
  Shares room;
  for (const auto& host : hosts)
    room.push_back(counts.per_host > 0 ? counts.per_host : host.slots.value_or(1));
  auto all = std::accumulate(room.begin(), room.end(), std::int64_t{0});
  if (counts.oversubscribes && has_slots && counts.per_host == 0 && counts.workers > all) {
    add_surplus(room, counts.workers - all);
    all = counts.workers;
  }
  MpirunHosts done;
  done.workers = counts.workers > 0 ? counts.workers : all;
  const bool is_dealt_out = !has_slots && counts.per_host == 0 && done.workers > count;
  if (done.workers > all && !is_dealt_out)
    return Error{Errc::bad_usage,
                 too_few("the hosts have room for " + std::to_string(all), done.workers)};
  const bool is_file = flags.front() == "--hostfile";
  const bool is_by_node = counts.is_by_node && counts.per_host == 0;
  if (!has_slots && counts.per_host == 0 && (is_dealt_out || is_file)) {
    if (counts.workers == 0)
      return Error{Errc::bad_usage, flags.front() + " " + in_quotes(flags.back(), 60) +
                                        " gives no slots, and the line no number of workers: "
                                        "write one, as -np 8"};
    if (!is_by_node)
      done.notes.emplace_back(
          "the hosts have no slots: Open MPI fills each up to its cores, MPICH deals the workers "
          "out; here each host gets as many, the first ones one more");
  }
  const auto shares = is_by_node ? dealt_out(done.workers, room) : filled(done.workers, room);
  if (is_by_node && done.workers > std::ranges::count_if(shares, [](auto n) { return n > 0; }))
    done.notes.emplace_back(
        "mpirun numbers the ranks from host to host in turn, acc-launch those of a host one after "
        "the other: the order of ranks differs");
  const bool has_all = is_dealt_out || shares == room;
  const bool is_by_slots =
      has_slots && std::ranges::equal(hosts, room, [](const Host& host, auto n) {
        return host.slots.value_or(1) == n;
      });
  done.flags = std::move(flags);
  if (has_all && (is_by_slots || !has_slots)) {
    if (counts.per_host > 0 && !has_slots)
      done.flags.push_back("--nproc_per_node=" + std::to_string(counts.per_host));
    return done;
  }
  std::vector<std::string> used;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (shares[i] > 0) used.push_back(in_host_list(hosts[i], shares[i]));
  done.flags = {"--hosts", join(used, ",")};
  return done;
}

}  // namespace acc::configure
