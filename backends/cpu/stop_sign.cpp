#include "stop_sign.hpp"

#include <tenon/interrupt.hpp>

namespace tenon::cpu {

StopSign stop_sign(const Interrupt* interrupt) noexcept {
  return {interrupt, [](const Interrupt& asked) noexcept { return asked.is_due(); }};
}

}  // namespace tenon::cpu
