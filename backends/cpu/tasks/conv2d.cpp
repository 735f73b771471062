// Convolutions, alone or with what follows them.
#include "../convolution/convolution.hpp"
#include "../task.hpp"
#include "conv_f64.hpp"
#include "real.hpp"

#include <optional>

namespace tenon::cpu {
namespace {

std::optional<std::string> refuses_conv2d(const Step& step) {
  if (auto why = needs_one_real(step)) return why;
  if (is_f64(step)) {
    if (auto why = needs_dense(step.inputs[1], "w")) return why;
  }
  for (std::size_t i = 2; i < step.inputs.size(); ++i) {
    if (auto why = needs_dense(step.inputs[i], "bias")) return why;
  }
  return std::nullopt;
}

std::unique_ptr<Task> make_conv2d(const Step& step, Compiler& compiler) {
  if (is_f64(step)) return make_conv2d_f64(step, compiler);
  return make_convolution(Convolution::of(step), compiler);
}

}  // namespace

extern const Kernel conv2d_kernel, merged_conv2d_kernel;
constinit const Kernel conv2d_kernel{op_def<Conv2d>, refuses_conv2d, make_conv2d};
constinit const Kernel merged_conv2d_kernel{op_def<MergedConv2d>, refuses_conv2d, make_conv2d};

}  // namespace tenon::cpu
