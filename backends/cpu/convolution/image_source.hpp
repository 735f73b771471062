#pragma once

#include "../task.hpp"
#include "convolution.hpp"
#include "plan.hpp"

#include <cstdint>

namespace tenon::cpu {

/// Where a convolution reads its image: in place, or from a copy in scratch memory, channels last,
/// which a task before it makes.
class ImageSource {
 public:
  static ImageSource in_place() { return {}; }
  /// Requests the task, and makes the plan read its copy.
  static ImageSource request(const Convolution& conv, ConvolutionPlan& plan, Compiler& compiler);
  /// The same without padding, of any image [N, C, H, W]; tasks that ask for the same image share
  /// one copy. `steps` become those of the copy.
  static ImageSource channels_last(const Operand& image, ImageSteps& steps, Compiler& compiler);

  const float* at(const TaskContext& context, const Operand& x) const noexcept {
    return offset_ < 0 ? context.pointer<const float>(x)
                       : reinterpret_cast<const float*>(context.scratch(offset_));
  }

 private:
  std::int64_t offset_ = -1;
};

}  // namespace tenon::cpu
