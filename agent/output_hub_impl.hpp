#pragma once

#include "agent/output_hub.hpp"
#include "agent/output_pump.hpp"

#include <memory>
#include <string>
#include <vector>

namespace acc::agent {

class OutputHub::Impl : public std::enable_shared_from_this<OutputHub::Impl> {
 public:
  Impl(boost::asio::io_context& io, const OutputPlan& plan, std::uint32_t local_world_size,
       const ConsoleFacts& facts, OutputOptions options);
  /// What the constructor can't do, as others need our shared_ptr.
  void set_up();

  Result<ChildStreams> open(LocalRank local, Rank rank);
  void close_child_ends(LocalRank local);
  void begin_round(Round round, const std::string& run_folder);
  void drain(LocalRank local);
  void end_round();
  [[nodiscard]] std::string tail(LocalRank local) const;
  [[nodiscard]] std::string log_path(LocalRank local, Streams which) const;
  void say(std::string_view text);
  [[nodiscard]] std::vector<Losses> losses() const;
  void finish(const std::function<FlushLimits()>& limits);
  void shorten_patience(Millis patience);
  [[nodiscard]] std::vector<Variable> environment(LocalRank local, Rank rank) const;
  void window_changed();
  void stop();

  std::string job_id;
  std::string role = "default";
  std::function<void(const Losses&)> on_degraded;

 private:
  /// One stream of a worker in this round.
  struct Channel {
    TailBuffer tail;
    std::unique_ptr<WorkerStream> stream;
    std::shared_ptr<Pump::Reader> reader;
    UniqueFd child_end;
    std::string path;                // of its log file, or empty
    std::size_t prefix_columns = 0;  // in front of its lines
  };
  struct Worker {
    Channel out;  // of both streams when they share a pipe
    Channel err;
  };

  void set_up_consoles();
  std::function<void()> waker();
  void on_wake();
  void flush();
  void tell(Outlet& outlet);
  std::vector<Outlet*> outlets() const;
  [[nodiscard]] bool is_journal(bool is_err) const {
    return is_err ? facts_.journal_err : facts_.journal_out;
  }
  ConsoleOutlet& console(bool is_err) { return is_err && err_ ? *err_ : *out_; }
  [[nodiscard]] std::string folder_of(LocalRank local) const;
  [[nodiscard]] bool wants_color(bool is_err) const;
  WorkerStream::Targets targets_of(LocalRank local, Rank rank, const Route& route, bool is_err);
  Result<void> open_channel(Channel& channel, LocalRank local, Rank rank, const Route& route,
                            bool is_err);
  void close_channel(Channel& channel);
  Result<UniqueFd> open_pipe(Channel& channel, bool is_err);
  UniqueFd open_terminal(Channel& channel);
  [[nodiscard]] WindowSize window_of(std::size_t prefix_columns) const;
  [[nodiscard]] bool was_cut_off(const Outlet& outlet, Instant from) const;
  bool write_out(Outlet& outlet, Instant from, const std::function<FlushLimits()>& limits);

  boost::asio::io_context& io_;
  const OutputPlan plan_;
  const std::uint32_t local_world_size_;
  ConsoleFacts facts_;
  const OutputOptions options_;
  const bool wants_files_;
  std::unique_ptr<ConsoleOutlet> out_;
  std::unique_ptr<ConsoleOutlet> err_;  // none: out_ serves both
  std::unique_ptr<FilesOutlet> files_;
  std::shared_ptr<Pump> pump_;
  std::vector<Worker> workers_;
  Round round_{};
  std::string round_folder_;      // <run folder>/attempt_<round>, or empty
  bool is_finished_ = false;      // nothing is told any more
  bool lacks_terminals_ = false;  // told
  bool is_wait_told_ = false;     // of the last finish()
};

}  // namespace acc::agent
