#include "runtime/checkpoint/blocks.hpp"

#include "common/text.hpp"
#include "runtime/quiet_thread.hpp"

#include <zlib.h>

#include <acc/error.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

namespace acc::runtime::checkpoint {
namespace {

/// Bytes that a thread handles at a time: large for the disk, small enough that the checksum reads
/// from the cache.
constexpr std::size_t kChunk = 4 * kBlock;

std::uint32_t checksum(Bytes bytes) noexcept {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

/// Calls `work(i, buffer)` for every i < count on some threads; the buffer has kChunk bytes and is
/// the thread's own. The first failure stops all and is rethrown.
void spread(std::size_t count, int threads,
            const std::function<void(std::size_t, std::span<std::byte>)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex guard;
  std::exception_ptr failure;
  const auto run = [&]() noexcept {
    try {
      const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kChunk);
      for (auto i = next++; i < count; i = next++) work(i, {buffer.get(), kChunk});
    } catch (...) {
      next = count;
      const std::lock_guard lock{guard};
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  const auto wanted = std::min<std::size_t>(static_cast<std::size_t>(std::max(threads, 1)), count);
  for (std::size_t i = 1; i < wanted; ++i) {
    try {
      others.push_back(quiet_thread(run));
    } catch (const Error&) {
      break;  // no thread can be started: the running ones do the work
    }
  }
  run();
  for (auto& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

/// Pieces that form one sequence of bytes.
class Row {
 public:
  explicit Row(std::span<const Bytes> pieces) : pieces_{pieces} {
    ends_.reserve(pieces.size());
    std::uint64_t end = 0;
    for (const auto& piece : pieces) ends_.push_back(end += piece.size());
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }

  /// `count` bytes from `at` on, assembled in `buffer` if they span pieces.
  [[nodiscard]] Bytes bytes(std::uint64_t at, std::size_t count,
                            std::span<std::byte> buffer) const {
    auto index = static_cast<std::size_t>(std::ranges::upper_bound(ends_, at) - ends_.begin());
    auto within = static_cast<std::size_t>(at - (ends_[index] - pieces_[index].size()));
    if (within + count <= pieces_[index].size()) return pieces_[index].subspan(within, count);
    std::size_t filled = 0;
    for (; filled < count; ++index, within = 0) {
      const auto some = std::min(pieces_[index].size() - within, count - filled);
      if (some > 0) std::memcpy(buffer.data() + filled, pieces_[index].data() + within, some);
      filled += some;
    }
    return buffer.first(count);
  }

 private:
  std::span<const Bytes> pieces_;
  std::vector<std::uint64_t> ends_;
};

void checksum_blocks(Bytes bytes, std::uint64_t at, std::vector<std::uint32_t>& into) {
  for (std::size_t from = 0; from < bytes.size(); from += kBlock) {
    into[(at + from) / kBlock] =
        checksum(bytes.subspan(from, std::min(kBlock, bytes.size() - from)));
  }
}

UniqueFd open_in_size(const fs::path& path, const FileRecord& file) {
  std::uint64_t size = 0;
  auto fd = open_for_reading(path, size);
  if (size != file.bytes) {
    throw Error{ErrorCode::corrupt, "'" + printable(path.native(), 500) + "' has " +
                                        std::to_string(size) + " bytes, " +
                                        std::to_string(file.bytes) + " were written"};
  }
  return fd;
}

}  // namespace

std::string hex(std::uint32_t value) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", value);
  return text.data();
}

FileRecord write_file(FileOps& files, const fs::path& path, std::span<const Bytes> pieces,
                      int threads) {
  const Row row{pieces};
  FileRecord record{path.filename().native(), row.size(), {}};
  record.crc32.resize(blocks_of(record));
  const auto fd = files.create(path);
  spread((row.size() + kChunk - 1) / kChunk, threads,
         [&](std::size_t chunk, std::span<std::byte> buffer) {
           const auto at = std::uint64_t{chunk} * kChunk;
           const auto count =
               static_cast<std::size_t>(std::min<std::uint64_t>(kChunk, row.size() - at));
           const auto bytes = row.bytes(at, count, buffer);
           checksum_blocks(bytes, at, record.crc32);
           files.write(fd.get(), bytes, at, path);
         });
  files.sync(fd.get(), path);
  return record;
}

FileRecord write_file(FileOps& files, const fs::path& path, std::string_view text) {
  const Bytes piece = std::as_bytes(std::span{text});
  return write_file(files, path, {&piece, 1}, 1);
}

std::size_t blocks_of(const FileRecord& file) noexcept {
  return static_cast<std::size_t>((file.bytes + kBlock - 1) / kBlock);
}

void check_block(const fs::path& path, const FileRecord& file, std::size_t block, Bytes bytes) {
  const auto found = checksum(bytes);
  if (found == file.crc32[block]) return;
  throw Error{ErrorCode::corrupt, "'" + printable(path.native(), 500) + "': bytes " +
                                      std::to_string(block * kBlock) + " to " +
                                      std::to_string(block * kBlock + bytes.size() - 1) +
                                      " aren't those that were written (checksum " + hex(found) +
                                      ", was " + hex(file.crc32[block]) + ")"};
}

void check_blocks(const fs::path& folder, const FileRecord& file, std::size_t first,
                  std::size_t count, int threads) {
  const auto path = folder / file.name;
  const auto fd = open_in_size(path, file);
  constexpr std::size_t kAtOnce = kChunk / kBlock;
  const auto last = std::min(first + count, blocks_of(file));
  if (first >= last) return;
  spread((last - first + kAtOnce - 1) / kAtOnce, threads,
         [&](std::size_t chunk, std::span<std::byte> buffer) {
           const auto begin = first + chunk * kAtOnce;
           const auto end = std::min(begin + kAtOnce, last);
           for (auto block = begin; block < end; ++block) {
             const auto at = std::uint64_t{block} * kBlock;
             const auto bytes = buffer.first(
                 static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, file.bytes - at)));
             read_at(fd.get(), bytes, at, path);
             check_block(path, file, block, bytes);
           }
         });
}

std::string read_checked(const fs::path& folder, const FileRecord& file) {
  const auto path = folder / file.name;
  const auto fd = open_in_size(path, file);
  std::string text(file.bytes, '\0');
  const auto bytes = std::as_writable_bytes(std::span{text});
  read_at(fd.get(), bytes, 0, path);
  for (std::size_t block = 0; block < blocks_of(file); ++block) {
    const auto from = block * kBlock;
    check_block(path, file, block, bytes.subspan(from, std::min(kBlock, bytes.size() - from)));
  }
  return text;
}

}  // namespace acc::runtime::checkpoint
