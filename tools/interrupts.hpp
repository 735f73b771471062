#pragma once

#include <memory>
#include <stop_token>

namespace tenon::tool {

/// Handles Ctrl-C (SIGINT) and SIGTERM while it exists: the first signal during work requests a
/// stop, the next one ends the program; without work, each one does. One object at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Work begins: the token that the next signal sets.
  std::stop_token begin();
  /// It has ended.
  void end();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenon::tool
