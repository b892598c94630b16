#pragma once

#include "runtime/bootstrap/sockets.hpp"
#include "runtime/bootstrap/store.hpp"
#include "runtime/bootstrap/store_place.hpp"

#include <memory>

namespace acc::runtime {

/// A store that rank 0 serves from a thread of its own, for launchers that have none: over TCP at
/// the master's address, or within one machine at an abstract name. Bounded in what strangers can
/// make it hold; no secret protects it (as torch's): a job on a hostile network wants our agent.
///
/// Rank 0 serves, as long as its Store lives, and is its own first client; the others connect.
/// @throws Error timed_out, system: where it looked and what it found there; invalid_argument: a
///   living process of this job is this rank already.
[[nodiscard]] std::shared_ptr<Store> open_tcp_store(const TcpStorePlace& place, Deadline deadline);

/// The store of the job that this process is a rank of: opened by the first group, and kept until
/// the process ends, so that further groups find it. A process that was forked opens its own.
/// @throws Error as open_tcp_store
[[nodiscard]] std::shared_ptr<Store> job_store(const TcpStorePlace& place, Deadline deadline);

}  // namespace acc::runtime
