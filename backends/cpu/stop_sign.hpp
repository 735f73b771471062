#pragma once

namespace tenon {
struct Interrupt;
}

namespace tenon::cpu {

/// What ends long work early, as plain data for the files that are compiled for one instruction set
/// (matmul/matmul_kernels.hpp says why). A function that is compiled for any CPU answers.
struct StopSign {
  const Interrupt* interrupt = nullptr;  ///< null: the work runs to its end
  bool (*asked)(const Interrupt&) noexcept = nullptr;
};

/// Of an interrupt that may be null and outlives the sign.
StopSign stop_sign(const Interrupt* interrupt) noexcept;

/// Whether the rest of the work is to be left out. Reads the clock where there is a deadline, about
/// 30 ns: to be asked a thousand times a second, not a million.
[[gnu::always_inline]] inline bool is_due(const StopSign& stop) {
  return stop.interrupt != nullptr && stop.asked(*stop.interrupt);
}

}  // namespace tenon::cpu
