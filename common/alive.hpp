#pragma once

#include <memory>
#include <utility>

namespace acc {

/// Keeps handlers from touching an object that no longer exists. A handler of a timer, a socket or
/// posted work can run after the object that started it was destroyed: a cancelled wait completes
/// later, and posted work can't be withdrawn. The object has an Alive as its last member and passes
/// each handler that captures `this` through bind():
///
///   timer_.async_wait(alive_.bind([this](error_code error) { if (!error) on_timer(); }));
///
/// Handlers must run on the thread that destroys the object; bind() and copies of its result are
/// safe on any thread. A caller that may be destroyed by its own call checks afterwards:
///
///   const Alive::Watch watch = alive_.watch();
///   on_order_(order);
///   if (!watch.is_alive()) return;
///
/// Not needed if the event loop has stopped for good before the object is destroyed. An object held
/// in a shared_ptr because several parts use it (a connection that finishes its last write on its
/// own) captures weak_from_this() instead: it must also live until the handler returns.
class Alive {
 public:
  Alive() = default;
  Alive(const Alive&) = delete;
  Alive& operator=(const Alive&) = delete;

  /// Wraps `handler`, which must return void: the result does nothing once this object is
  /// destroyed.
  template <class Handler>
  [[nodiscard]] auto bind(Handler handler) const {
    return [watch = this->watch(), handler = std::move(handler)](auto&&... arguments) mutable {
      if (watch.is_alive()) handler(std::forward<decltype(arguments)>(arguments)...);
    };
  }

  class Watch {
   public:
    [[nodiscard]] bool is_alive() const { return !token_.expired(); }

   private:
    friend class Alive;
    explicit Watch(const std::shared_ptr<const char>& token) : token_{token} {}
    std::weak_ptr<const char> token_;
  };
  [[nodiscard]] Watch watch() const { return Watch{token_}; }

  /// For a destructor whose own calls must not re-enter the object.
  void end() { token_.reset(); }

 private:
  std::shared_ptr<const char> token_ = std::make_shared<const char>();
};

}  // namespace acc
