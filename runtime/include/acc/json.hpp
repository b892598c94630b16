#pragma once

#include <nlohmann/json.hpp>

#include <acc/process_group.hpp>

/// Objects of ProcessGroup as JSON, for programs that use nlohmann::json themselves; the library
/// doesn't ask for it. They are sent as CBOR: shorter than text, and exact for floating point. T:
/// nlohmann::json, or anything it converts from and to.
/// @throws Error as ProcessGroup; corrupt: an object that isn't T.
namespace acc::json {

namespace detail {
template <class T>
std::string pack(const T& value) {
  const auto bytes = nlohmann::json::to_cbor(nlohmann::json(value));
  return {bytes.begin(), bytes.end()};
}
template <class T>
T unpack(const std::string& bytes) {
  try {
    return nlohmann::json::from_cbor(bytes).get<T>();
  } catch (const nlohmann::json::exception& e) {
    throw runtime::Error{runtime::ErrorCode::corrupt,
                         std::string{"an object of another kind: "} + e.what()};
  }
}
template <class T>
std::vector<T> unpack_all(const std::vector<std::string>& objects) {
  std::vector<T> values;
  values.reserve(objects.size());
  for (const auto& bytes : objects) values.push_back(unpack<T>(bytes));
  return values;
}
}  // namespace detail

/// @return the values of all ranks, by rank.
template <class T = nlohmann::json>
[[nodiscard]] std::vector<T> all_gather_object(ProcessGroup& group, const T& mine) {
  return detail::unpack_all<T>(group.all_gather_object(detail::pack(mine)));
}
/// Empty on all ranks but root.
template <class T = nlohmann::json>
[[nodiscard]] std::vector<T> gather_object(ProcessGroup& group, const T& mine, int root) {
  return detail::unpack_all<T>(group.gather_object(detail::pack(mine), root));
}
/// @return root's, on every rank. The values of the others are ignored.
template <class T = nlohmann::json>
[[nodiscard]] T broadcast_object(ProcessGroup& group, const T& roots, int root) {
  return detail::unpack<T>(
      group.broadcast_object(group.rank() == root ? detail::pack(roots) : std::string{}, root));
}
/// @return this rank's element of `roots` (one per rank, read on root only).
template <class T = nlohmann::json>
[[nodiscard]] T scatter_object(ProcessGroup& group, const std::vector<T>& roots, int root) {
  std::vector<std::string> packed;
  if (group.rank() == root)
    for (const auto& value : roots) packed.push_back(detail::pack(value));
  return detail::unpack<T>(group.scatter_object(packed, root));
}

}  // namespace acc::json
