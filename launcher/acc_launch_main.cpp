#include "agent/evidence/collector.hpp"
#include "agent/gpu_sampler.hpp"
#include "agent/guardian.hpp"
#include "agent/health_prober.hpp"
#include "launcher/launcher.hpp"

#include <fcntl.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (const auto code = acc::agent::health::prober_main(argc, argv)) return *code;
  if (const auto code = acc::agent::gpu::sampler_main(argc, argv)) return *code;
  if (argc == 2 && acc::agent::evidence::kCollectWord == argv[1])
    return acc::agent::evidence::collect_evidence();
  // Before the guardian puts /dev/null in the place of what was closed.
  const bool has_output = ::fcntl(STDOUT_FILENO, F_GETFD) >= 0;
  return acc::agent::run_guarded([&](const acc::agent::GuardianLink& guardian) {
    return acc::launcher::launch(argc, argv, guardian, has_output);
  });
}
