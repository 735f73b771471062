#pragma once

namespace tenon::cuda {

/// Lets "cuda:emulated" be opened: kernels run on the CPU, slowly, to be tested. Its keys:
///
///   memory=BYTES          its capacity; 1 GiB
///   fail_allocation=N     the N-th allocation from now on finds no room
///   fail_launch=N         the N-th launch fails
///
/// Nothing opens it unless it is asked for by name. Idempotent.
void register_emulation();

}  // namespace tenon::cuda
