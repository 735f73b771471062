// Whole programs that nobody planned: built through the public builders, with values for all that
// they read.
#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/program.hpp>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tenon::testing {

/// What a program is made of, by one seed. Every move (an op, a loop, a layer with state) draws
/// from a generator of its own, so that moves can be left out and the others stay what they are.
struct RandomModelPlan {
  std::uint64_t seed = 0;
  std::set<int> dropped{};  ///< moves that are left out, from 0
};

struct RandomModel {
  Program program;                            ///< as recorded
  std::vector<HostBuffer> inputs;             ///< of the entry function's parameters
  std::map<std::string, HostBuffer> weights;  ///< of its constants
  int moves = 0;                              ///< of the plan, dropped ones included
  bool has_halves = false;                    ///< some values are rounded to 16 bits
  bool has_rare_types = false;                ///< f64 or integer arithmetic
};

/// A program of open sizes, for sessions that see one set of sizes after another: values are
/// [B, S, K] with B and S open.
struct SizedModel {
  Program program;
  std::map<std::string, HostBuffer> weights;
  int moves = 0;

  /// Values of the inputs for these sizes, the same each time.
  std::vector<HostBuffer> inputs(std::int64_t batch, std::int64_t length) const;
  std::uint64_t seed = 0;
  std::int64_t vocabulary = 0;  ///< of the ids, the second input
};
SizedModel make_sized_model(const RandomModelPlan& plan);

/// The program of a plan: sizes are small, some of them zero; values are of moderate size, and
/// small changes of them change results by little.
RandomModel make_random_model(const RandomModelPlan& plan);

}  // namespace tenon::testing
