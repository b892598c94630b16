#pragma once

#include "common/ids.hpp"
#include "rendezvous/messages.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

/// PMI-1, the wire-up protocol of MPICH and its relatives: a worker exchanges addresses with the
/// others through its launcher, in lines of `cmd=NAME key=value …` on the descriptor that PMI_FD
/// names. Here every exchange becomes a request to the key-value store of the round, so that it
/// works over several nodes too. After MPICH's src/pmi/simple (docs/decisions/0031).
namespace acc::agent::pmi {

/// A longer line ends the session. MPICH writes at most 1024 bytes.
inline constexpr std::size_t kMaxLine = 4096;

/// The descriptor at which a worker finds its end of the connection: PMI_FD.
inline constexpr int kWorkerFd = 3;

/// A name that ends at no blank within a line, and is no longer than get_maxes says: `job` may be
/// any text. Of two jobs on one host, whose workers name their shared memory after it, they differ.
[[nodiscard]] std::string space_name(std::string_view job, Round round);

struct WorkerPlace {
  Rank rank{0};
  WorldSize world{1};
  std::string space;  ///< name of the round's key-value space, as get_my_kvsname reports it
};

// What follows from a line or from the store's reply.
struct Write {
  std::string text;  ///< whole lines
};
struct AskStore {
  rendezvous::KvRequest request;  ///< its reply goes to on_reply()
};
struct AskTable {};  ///< the rank table goes to on_table()
struct Continue {};  ///< nothing to write: read the next line
struct Abort {
  int code = 1;  ///< the worker is to be killed and counts as exited with this code, 1 to 255
};
struct HangUp {
  std::string why;
};
using Step = std::variant<Write, AskStore, AskTable, Continue, Abort, HangUp>;

/// The agent's side of one worker's PMI-1 dialogue (pure). The worker waits for each answer, so
/// there is at most one question at a time.
class Session {
 public:
  explicit Session(WorkerPlace place) : place_{std::move(place)} {}

  /// @param line  without its line end
  Step on_line(std::string_view line);
  Step on_reply(const rendezvous::KvReply& reply);
  Step on_table(std::span<const rendezvous::TableRow> rows) const;

 private:
  enum class Question : std::uint8_t { none, put, get, barrier, publish, lookup, unpublish };

  static Step abort(std::string_view line);
  Step begin(std::string_view line) const;
  Step put(std::string_view line);
  Step get(std::string_view line);
  Step service(Question question, std::string_view line);
  Step barrier();
  Step spawn_line(std::string_view line);
  Step ask(Question question, rendezvous::KvRequest request);

  WorkerPlace place_;
  Question asked_ = Question::none;
  std::uint64_t barriers_ = 0;  ///< passed so far: each has its own name
  bool in_spawn_ = false;       ///< between mcmd=spawn and endcmd
  std::string spawns_total_;    ///< of a spawn of several programs
  std::string spawns_so_far_;
};

/// Value of the attribute PMI_process_mapping: which consecutive ranks share a node, as
/// "(vector,(first node,nodes,ranks per node),…)". Rows in the order of their ranks.
[[nodiscard]] std::string process_mapping(std::span<const rendezvous::TableRow> rows);

}  // namespace acc::agent::pmi
