#include "interrupts.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

namespace tenon::tool {
namespace {

constexpr int watched[] = {SIGINT, SIGTERM};
constexpr unsigned char end_of_watch = 0;

// The pipe to which the handler, which may call little else, writes a signal's number.
std::atomic<int> pipe_end{-1};

extern "C" void note_signal(int signal) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal);
  static_cast<void>(!::write(pipe_end.load(), &byte, 1));
  errno = saved;
}

/// Ends the process with the signal's default action.
void end_program(int signal) {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  ::kill(::getpid(), signal);
}

}  // namespace

struct Interrupts::State {
  std::mutex mutex;
  std::stop_source source{std::nostopstate};  // of the work going on
  int ends[2] = {-1, -1};
  struct sigaction before[std::size(watched)]{};
  std::thread watcher;

  void watch() {
    unsigned char signal = end_of_watch;
    while (true) {
      const auto count = ::read(ends[0], &signal, 1);
      if (count < 0 && errno == EINTR) continue;
      if (count != 1 || signal == end_of_watch) return;
      const std::scoped_lock lock(mutex);
      if (!source.request_stop()) end_program(signal);
    }
  }
};

Interrupts::Interrupts() : state_(std::make_unique<State>()) {
  if (::pipe2(state_->ends, O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe");
  }
  pipe_end = state_->ends[1];
  // The watcher handles no signals itself: it would have to write to the pipe that it reads.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  state_->watcher = std::thread([state = state_.get()] { state->watch(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  struct sigaction action{};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < std::size(watched); ++i) {
    ::sigaction(watched[i], &action, &state_->before[i]);
  }
}

Interrupts::~Interrupts() {
  for (std::size_t i = 0; i < std::size(watched); ++i) {
    ::sigaction(watched[i], &state_->before[i], nullptr);
  }
  static_cast<void>(!::write(state_->ends[1], &end_of_watch, 1));
  state_->watcher.join();
  for (const int end : state_->ends) ::close(end);
}

std::stop_token Interrupts::begin() {
  const std::scoped_lock lock(state_->mutex);
  state_->source = std::stop_source();
  return state_->source.get_token();
}

void Interrupts::end() {
  const std::scoped_lock lock(state_->mutex);
  state_->source = std::stop_source(std::nostopstate);
}

}  // namespace tenon::tool
