// An NPU of somebody else's, "npu://own": a register bank, three memories, and an interpreter
// instead of silicon. It executes commands in the write of the doorbell.
#pragma once

namespace own {

/// Lets "npu://own" be opened. Idempotent.
void register_own_device();

}  // namespace own
