// Any bytes are a safetensors file by whose header every tensor can be read, or an error that names
// the file. What is understood is laid out again by the writer and read back as the same.
#include "runtime/checkpoint/safetensors_format.hpp"

#include <acc/error.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

using namespace acc::runtime;
using namespace acc::runtime::safetensors;

namespace {

/// They fill the file behind its header, without hole or overlap.
void check_places(const Header& header, std::uint64_t data_begin, std::uint64_t file_bytes) {
  auto end = data_begin;
  for (const auto& entry : header.entries) {
    if (entry.begin != end || entry.bytes > file_bytes - end) std::abort();
    end += entry.bytes;
    if (entry.dtype && count_of(entry.shape) * size_of(*entry.dtype) != entry.bytes) std::abort();
    if (!bits_of(entry.type)) std::abort();
  }
  if (end != file_bytes) std::abort();
}

void write_again(const Header& header, std::string_view data, std::uint64_t data_begin) {
  std::vector<NamedTensor> tensors;
  for (const auto& entry : header.entries) {
    if (!entry.dtype) return;
    auto* at = const_cast<char*>(data.data()) + (entry.begin - data_begin);
    tensors.push_back({entry.name, TensorView{at, *entry.dtype, entry.shape}});
  }
  const auto layout = lay_out(tensors, header.metadata);
  const auto text = std::string_view{layout.head}.substr(kLengthBytes);
  const auto again = parse_header(text, layout.bytes, "again");
  check_places(again, layout.head.size(), layout.bytes);
  if (again.metadata != header.metadata || again.entries.size() != header.entries.size()) {
    std::abort();
  }
  for (const auto& entry : again.entries) {
    const auto before = std::ranges::find(header.entries, entry.name, &SafetensorsEntry::name);
    if (before == header.entries.end() || before->shape != entry.shape ||
        before->type != entry.type) {
      std::abort();
    }
  }
}

/// As merge-weights does, with tensors of any type.
void describe_again(const Header& header) {
  std::vector<Described> described;
  for (const auto& entry : header.entries)
    described.push_back({entry.name, entry.type, &entry.shape, entry.bytes});
  const auto head = head_of(described, header.metadata);
  const auto again =
      parse_header(std::string_view{head.text}.substr(kLengthBytes), head.bytes, "again");
  check_places(again, head.text.size(), head.bytes);
  if (again.metadata != header.metadata || again.entries.size() != header.entries.size())
    std::abort();
  for (std::size_t i = 0; i < head.order.size(); ++i) {
    // Empty tensors stand at the same place as what follows them.
    const auto& before = header.entries[head.order[i]];
    const auto now = std::ranges::find(again.entries, before.name, &SafetensorsEntry::name);
    if (now == again.entries.end() || now->type != before.type || now->shape != before.shape)
      std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < kLengthBytes) return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const std::string_view whole{reinterpret_cast<const char*>(data), size};
  try {
    const auto length = header_length(std::span<const std::byte, kLengthBytes>{bytes, kLengthBytes},
                                      size, "fuzzed");
    const auto data_begin = kLengthBytes + length;
    const auto header = parse_header(whole.substr(kLengthBytes, length), size, "fuzzed");
    check_places(header, data_begin, size);
    write_again(header, whole.substr(data_begin), data_begin);
    describe_again(header);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt) std::abort();
    if (std::string_view{error.what()}.find("'fuzzed': ") != 0) std::abort();
  }
  return 0;
}
