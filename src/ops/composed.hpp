// Ops on types that no kernel computes with. Private to the core.
#pragma once

#include <tenon/op.hpp>
#include <tenon/shape.hpp>
#include <tenon/tensor.hpp>

#include <optional>
#include <span>

namespace tenon {

/// How an op on c64 or u64 is recorded as ops on other types.
struct Composition {
  using Record = Tensor (*)(const OpDef& def, const void* op, std::span<const Tensor> inputs);

  Record record;
  /// The op's own `infer` checks the operands' sizes with this type in the place of c64 or u64.
  std::optional<DType> checked_as{};
};

/// None where an op on these inputs is recorded as itself, or is refused.
std::optional<Composition> find_composition(const OpDef& def, const void* op,
                                            std::span<const Shape> inputs);

}  // namespace tenon
