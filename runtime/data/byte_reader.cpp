#include "runtime/data/byte_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include <acc/error.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace acc::runtime {

namespace {

constexpr std::size_t kBuffer = 256 * 1024;
/// Deflate's greatest gain is 1032; its blocks' heads take that below any round number above it.
constexpr std::uint64_t kGreatestGain = 1040;
constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
/// What a pipe may claim; its length is unknown.
constexpr std::uint64_t kMostOfPipe = std::uint64_t{1} << 30;
/// So that the bytes of a tensor can be counted for any type.
constexpr std::uint64_t kMostExtent = std::uint64_t{1} << 48;

[[noreturn]] void system_failure(const std::string& attempted, int error) {
  throw Error{ErrorCode::system, attempted + ": " + std::strerror(error)};
}

}  // namespace

ByteReader::ByteReader(const std::string& path) : name_{path} {
  file_ = UniqueFd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!file_) system_failure("open '" + path + "'", errno);
  struct stat facts {};
  if (::fstat(file_.get(), &facts) != 0) system_failure("stat '" + path + "'", errno);
  if (S_ISREG(facts.st_mode)) at_most_ = static_cast<std::uint64_t>(facts.st_size);
  file_buffer_.resize(kBuffer);
  find_out();
}

ByteReader::ByteReader(std::span<const std::byte> bytes, std::string name)
    : name_{std::move(name)}, packed_{bytes}, packed_offset_{bytes.size()}, at_most_{bytes.size()} {
  find_out();
}

ByteReader::~ByteReader() {
  if (gzip_) ::inflateEnd(gzip_.get());
}

void ByteReader::find_out() {
  // A buffer holds more than the two magic bytes, but a pipe may deliver one alone.
  if (packed_.empty()) (void)refill();
  if (packed_.size() < 2 || packed_[0] != std::byte{0x1f} || packed_[1] != std::byte{0x8b}) return;
  auto stream = std::make_unique<z_stream>();
  // 16: a gzip file, and nothing else.
  if (::inflateInit2(stream.get(), 16 + MAX_WBITS) != Z_OK)
    throw Error{ErrorCode::system, "unpack '" + name_ + "': no memory"};
  gzip_ = std::move(stream);
  unpacked_buffer_.resize(kBuffer);
  if (at_most_ != kUnknown) at_most_ *= kGreatestGain;
}

bool ByteReader::refill() {
  if (!file_) return false;
  // A pipe may deliver a single byte, and the first two are the magic.
  std::size_t got = 0;
  while (got < 2) {
    const auto n = ::read(file_.get(), file_buffer_.data() + got, file_buffer_.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) system_failure("read '" + name_ + "'", errno);
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  packed_ = std::span{file_buffer_}.first(got);
  packed_offset_ += got;
  return got != 0;
}

bool ByteReader::unpack() {
  for (;;) {
    if (packed_.empty() && !refill()) {
      if (gzip_->total_in == 0) return false;  // between two members, or after the last one
      corrupt("the gzip file ends too early");
    }
    auto& stream = *gzip_;
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed_.data()));
    stream.avail_in = static_cast<uInt>(std::min<std::size_t>(packed_.size(), 1U << 30));
    stream.next_out = reinterpret_cast<Bytef*>(unpacked_buffer_.data());
    stream.avail_out = static_cast<uInt>(unpacked_buffer_.size());
    const auto given = stream.avail_in;
    const int result = ::inflate(&stream, Z_NO_FLUSH);
    packed_ = packed_.subspan(given - stream.avail_in);
    if (result == Z_STREAM_END) {
      ::inflateReset(&stream);  // a gzip file may consist of several members
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      corrupt("the gzip file is broken near its byte " +
              std::to_string(packed_offset_ - packed_.size()) +
              (stream.msg != nullptr ? std::string{": "} + stream.msg : std::string{}));
    }
    const std::size_t made = unpacked_buffer_.size() - stream.avail_out;
    if (made != 0) {
      ready_ = std::span{unpacked_buffer_}.first(made);
      return true;
    }
  }
}

bool ByteReader::advance() {
  if (gzip_) return unpack();
  if (packed_.empty() && !refill()) return false;
  ready_ = std::exchange(packed_, {});
  return true;
}

std::size_t ByteReader::read(std::span<std::byte> into) {
  std::size_t got = 0;
  while (got < into.size() && (!ready_.empty() || advance())) {
    const std::size_t n = std::min(ready_.size(), into.size() - got);
    std::memcpy(into.data() + got, ready_.data(), n);
    ready_ = ready_.subspan(n);
    got += n;
    offset_ += n;
  }
  return got;
}

void ByteReader::read_all(std::span<std::byte> into, const std::string& what) {
  const std::size_t got = read(into);
  if (got < into.size()) {
    corrupt("the file ends in " + what + ", " + std::to_string(into.size() - got) +
            " bytes too early");
  }
}

int ByteReader::get() {
  if (ready_.empty() && !advance()) return -1;
  const auto byte = std::to_integer<int>(ready_.front());
  ready_ = ready_.subspan(1);
  ++offset_;
  return byte;
}

void ByteReader::expect_end(const std::string& behind) {
  if (get() >= 0) corrupt(offset_ - 1, "something more behind " + behind);
}

void ByteReader::corrupt(std::uint64_t at, const std::string& why) const {
  throw Error{ErrorCode::corrupt, name_ + ": at byte " + std::to_string(at) +
                                      (gzip_ ? " of what is unpacked: " : ": ") + why};
}

namespace {

void swap_bytes(std::span<std::byte> elements, std::size_t size) noexcept {
  for (std::size_t at = 0; at < elements.size(); at += size)
    std::reverse(&elements[at], &elements[at] + size);
}

void widen(std::span<const std::byte> narrow, bool has_sign, std::span<std::int32_t> wide) {
  for (std::size_t i = 0; i < wide.size(); ++i) {
    std::uint16_t value = 0;
    std::memcpy(&value, &narrow[i * 2], 2);
    wide[i] = has_sign ? static_cast<std::int16_t>(value) : value;
  }
}

/// Do `extents` elements of `element` bytes fit in `most` bytes? By dividing: products wrap around.
bool fits(std::span<const std::uint64_t> extents, std::size_t element, std::uint64_t most) {
  if (std::ranges::any_of(extents, [](auto extent) { return extent > kMostExtent; })) return false;
  if (std::ranges::find(extents, 0U) != extents.end()) return true;
  most /= element;
  for (const auto extent : extents) most /= extent;
  return most != 0;
}

}  // namespace

HostTensor read_elements(ByteReader& reader, const StoredType& stored,
                         std::span<const std::uint64_t> extents) {
  const auto most = reader.at_most() == kUnknown ? kMostOfPipe : reader.at_most();
  if (!fits(extents, stored.bytes, std::min(most, kMostExtent)))
    reader.corrupt("more elements are promised than can be in the file");
  Shape shape;
  for (const auto extent : extents) shape.push_back(static_cast<std::int64_t>(extent));
  HostTensor tensor{stored.type, std::move(shape)};
  std::vector<std::byte> narrow;
  std::span<std::byte> bytes = tensor.bytes();
  if (stored.bytes != size_of(stored.type)) {
    narrow.resize(tensor.count() * stored.bytes);
    bytes = narrow;
  }
  reader.read_all(bytes, "the elements");
  reader.expect_end("the last element");
  if (stored.order != std::endian::native && stored.bytes > 1) swap_bytes(bytes, stored.bytes);
  if (!narrow.empty()) widen(narrow, stored.has_sign, tensor.as<std::int32_t>());
  return tensor;
}

}  // namespace acc::runtime
