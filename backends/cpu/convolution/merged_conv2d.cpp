#include "merged_conv2d.hpp"

namespace tenon {

TENON_DEFINE_OP(merged_conv2d, MergedConv2d);

Shape MergedConv2d::infer(std::span<const Shape> in) const {
  return conv.infer(in.first(has_residual ? in.size() - 1 : in.size()));
}

}  // namespace tenon
