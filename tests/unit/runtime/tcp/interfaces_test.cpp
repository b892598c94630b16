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

Placement place(const std::string& layout, int rank) {
  Roll roll;
  for (std::size_t r = 0; r < layout.size(); ++r) {
    Member member;
    member.rank = static_cast<int>(r);
    member.host = {std::string(1, layout[r]), std::string(1, layout[r]), ""};
    roll.members.push_back(member);
  }
  return {roll, rank};
}

}  // namespace

TEST_CASE("interface variables: prefixes, exact names, all but", "[tcp]") {
  const InterfaceFilter prefix{"eth,ib"}, exact{"=eth0,eth1"}, others{"^lo,docker"},
      exact_others{"^=eth0"};
  CHECK(prefix.lets("eth1"));
  CHECK(prefix.lets("ib0"));
  CHECK_FALSE(prefix.lets("lo"));
  CHECK(exact.lets("eth1"));
  CHECK_FALSE(exact.lets("eth10"));
  CHECK(others.lets("eth0"));
  CHECK_FALSE(others.lets("docker0"));
  CHECK(exact_others.lets("eth01"));
  CHECK_FALSE(exact_others.lets("eth0"));
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
  const auto third = place("aabbbc", 3);
  CHECK(third.hosts.size() == 3);
  CHECK(third.columns == 1);
  CHECK(third.most == 3);
  CHECK(third.in_order);
  CHECK(third.host == 1);
  CHECK(third.index == 1);
  CHECK_FALSE(third.carries());
  const auto even = place("aabb", 3);
  CHECK(even.columns == 2);
  CHECK(even.carries());
  CHECK_FALSE(even.leads());
  CHECK(even.carries(1));
  CHECK_FALSE(even.carries(0));
  CHECK_FALSE(place("abab", 0).in_order);
  CHECK(place("ab", 0).alone());
}
