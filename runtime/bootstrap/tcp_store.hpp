#pragma once

#include "runtime/bootstrap/store_place.hpp"
#include "runtime/net/sockets.hpp"
#include "runtime/net/store.hpp"

#include <memory>

namespace acc::runtime {

/// A store that rank 0 serves from a thread, for launchers without one: over TCP at the master's
/// address, or within one machine at an abstract name. Strangers can make it use bounded memory
/// only, but as with torch's no secret protects it: a job on a hostile network needs our agent.
///
/// Rank 0 serves as long as its Store exists and is its own first client; the others connect.
/// @throws Error timed_out, system: the places tried and what was found there; invalid_argument: a
///   live process of this job already has this rank.
[[nodiscard]] std::shared_ptr<Store> open_tcp_store(const TcpStorePlace& place, Deadline deadline);

/// The store of this process's job: opened by the first group and kept until the process ends, so
/// that further groups find it. A forked process opens its own.
/// @throws Error as open_tcp_store
[[nodiscard]] std::shared_ptr<Store> job_store(const TcpStorePlace& place, Deadline deadline);

}  // namespace acc::runtime
