#pragma once

#include "rendezvous/codec.hpp"

namespace acc::rendezvous {

/// decode(), with the texts that people read made safe for a terminal: names of nodes and hosts,
/// paths, causes and reasons of any peer reach messages, reports and events of all nodes. What a
/// terminal obeys becomes visible ("\x1b"). Output of workers (the end of it, an error file's text)
/// stays as it was written: reports make it safe where they show it.
[[nodiscard]] Result<Frame> decode_of_peer(std::string_view frame);

}  // namespace acc::rendezvous
