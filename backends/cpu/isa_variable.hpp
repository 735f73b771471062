#pragma once

namespace tenon::cpu {

/// Throws Errc::bad_argument when TENON_CPU_ISA names no instruction set (empty is as good as
/// unset), and logs a warning when it names one that this machine does not run, since the highest
/// one is used then.
void check_isa_variable();

}  // namespace tenon::cpu
