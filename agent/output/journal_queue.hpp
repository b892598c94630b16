#pragma once

#include "agent/output/batch_queue.hpp"
#include "common/ids.hpp"

#include <memory>
#include <string>
#include <string_view>

/// systemd's journal, in its native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): one datagram a
/// line, with fields.
namespace acc::agent {

/// The fields behind MESSAGE, as they go over the socket.
/// @param stream  "stdout", "stderr", or "" for a line of ours, which has no rank
std::string journal_fields(std::string_view job_id, Round round, Rank rank, LocalRank local,
                           std::string_view stream);
std::string journal_fields(std::string_view job_id);

/// Appends one record to the batch of a JournalQueue; `message` is any bytes.
void append_record(std::string& batch, std::string_view message, std::string_view fields);

class JournalQueue final : public BatchQueue {
 public:
  /// Nothing when no journal listens at `path`.
  static std::shared_ptr<JournalQueue> connect(const std::string& path, DropPolicy::Limits limits,
                                               std::function<void()> wake);
  [[nodiscard]] bool takes_records() const override { return true; }

 private:
  JournalQueue(std::string path, UniqueFd socket, DropPolicy::Limits limits,
               std::function<void()> wake)
      : BatchQueue{"journal", limits, std::move(wake)},
        path_{std::move(path)},
        socket_{std::move(socket)} {}
  std::size_t write_once(std::string_view bytes) override;
  [[nodiscard]] std::uint64_t lines_in(std::string_view bytes) const override;
  /// Waits for journald to read what was sent, up to a second: it asks the kernel who we are, for
  /// `journalctl -u`, and gets no answer once we are gone.
  void settle() override;

  const std::string path_;
  UniqueFd socket_;  // of the writer thread; none after the journal went away
};

}  // namespace acc::agent
