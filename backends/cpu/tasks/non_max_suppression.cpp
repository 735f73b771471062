// Boxes that are kept of those that overlap: one thread walks images and classes, since where a
// box's row is depends on all before it.
#include "../integer_math.hpp"
#include "../task.hpp"
#include "real.hpp"

#include <tenon/ops/non_max_suppression.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::cpu {
namespace {

struct KeptBox {
  double top, left, bottom, right, area;
};
template <class T>
struct ScoredBox {
  T score;
  std::int32_t box;
};

template <class T>
class SuppressionTask final : public Task {
 public:
  SuppressionTask(const Step& step, Compiler& compiler)
      : boxes_(step.inputs[0]),
        scores_(step.inputs[1]),
        y_(step.output),
        op_(*step.op.as<NonMaxSuppression>()) {
    const std::int64_t count = boxes_.shape[1];
    kept_bytes_ = round_up(count * static_cast<std::int64_t>(sizeof(KeptBox)), 64);
    scratch_ = compiler.scratch(
        kept_bytes_ + round_up(count * static_cast<std::int64_t>(sizeof(ScoredBox<T>)), 64));
  }

  void run(const TaskContext& context) const noexcept override {
    const Range whole = context.share(1);
    if (whole.begin == whole.end) return;
    auto* y = context.pointer<std::int64_t>(y_);
    std::int64_t rows = 0;
    for (std::int64_t image = 0; image < boxes_.shape[0]; ++image) {
      for (std::int64_t kind = 0; kind < scores_.shape[1] && rows < op_.capacity; ++kind) {
        if (context.worker.is_interrupted()) return;
        rows += keep(context, image, kind, op_.capacity - rows, y + rows * 3);
      }
    }
    std::fill(y + rows * 3, y + op_.capacity * 3, std::int64_t{-1});
  }

 private:
  /// Rows written, at most `room`.
  std::int64_t keep(const TaskContext& context, std::int64_t image, std::int64_t kind,
                    std::int64_t room, std::int64_t* y) const noexcept {
    const std::int64_t count = boxes_.shape[1];
    auto* kept = reinterpret_cast<KeptBox*>(context.scratch(scratch_));
    auto* order = reinterpret_cast<ScoredBox<T>*>(context.scratch(scratch_ + kept_bytes_));
    const T* scores = context.pointer<const T>(scores_) + (image * scores_.shape[1] + kind) * count;
    const T* boxes = context.pointer<const T>(boxes_) + image * count * 4;
    const bool takes_all = op_.score_threshold == -std::numeric_limits<double>::infinity();
    std::int64_t candidates = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const bool takes_part =
          takes_all ? scores[i] == scores[i] : static_cast<double>(scores[i]) > op_.score_threshold;
      if (takes_part) order[candidates++] = {scores[i], static_cast<std::int32_t>(i)};
    }
    std::sort(order, order + candidates, [](const ScoredBox<T>& a, const ScoredBox<T>& b) {
      return a.score != b.score ? a.score > b.score : a.box < b.box;
    });
    const std::int64_t most = std::min(room, op_.max_per_class);
    std::int64_t size = 0;
    for (std::int64_t i = 0; i < candidates && size < most; ++i) {
      if (i % 64 == 0 && context.worker.is_interrupted()) break;
      const KeptBox box = corners(boxes + order[i].box * 4);
      if (is_hidden(box, kept, size)) continue;
      kept[size] = box;
      y[size * 3] = image;
      y[size * 3 + 1] = kind;
      y[size * 3 + 2] = order[i].box;
      ++size;
    }
    return size;
  }

  KeptBox corners(const T* v) const noexcept {
    const double a = static_cast<double>(v[0]), b = static_cast<double>(v[1]),
                 c = static_cast<double>(v[2]), d = static_cast<double>(v[3]);
    KeptBox box{std::min(a, c), std::min(b, d), std::max(a, c), std::max(b, d), 0};
    if (op_.center_point_box) box = {b - d / 2, a - c / 2, b + d / 2, a + c / 2, 0};
    box.area = (box.bottom - box.top) * (box.right - box.left);
    return box;
  }

  bool is_hidden(const KeptBox& box, const KeptBox* kept, std::int64_t size) const noexcept {
    for (std::int64_t i = 0; i < size; ++i) {
      const KeptBox& other = kept[i];
      const double height = std::min(box.bottom, other.bottom) - std::max(box.top, other.top);
      const double width = std::min(box.right, other.right) - std::max(box.left, other.left);
      if (!(height > 0 && width > 0)) continue;
      const double common = height * width;
      if (common / (box.area + other.area - common) > op_.iou_threshold) return true;
    }
    return false;
  }

  Operand boxes_, scores_, y_;
  NonMaxSuppression op_;
  std::int64_t kept_bytes_ = 0, scratch_ = 0;
};

std::optional<std::string> refuses_suppression(const Step& step) {
  for (const Operand& input : step.inputs) {
    const DType dtype = is_f64(step) ? DType::f64 : DType::f32;
    if (auto why = needs_dtype(input, dtype, "an input")) return why;
    if (auto why = needs_dense(input, "an input")) return why;
  }
  if (step.inputs[0].shape[1] > std::numeric_limits<std::int32_t>::max()) return "2^31 boxes";
  return std::nullopt;
}

}  // namespace

extern const Kernel non_max_suppression_kernel;
constinit const Kernel non_max_suppression_kernel{op_def<NonMaxSuppression>, refuses_suppression,
                                                  make_real_task<SuppressionTask>};

}  // namespace tenon::cpu
