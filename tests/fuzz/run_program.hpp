// Runs programs that a fuzzer generated, where that is cheap.
#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/lowered.hpp>
#include <tenon/program.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tenon::testing {

/// The program for small inputs: sizes that it leaves open are 3. Nothing where that ends in a
/// typed error, or where running it would take more than some milliseconds.
std::optional<Lowered> lower_small(const Program& program,
                                   const std::map<std::string, HostBuffer>& weights = {});

/// Made-up values for its inputs.
std::vector<Buffer> made_up_inputs(const Lowered& lowered);

/// Runs `program` on the reference backend, and on the CPU backend before it, with made-up inputs
/// and weights where `weights` has none. Fails unless both give results of the same types, or both
/// a typed error.
void run_program(const Program& program, const std::map<std::string, HostBuffer>& weights = {});

}  // namespace tenon::testing
