// A plugin with the op of a header that the program has as well; with OTHER_STRUCT another op of its name and form, with
// SHARED_OP_HAS_GRADIENT another version of the header.
#include "core/plugins/shared_op.hpp"

#include <tenon/backend.hpp>
#include <tenon/tensor.hpp>

namespace tenon::testing {

#ifdef SHARED_OP_HAS_GRADIENT
std::vector<Tensor> SharedOp::gradient(const Backward&) const { return {Tensor()}; }
#endif

namespace {

#ifdef OTHER_STRUCT
struct Op : SharedOp {
  Shape infer(std::span<const Shape> in) const { return in[0].with_dim(0, 1); }
};
#else
using Op = SharedOp;
#endif

const PluginDescriptor descriptor{.name = "shared_op", .add = [](const PluginRegistry& registry) {
                                    registry.add_op(op_def<Op>());
                                  }};

}  // namespace
}  // namespace tenon::testing

extern "C" const tenon::PluginDescriptor* tenon_plugin() noexcept {
  return &tenon::testing::descriptor;
}
