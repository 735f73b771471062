// Functions of two real operands without vector code.
#include "point_task.hpp"

#include <tenon/ops/real_binary.hpp>

namespace tenon::cpu {
namespace {

template <class Op, class T>
void real_pairs(const PointCall& call, const OpInstance&) noexcept {
  const auto* a = static_cast<const T*>(call.x[0]);
  const auto* b = static_cast<const T*>(call.x[1]);
  auto* y = static_cast<T*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) {
    y[i] = static_cast<T>(
        Op::of(static_cast<double>(a[i * call.step[0]]), static_cast<double>(b[i * call.step[1]])));
  }
}

template <class Op>
PointStep real_pair_point(const Step& step) {
  return point_step(step, {real_pairs<Op, float>, real_pairs<Op, double>, nullptr, nullptr});
}

}  // namespace

extern const Kernel atan2_kernel, hypot_kernel;
constinit const Kernel atan2_kernel = point_kernel<Atan2, real_pair_point<Atan2>>();
constinit const Kernel hypot_kernel = point_kernel<Hypot, real_pair_point<Hypot>>();

}  // namespace tenon::cpu
