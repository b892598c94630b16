#include "agent/evidence/collector.hpp"
#include "agent/gpu_sampler.hpp"
#include "agent/guardian.hpp"
#include "agent/health_prober.hpp"
#include "launcher/launcher.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

int main(int argc, char** argv) {
  if (const auto code = acc::agent::health::prober_main(argc, argv)) return *code;
  if (const auto code = acc::agent::gpu::sampler_main(argc, argv)) return *code;
  if (argc == 2 && acc::agent::evidence::kCollectWord == argv[1])
    return acc::agent::evidence::collect_evidence();
  // Before the guardian puts /dev/null in the place of what was closed.
  const bool has_output = ::fcntl(STDOUT_FILENO, F_GETFD) >= 0;
  if (acc::launcher::only_prints_plan(argc, argv)) {
    std::signal(SIGCHLD, SIG_DFL);  // inherited as ignored, it hides the ends of probes
    return acc::launcher::launch(argc, argv, {}, has_output);
  }
  return acc::agent::run_guarded([&](const acc::agent::GuardianLink& guardian) {
    return acc::launcher::launch(argc, argv, guardian, has_output);
  });
}
