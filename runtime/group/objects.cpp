#include "runtime/group/group.hpp"

#include <acc/process_group.hpp>
#include <algorithm>
#include <numeric>

// Objects are sent in two steps, lengths and bytes, so that any length is legal and known to all
// ranks.
namespace acc::runtime {

namespace {

using Counts = std::vector<std::size_t>;
static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));

Counts lengths_of_all(ProcessGroup& group, std::size_t mine, const CallOptions& how) {
  Counts lengths(static_cast<std::size_t>(group.size()));
  group.all_gather(&mine, lengths.data(), 1, DType::u64, how);
  return lengths;
}

std::vector<std::string> cut(const std::string& all, const Counts& lengths) {
  std::vector<std::string> parts;
  parts.reserve(lengths.size());
  std::size_t at = 0;
  for (const std::size_t length : lengths) {
    parts.push_back(all.substr(at, length));
    at += length;
  }
  return parts;
}

std::string room_for(std::size_t bytes) {
  try {
    return std::string(bytes, '\0');
  } catch (const std::exception&) {
    throw Error{ErrorCode::system, "no memory for objects of " + std::to_string(bytes) + " bytes"};
  }
}

std::string room_for(const Counts& lengths) {
  return room_for(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}));
}

}  // namespace

std::vector<std::string> ProcessGroup::all_gather_object(std::string_view mine, CallOptions how) {
  const InUserCall within{UserCall::all_gather_object};
  impl().require_no_coalesce("all_gather_object");
  const Counts lengths = lengths_of_all(*this, mine.size(), how);
  std::string all = room_for(lengths);
  all_gather_v(mine.data(), all.data(), lengths, DType::u8, how);
  return cut(all, lengths);
}

std::vector<std::string> ProcessGroup::gather_object(std::string_view mine, int root,
                                                     CallOptions how) {
  const InUserCall within{UserCall::gather_object};
  impl().require_no_coalesce("gather_object");
  const Counts lengths = lengths_of_all(*this, mine.size(), how);
  std::string all = rank() == root ? room_for(lengths) : std::string{};
  gather_v(mine.data(), all.data(), lengths, DType::u8, root, how);
  if (rank() != root) return {};
  return cut(all, lengths);
}

std::string ProcessGroup::broadcast_object(std::string_view roots, int root, CallOptions how) {
  const InUserCall within{UserCall::broadcast_object};
  impl().require_no_coalesce("broadcast_object");
  std::uint64_t length = roots.size();
  broadcast(&length, 1, DType::u64, root, how);
  std::string object = room_for(length);
  if (rank() == root) object = roots;
  broadcast(object.data(), length, DType::u8, root, how);
  return object;
}

std::string ProcessGroup::scatter_object(std::span<const std::string> roots, int root,
                                         CallOptions how) {
  const InUserCall within{UserCall::scatter_object};
  impl().require_no_coalesce("scatter_object");
  // The lengths of all ranks, and the largest, to which all parts are padded.
  struct Lengths {
    std::uint64_t mine = 0;
    std::uint64_t largest = 0;
  };
  std::vector<Lengths> lengths;
  std::string padded;
  if (rank() == root) {
    if (roots.size() != static_cast<std::size_t>(size()))
      throw Error{ErrorCode::invalid_argument,
                  "scatter_object on group '" + name() + "': " + std::to_string(roots.size()) +
                      " objects for " + std::to_string(size()) + " ranks"};
    std::size_t largest = 0;
    for (const auto& object : roots) largest = std::max(largest, object.size());
    for (const auto& object : roots) {
      lengths.push_back({object.size(), largest});
      padded += object;
      padded.resize(lengths.size() * largest);
    }
  }
  Lengths mine;
  scatter(lengths.data(), &mine, 2, DType::u64, root, how);
  std::string object = room_for(mine.largest);
  scatter(padded.data(), object.data(), mine.largest, DType::u8, root, how);
  object.resize(mine.mine);
  return object;
}

}  // namespace acc::runtime
