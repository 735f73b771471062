// An op in a header that a program and its plugins include.
#pragma once

#include <tenon/op.hpp>

#include <span>
#include <string_view>
#include <vector>

namespace tenon::testing {

/// y = x times `factor`.
struct SharedOp {
  static constexpr std::string_view name = "shared_op";
  static constexpr int min_inputs = 1, max_inputs = 1;
  double factor = 2;
  static constexpr auto fields = FieldList{field("factor", &SharedOp::factor)};

  Shape infer(std::span<const Shape> in) const { return in[0]; }
  void reference(std::span<const HostView> in, const HostView& out) const {
    for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
      const DType dtype = out.shape.dtype();
      store_double(dtype, out.at(index), factor * load_as_double(dtype, in[0].at(index)));
    });
  }
#ifdef SHARED_OP_HAS_GRADIENT
  std::vector<Tensor> gradient(const Backward& at) const;
#endif
};

}  // namespace tenon::testing
