#include "agent/output/tail_buffer.hpp"

#include <algorithm>
#include <cstring>

namespace acc::agent {

void TailBuffer::grow(std::size_t needed) {
  std::size_t wanted = std::max<std::size_t>(capacity_, 1024);
  while (wanted < needed && wanted < kSize) wanted *= 2;
  if (wanted == capacity_) return;
  std::unique_ptr<char[]> larger{new char[wanted]};  // not make_unique: it would touch every page
  if (size_ != 0)
    std::memcpy(larger.get(), bytes_.get(), size_);  // not yet a ring: that needs kSize bytes
  bytes_ = std::move(larger);
  capacity_ = wanted;
  next_ = size_;
}

void TailBuffer::append(std::string_view bytes) {
  if (bytes.empty()) return;
  total_ += bytes.size();
  last_append_ = clock_now();
  if (bytes.size() > kSize) bytes.remove_prefix(bytes.size() - kSize);
  if (size_ + bytes.size() > capacity_ && capacity_ < kSize) grow(size_ + bytes.size());
  const std::size_t first = std::min(bytes.size(), capacity_ - next_);
  std::memcpy(bytes_.get() + next_, bytes.data(), first);
  std::memcpy(bytes_.get(), bytes.data() + first, bytes.size() - first);
  next_ = (next_ + bytes.size()) % capacity_;
  size_ = std::min(size_ + bytes.size(), capacity_);
}

std::string TailBuffer::text() const { return text(size_); }

std::string TailBuffer::text(std::size_t most) const {
  const std::size_t length = std::min(most, size_);
  if (length == 0) return {};
  const std::size_t start = (next_ + capacity_ - length) % capacity_;
  const std::size_t first = std::min(length, capacity_ - start);
  std::string all(bytes_.get() + start, first);
  return all.append(bytes_.get(), length - first);
}

bool TailBuffer::blank() const { return text().find_first_not_of(" \t\r\n") == std::string::npos; }

void TailBuffer::clear() { *this = TailBuffer{}; }

}  // namespace acc::agent
