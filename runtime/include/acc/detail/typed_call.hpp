#pragma once

#include <acc/types.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

/// What the typed forms of a ProcessGroup's calls make of their arguments. Anything that doesn't
/// fit is one line of the compiler's output: a static_assert and nothing that follows from it.
namespace acc::runtime::detail {

/// What a call does with a range. An _async form goes on with it after it has returned.
enum class Use : std::uint8_t { read, write, read_later, write_later };

struct Elements {
  void* data = nullptr;
  std::size_t count = 0;
  DType type = DType::u8;
};

template <class R>
inline constexpr bool kIsView = std::is_same_v<std::remove_cvref_t<R>, TensorView> ||
                                std::is_same_v<std::remove_cvref_t<R>, ConstTensorView>;

/// @tparam R  as deduced for a forwarding reference: an lvalue reference, or the type of a
/// temporary
template <Use kUse, class R>
Elements elements(std::remove_reference_t<R>& range) {
  constexpr bool kWrites = kUse == Use::write || kUse == Use::write_later;
  constexpr bool kLater = kUse == Use::read_later || kUse == Use::write_later;
  if constexpr (kIsView<R>) {
    constexpr bool kFits = !kWrites || std::is_same_v<std::remove_cvref_t<R>, TensorView>;
    static_assert(kFits, "acc: this call writes to its argument, which is a ConstTensorView");
    if constexpr (kFits) return {const_cast<void*>(range.data), range.count(), range.dtype};
  } else if constexpr (!kContiguous<R>) {
    static_assert(kContiguous<R>,
                  "acc: this takes elements one behind the other: a vector, an array, a std::span, "
                  "a TensorView; for a pointer take the form with a count and a DType");
  } else {
    using Value = std::remove_cv_t<ElementOf<R>>;
    constexpr bool kConst = std::is_const_v<ElementOf<R>>;
    constexpr bool kDangles = (kWrites || kLater) && !kLasts<R>;
    static_assert(Element<Value>,
                  "acc: collectives carry integers of 8, 32 and 64 bits, Half, BFloat16, float and "
                  "double; other bytes go as std::byte");
    static_assert(!kWrites || !kConst, "acc: this call writes to elements that are const");
    static_assert(!kDangles, "acc: this is a temporary, whose memory is gone when it is needed");
    if constexpr (Element<Value> && !(kWrites && kConst) && !kDangles)
      return {const_cast<Value*>(std::ranges::data(range)), std::ranges::size(range),
              dtype_of<Value>};
  }
  return {};
}

/// Two ranges of one type.
struct Pair {
  const void* from = nullptr;
  std::size_t from_count = 0;
  void* to = nullptr;
  std::size_t to_count = 0;
  DType type = DType::u8;
};

template <class R>
struct ValueOf {
  using type = void;
};
template <class R>
requires(kContiguous<R> && !kIsView<R>) struct ValueOf<R> {
  using type = std::remove_cv_t<ElementOf<R>>;
};

/// @throws Error invalid_argument  views of different types
[[nodiscard]] Pair paired(const Elements& from, const Elements& to);

/// @tparam kLater  of an _async form
template <bool kLater, class Send, class Recv>
Pair pair(std::remove_reference_t<Send>& send, std::remove_reference_t<Recv>& recv) {
  using From = typename ValueOf<Send>::type;
  using To = typename ValueOf<Recv>::type;
  constexpr bool kSame = std::is_void_v<From> || std::is_void_v<To> || std::is_same_v<From, To>;
  static_assert(kSame, "acc: what is sent and what is received have elements of different types");
  if constexpr (kSame)
    return paired(elements < kLater ? Use::read_later : Use::read, Send > (send),
                  elements < kLater ? Use::write_later : Use::write, Recv > (recv));
  return {};
}

}  // namespace acc::runtime::detail
