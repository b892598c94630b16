#include "agent/guardian.hpp"

namespace acc::agent {
int run_guarded(const std::function<int(const GuardianLink&)>& agent_main) { return agent_main({}); }
}  // namespace acc::agent
