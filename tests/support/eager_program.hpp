// Programs run by an Eager, instruction by instruction, as the code that codegen() writes does.
#pragma once

#include <tenon/eager.hpp>
#include <tenon/program.hpp>

#include <vector>

namespace tenon::testing {

/// The results of a verified program. Values are given up by their last use.
std::vector<EagerArray> run_eagerly(Eager& eager, const Program& program,
                                    std::vector<EagerArray> inputs);

}  // namespace tenon::testing
