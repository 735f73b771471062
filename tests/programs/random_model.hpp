// Whole programs that nobody planned: built through the public builders, with values for all that
// they read.
#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/program.hpp>
#include <tenon/tensor.hpp>

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace tenon::testing {

enum class ProgramKind : std::uint8_t {
  mixed,       ///< ops of every kind
  images,      ///< mostly convolutions and what stands between them
  open_sizes,  ///< a SizedModel
};

/// What a program is made of, by one seed. Every move (an op, a loop, a layer with state) draws
/// from a generator of its own, so that moves can be left out and the others stay what they are.
struct RandomModelPlan {
  std::uint64_t seed = 0;
  std::set<int> dropped{};  ///< moves that are left out, from 0
  ProgramKind kind = ProgramKind::mixed;
};

struct RandomModel {
  Program program;                            ///< as recorded
  std::vector<HostBuffer> inputs;             ///< of the entry function's parameters
  std::map<std::string, HostBuffer> weights;  ///< of its constants
  std::set<std::size_t> states;               ///< inputs that it updates
  int moves = 0;                              ///< of the plan, dropped ones included
  bool has_halves = false;                    ///< some values are rounded to 16 bits
  bool has_rare_types = false;                ///< f64 or integer arithmetic
};

/// The program of a plan, mixed or of images: sizes are small, some of them zero; values are of
/// moderate size, and small changes of them change results by little. Inputs are called "in.0", ...
RandomModel make_random_model(const RandomModelPlan& plan);

/// A program of open sizes, for sessions that see one set of sizes after another: values are
/// [B, S, K] with B and S open. Inputs are x, f32 of K = `width`, and ids, i32 [B, S].
struct SizedModel {
  struct Sizes {
    std::int64_t batch, length;
    auto operator<=>(const Sizes&) const = default;
  };
  static constexpr std::int64_t width = 32;
  /// Some of them come again.
  static std::span<const Sizes> some_sizes();

  Program program;
  std::map<std::string, HostBuffer> weights;
  int moves = 0;

  /// Values of the inputs for these sizes, the same each time.
  std::vector<HostBuffer> inputs(const Sizes& sizes) const;
  std::uint64_t seed = 0;
  std::int64_t vocabulary = 0;  ///< of the ids
};
SizedModel make_sized_model(const RandomModelPlan& plan);

/// Records a plan's program as a model's forward does, on these inputs and constants by name, in
/// the graph that records. Returns its outputs.
std::vector<Tensor> replay(const RandomModelPlan& plan, std::span<const Tensor> inputs,
                           const std::map<std::string, Tensor>& constants);

}  // namespace tenon::testing
