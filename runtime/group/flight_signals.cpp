#include "runtime/group/flight_signals.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace acc::runtime::flight_signals {

namespace {

// What the handlers may touch.
std::atomic<const WakeEvent*> g_event{nullptr};  ///< none: no thread writes records
std::atomic<pid_t> g_owner{0};  // a forked child has the handlers, but not the thread that writes
std::atomic<int> g_signo{0};    ///< the last one received
std::atomic<bool> g_to_end{false};
// Written before the handler is installed.
struct sigaction g_before_usr2, g_before_term;

bool is_default(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

void call(const struct sigaction& action, int signo, siginfo_t* info, void* context) {
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    if (action.sa_sigaction != nullptr) action.sa_sigaction(signo, info, context);
  } else if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) {
    action.sa_handler(signo);
  }
}

void on_signal(int signo, siginfo_t* info, void* context) {
  const int saved = errno;
  const bool ends = signo == SIGTERM && is_default(g_before_term);
  const WakeEvent* event = g_owner.load() == ::getpid() ? g_event.load() : nullptr;
  if (event != nullptr) {
    g_signo.store(signo);
    if (ends) g_to_end.store(true);
    event->set();
  }
  call(signo == SIGTERM ? g_before_term : g_before_usr2, signo, info, context);
  if (ends && event == nullptr) end_as_asked();
  errno = saved;
}

void handle(int signo, struct sigaction& before) {
  struct sigaction current {};
  ::sigaction(signo, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_signal) return;
  before = current;
  struct sigaction ours {};
  ours.sa_sigaction = on_signal;
  ours.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(signo, &ours, nullptr);
}

}  // namespace

void install(const WakeEvent& event) {
  g_owner.store(::getpid());
  g_event.store(&event);
  handle(SIGUSR2, g_before_usr2);
  handle(SIGTERM, g_before_term);
}

void detach() noexcept { g_event.store(nullptr); }

Asked take() noexcept { return {g_signo.exchange(0), g_to_end.exchange(false)}; }

// The signal is blocked in its handler: it ends the process when the handler returns.
void end_as_asked() noexcept {
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  ::sigemptyset(&usual.sa_mask);
  ::sigaction(SIGTERM, &usual, nullptr);
  ::kill(::getpid(), SIGTERM);
}

}  // namespace acc::runtime::flight_signals
