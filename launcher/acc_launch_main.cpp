#include "agent/guardian.hpp"
#include "launcher/launcher.hpp"

int main(int argc, char** argv) {
  return acc::agent::run_guarded([&](const acc::agent::GuardianLink& guardian) {
    return acc::launcher::launch(argc, argv, guardian);
  });
}
