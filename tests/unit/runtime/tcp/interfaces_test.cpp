#include "runtime/tcp/interfaces.hpp"

#include "runtime/tcp/placement.hpp"

#include <catch2/catch.hpp>

#include <acc/error.hpp>
#include <map>

using namespace acc::runtime;
using namespace std::chrono_literals;

namespace {

Lookup with(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string{name});
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Deadline soon() { return std::chrono::steady_clock::now() + 10s; }

RankPlacement rank_state(const std::string& layout, int rank) {
  GroupManifest manifest;
  for (std::size_t r = 0; r < layout.size(); ++r) {
    Member member;
    member.rank = static_cast<int>(r);
    member.host = {std::string(1, layout[r]), std::string(1, layout[r]), ""};
    manifest.members.push_back(member);
  }
  return {manifest, rank};
}

}  // namespace

TEST_CASE("interface variables: prefixes, exact names, all but", "[tcp]") {
  const InterfaceFilter prefix{"eth,ib"}, exact{"=eth0,eth1"}, others{"^lo,docker"},
      exact_others{"^=eth0"};
  CHECK(prefix.allows("eth1"));
  CHECK(prefix.allows("ib0"));
  CHECK_FALSE(prefix.allows("lo"));
  CHECK(exact.allows("eth1"));
  CHECK_FALSE(exact.allows("eth10"));
  CHECK(others.allows("eth0"));
  CHECK_FALSE(others.allows("docker0"));
  CHECK(exact_others.allows("eth01"));
  CHECK_FALSE(exact_others.allows("eth0"));
}

TEST_CASE("the address is the one from which the master is spoken to", "[tcp]") {
  CHECK(choose_interface(with({}), "127.0.0.1", soon()).address.host() == "127.0.0.1");
  CHECK(choose_interface(with({}), "127.0.0.1", soon()).name == "lo");
  CHECK(choose_interface(with({{"ACC_SOCKET_IFNAME", "lo"}}), "", soon()).address.is_loopback());
  CHECK(choose_interface(with({{"NCCL_SOCKET_IFNAME", "=lo"}}), "", soon()).name == "lo");
  CHECK_THROWS_WITH(
      choose_interface(with({{"GLOO_SOCKET_IFNAME", "nosuch9"}}), "127.0.0.1", soon()),
      Catch::StartsWith(
          "GLOO_SOCKET_IFNAME=nosuch9 lets no interface of this host; there are: lo"));
}

TEST_CASE("every host has as many carriers as the smallest has ranks", "[tcp]") {
  const auto third = rank_state("aabbbc", 3);
  CHECK(third.hosts.size() == 3);
  CHECK(third.rails == 1);
  CHECK(third.most == 3);
  CHECK(third.in_order);
  CHECK(third.host == 1);
  CHECK(third.index == 1);
  CHECK_FALSE(third.is_proxy());
  const auto even = rank_state("aabb", 3);
  CHECK(even.rails == 2);
  CHECK(even.is_proxy());
  CHECK_FALSE(even.is_leader());
  CHECK(even.is_proxy(1));
  CHECK_FALSE(even.is_proxy(0));
  CHECK_FALSE(rank_state("abab", 0).in_order);
  CHECK(rank_state("ab", 0).one_rank_per_host());
}
