#pragma once

#include "driver/kernel_compiler.hpp"

namespace tenon::cuda {

/// Lets "cuda:emulated" be opened: kernels run on the CPU, slowly, to be tested. Its keys:
///
///   memory=BYTES          its capacity; 1 GiB
///   fail_allocation=N     the N-th allocation from now on finds no room; streams, events, graphs
///                         and their updates, copies and launches count
///   fail_launch=N         the N-th launch fails
///
/// Nothing opens it unless it is asked for by name. Idempotent.
void register_emulation();

/// What compiles generated kernels of devices that are opened from now on: none by default.
/// Not thread-safe.
void set_emulated_compiler(FoundCompiler (*open)());

}  // namespace tenon::cuda
