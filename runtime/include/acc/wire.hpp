#pragma once

#include <acc/error.hpp>
#include <acc/types.hpp>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

/// How a sample is sent from rank 0 to the others when batches are dispatched. Plain structs,
/// strings, vectors, pairs and HostTensors do already; for anything else specialize Wire. The ranks
/// of a job run the same program on machines of one kind, so plain values are sent as they are in
/// memory: a struct that holds a pointer or a view needs a Wire of its own.
namespace acc::runtime {

/// Pointers and views name memory of their own process alone, and can't be sent.
template <class T>
inline constexpr bool is_view_of_memory = std::is_pointer_v<T>;
template <class T, std::size_t N>
inline constexpr bool is_view_of_memory<std::span<T, N>> = true;
template <class C, class Traits>
inline constexpr bool is_view_of_memory<std::basic_string_view<C, Traits>> = true;
template <class T>
inline constexpr bool is_view_of_memory<std::reference_wrapper<T>> = true;
template <class T, std::size_t N>
inline constexpr bool is_view_of_memory<std::array<T, N>> = is_view_of_memory<T>;

/// What can be sent as its bytes.
template <class T>
concept PlainValue = std::is_trivially_copyable_v<T> && !is_view_of_memory<T>;

template <class T>
struct Wire;

template <class T>
concept Wired = requires(std::string& out, std::string_view& in, const T& value) {
  Wire<T>::write(out, value);
  { Wire<T>::read(in) } -> std::same_as<T>;
};

/// The next `bytes` of `in`. @throws Error mismatch  there aren't so many
inline std::string_view take_bytes(std::string_view& in, std::uint64_t bytes) {
  if (bytes > in.size()) {
    throw Error{ErrorCode::mismatch,
                "a sample from rank 0 ends too early: do all ranks run the same program?"};
  }
  const auto part = in.substr(0, static_cast<std::size_t>(bytes));
  in.remove_prefix(part.size());
  return part;
}

template <PlainValue T>
struct Wire<T> {
  static void write(std::string& out, const T& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static T read(std::string_view& in) {
    const auto bytes = take_bytes(in, sizeof(T));
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};

template <>
struct Wire<std::string> {
  static void write(std::string& out, const std::string& value) {
    Wire<std::uint64_t>::write(out, value.size());
    out += value;
  }
  static std::string read(std::string_view& in) {
    const auto bytes = Wire<std::uint64_t>::read(in);
    return std::string{take_bytes(in, bytes)};
  }
};

template <Wired T>
struct Wire<std::vector<T>> {
  static void write(std::string& out, const std::vector<T>& values) {
    Wire<std::uint64_t>::write(out, values.size());
    if constexpr (kPlain) {
      if (!values.empty())
        out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    } else {
      for (const auto& value : values) Wire<T>::write(out, value);
    }
  }
  static std::vector<T> read(std::string_view& in) {
    const auto count = Wire<std::uint64_t>::read(in);
    if constexpr (kPlain) {
      // Divided, as a product could wrap around.
      if (count > in.size() / sizeof(T)) (void)take_bytes(in, ~std::uint64_t{0});
      const auto bytes = take_bytes(in, count * sizeof(T));
      std::vector<T> values(static_cast<std::size_t>(count));
      if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    } else {
      std::vector<T> values;
      for (std::uint64_t i = 0; i < count; ++i) values.push_back(Wire<T>::read(in));
      return values;
    }
  }

 private:
  static constexpr bool kPlain = PlainValue<T> && !std::same_as<T, bool>;
};

template <class A, class B>
requires(!std::is_trivially_copyable_v<std::pair<A, B>> && Wired<A> &&
         Wired<B>) struct Wire<std::pair<A, B>> {
  static void write(std::string& out, const std::pair<A, B>& value) {
    Wire<A>::write(out, value.first);
    Wire<B>::write(out, value.second);
  }
  static std::pair<A, B> read(std::string_view& in) {
    A first = Wire<A>::read(in);
    return {std::move(first), Wire<B>::read(in)};
  }
};

template <>
struct Wire<HostTensor> {
  static void write(std::string& out, const HostTensor& value);
  static HostTensor read(std::string_view& in);
};

}  // namespace acc::runtime
