#pragma once

#include "launcher/ctl/command.hpp"
#include "launcher/ctl/launches.hpp"
#include "launcher/ctl/outcome.hpp"
#include "launcher/ctl/places.hpp"
#include "launcher/ctl/wire.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace acc::ctl {

/// A command, and where it looks for services.
struct Invocation {
  const Command& command;
  Services services;

  /// Of --node, for the paths of the API.
  [[nodiscard]] std::string at() const { return node_prefix(command.value("--node")); }
  [[nodiscard]] bool wants_json() const { return command.has("--json"); }

  /// The one service that is meant: the named one, else the first that answers.
  template <class Do>
  int at_service(Do&& act) const {
    std::optional<Error> error;
    for (const auto& socket : services.sockets) {
      const auto connected = connect_to(socket);
      if (connected) return act(socket);
      if (!error) error = connected.error();
    }
    return fail(CtlExit::no_service, unanswered(services, *error));
  }
};

/// Wall clock, since the epoch.
[[nodiscard]] std::int64_t now_ms();

}  // namespace acc::ctl
