#pragma once

#include <memory>
#include <stop_token>

namespace tenon::tool {

/// What Ctrl-C (SIGINT) and SIGTERM do while this object lives: the first one asks the work that
/// was begun to stop, the next one ends the program, as every one does while no work is going on.
/// One object at a time.
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
