#include "agent/output/tail_buffer.hpp"

#include <algorithm>
#include <cstring>

namespace acc::agent {

namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

// Bytes of a character of UTF-8 whose first ones aren't there.
std::size_t cut_in_front(std::string_view text) {
  constexpr std::size_t kMost = 3;
  std::size_t cut = 0;
  while (cut < kMost && cut < text.size() && continues(text[cut])) ++cut;
  return cut;
}

// Without one that is cut at either end.
std::string_view whole_characters(std::string_view text) {
  text.remove_prefix(cut_in_front(text));
  std::size_t back = 0;
  while (back < text.size() && continues(text[text.size() - 1 - back])) ++back;
  if (back >= text.size()) return text;
  const auto first = static_cast<unsigned char>(text[text.size() - 1 - back]);
  const std::size_t length = first >= 0xF0U ? 4 : first >= 0xE0U ? 3 : first >= 0xC0U ? 2 : 1;
  if (length > back + 1) text.remove_suffix(back + 1);
  return text;
}

}  // namespace

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

// In pieces, so that the beginning of a long line is seen before its end overwrites it.
void TailBuffer::append(std::string_view bytes) {
  constexpr std::size_t kPiece = kSize / 4;
  if (bytes.empty()) return;
  last_append_ = clock_now();
  while (!bytes.empty()) {
    const auto piece = bytes.substr(0, kPiece);
    put(piece);
    follow_line(piece);
    bytes.remove_prefix(piece.size());
  }
}

void TailBuffer::follow_line(std::string_view bytes) {
  constexpr std::size_t kLong = kSize / 2;
  constexpr std::size_t kBefore = 8192;
  constexpr std::size_t kHead = 4096;
  const bool is_open = long_line_ && long_line_->end == UINT64_MAX;
  if (const auto newline = bytes.rfind('\n'); newline != std::string_view::npos) {
    if (is_open) long_line_->end = total_ - bytes.size() + bytes.find('\n') + 1;
    line_begin_ = total_ - bytes.size() + newline + 1;
  } else if (!is_open && total_ - line_begin_ >= kLong) {
    const auto before = std::min<std::uint64_t>(line_begin_, kBefore);
    const auto kept = text(static_cast<std::size_t>(total_ - line_begin_ + before));
    const std::string_view head{kept.data(), static_cast<std::size_t>(before) + kHead};
    const auto whole = whole_characters(head);
    const auto left_out = static_cast<std::uint64_t>(whole.data() - head.data());
    long_line_ = std::make_unique<LongLine>(
        LongLine{std::string{whole}, line_begin_ - before + left_out, line_begin_, UINT64_MAX});
  }
}

void TailBuffer::put(std::string_view bytes) {
  total_ += bytes.size();
  if (size_ + bytes.size() > capacity_ && capacity_ < kSize) grow(size_ + bytes.size());
  const std::size_t first = std::min(bytes.size(), capacity_ - next_);
  std::memcpy(bytes_.get() + next_, bytes.data(), first);
  std::memcpy(bytes_.get(), bytes.data() + first, bytes.size() - first);
  next_ = (next_ + bytes.size()) % capacity_;
  size_ = std::min(size_ + bytes.size(), capacity_);
}

std::string TailBuffer::text() const {
  auto kept = text(size_);
  const auto from = total_ - size_;
  if (from == 0) return kept;
  std::string_view whole = kept;
  whole.remove_prefix(std::min(cut_in_front(whole), whole.size()));
  if (!long_line_ || from <= long_line_->begin || from >= long_line_->end)
    return std::string{whole};
  const auto& line = *long_line_;
  if (from <= line.head_begin + line.head.size())
    return line.head.substr(0, static_cast<std::size_t>(from - line.head_begin)) + kept;
  return line.head + "…" + std::string{whole};
}

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
