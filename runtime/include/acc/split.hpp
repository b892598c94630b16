#pragma once

#include <acc/error.hpp>
#include <acc/process_group.hpp>
#include <acc/types.hpp>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// Splits something that all processes have, as split_between_processes: the first ranks take one
/// more if it is not divisible. A group of one takes all.
namespace acc::runtime {

/// [first, last) of one rank.
struct Split {
  std::size_t first = 0;
  std::size_t last = 0;
  /// How often the list's last element is to be added so that all ranks have equally many.
  std::size_t padding = 0;
  friend bool operator==(const Split&, const Split&) = default;
};
[[nodiscard]] Split split_between(std::size_t length, int rank, int ranks) noexcept;

template <class T>
[[nodiscard]] std::vector<T> take(const std::vector<T>& list, const Split& part,
                                  bool apply_padding) {
  std::vector<T> mine{list.begin() + static_cast<std::ptrdiff_t>(part.first),
                      list.begin() + static_cast<std::ptrdiff_t>(part.last)};
  if (apply_padding && part.padding > 0) mine.insert(mine.end(), part.padding, list.back());
  return mine;
}
/// Along dim 0. @throws Error invalid_argument  a scalar, or on a GPU
[[nodiscard]] HostTensor take(const TensorView& tensor, const Split& part, bool apply_padding);
[[nodiscard]] HostTensor take(const HostTensor& tensor, const Split& part, bool apply_padding);
template <class... Ts>
[[nodiscard]] std::variant<Ts...> take(const std::variant<Ts...>& one, const Split& part,
                                       bool apply_padding) {
  return std::visit(
      [&](const auto& it) { return std::variant<Ts...>{take(it, part, apply_padding)}; }, one);
}

/// Elements, or what a tensor has along dim 0.
template <class T>
[[nodiscard]] std::size_t length_of(const std::vector<T>& list) {
  return list.size();
}
[[nodiscard]] std::size_t length_of(const TensorView& tensor);
[[nodiscard]] std::size_t length_of(const HostTensor& tensor);
template <class... Ts>
[[nodiscard]] std::size_t length_of(const std::variant<Ts...>& one) {
  return std::visit([](const auto& it) { return length_of(it); }, one);
}

/// Of a list, a tensor (a view gives a copy), or a variant of them: this rank's part.
/// @param apply_padding  all ranks get equally many, the last element standing in for missing ones
template <class T>
[[nodiscard]] auto split_between_processes(const T& whole, int rank, int ranks,
                                           bool apply_padding = false)
    -> decltype(take(whole, Split{}, apply_padding)) {
  return take(whole, split_between(length_of(whole), rank, ranks), apply_padding);
}
/// Of a table: of each column this rank's part.
/// @throws Error invalid_argument  the columns are not of one length
template <class T>
[[nodiscard]] std::map<std::string, T> split_between_processes(
    const std::map<std::string, T>& columns, int rank, int ranks, bool apply_padding = false) {
  std::map<std::string, T> mine;
  for (const auto& [name, column] : columns) {
    const auto& [first_name, first] = *columns.begin();
    if (length_of(column) != length_of(first)) {
      throw Error{ErrorCode::invalid_argument, "split_between_processes: column '" + name +
                                                   "' has " + std::to_string(length_of(column)) +
                                                   " elements, '" + first_name + "' has " +
                                                   std::to_string(length_of(first))};
    }
    mine.emplace(name, split_between_processes(column, rank, ranks, apply_padding));
  }
  return mine;
}
template <class T>
[[nodiscard]] auto split_between_processes(const ProcessGroup& group, const T& whole,
                                           bool apply_padding = false) {
  return split_between_processes(whole, group.rank(), group.size(), apply_padding);
}

}  // namespace acc::runtime
