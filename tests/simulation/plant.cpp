#include "tests/simulation/plant.hpp"

#include "rendezvous/planted.hpp"

namespace acc::simulation {

#ifdef ACC_PLANTED_BUGS

namespace {

struct Plant {
  std::string_view name;
  bool* is_on;
};

constexpr Plant kPlants[] = {
    {"skip_lease_wait", &rendezvous::planted::skip_lease_wait},
    {"accept_stale_round", &rendezvous::planted::accept_stale_round},
    {"assign_rank_twice", &rendezvous::planted::assign_rank_twice},
    {"forget_stopped", &rendezvous::planted::forget_stopped},
    {"elect_without_majority", &rendezvous::planted::elect_without_majority},
    {"trust_stopped_clocks", &rendezvous::planted::trust_stopped_clocks},
    {"answer_from_belief", &rendezvous::planted::answer_from_belief},
    {"lease_by_monotonic", &rendezvous::planted::lease_by_monotonic},
    {"start_before_commit", &rendezvous::planted::start_before_commit},
    {"lead_past_lease", &rendezvous::planted::lead_past_lease},
    {"begin_ended_job", &rendezvous::planted::begin_ended_job},
    {"no_lease_timer", &rendezvous::planted::no_lease_timer},
    {"forget_waiting", &rendezvous::planted::forget_waiting},
};

}  // namespace

bool plant(std::string_view name) {
  for (const auto& plant : kPlants) {
    if (plant.name != name) continue;
    *plant.is_on = true;
    return true;
  }
  return false;
}

std::vector<std::string> plants() {
  std::vector<std::string> names;
  for (const auto& plant : kPlants) names.emplace_back(plant.name);
  return names;
}

#else

bool plant(std::string_view) { return false; }
std::vector<std::string> plants() { return {}; }

#endif

}  // namespace acc::simulation
