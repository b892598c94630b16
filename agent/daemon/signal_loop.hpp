#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <functional>
#include <initializer_list>

namespace acc::agent::daemon {

/// Calls a handler for each signal of a set. The wait for the next one is in progress before the
/// handler runs, so that one that throws costs that signal alone. Where that wait can't begin, the
/// handler runs all the same, and the loop of events gets the exception.
class SignalLoop {
 public:
  using Handler = std::function<void(int signo)>;

  /// From here on the signals no longer end the process; they are kept until start().
  SignalLoop(boost::asio::io_context& io, std::initializer_list<int> signals, Handler handler);
  virtual ~SignalLoop() = default;
  SignalLoop(const SignalLoop&) = delete;
  SignalLoop& operator=(const SignalLoop&) = delete;

  /// Does nothing while a wait is in progress: also the way back after a wait that couldn't begin.
  void start();
  [[nodiscard]] bool is_waiting() const { return is_waiting_; }

 protected:
  /// Virtual for a test in which there is no memory for it.
  virtual void wait();

 private:
  void on_signal(int signo);

  boost::asio::signal_set signals_;
  Handler handler_;
  bool is_waiting_ = false;
};

}  // namespace acc::agent::daemon
