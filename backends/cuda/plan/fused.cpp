// Element-wise steps as one kernel, whose text is generated. Sizes, strides and parameters are its
// arguments, so that few texts serve many shapes.
#include "lower/point_groups.hpp"
#include "plan/planners.hpp"
#include "plan/points.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tenon::cuda {
namespace {

using lowering::PointGroup;

class FusedKernel {
 public:
  explicit FusedKernel(const Step& step) : step_(step), group_(*step.op.as<FusedPoints>()->group) {
    find_arrays();
    lay_out();
    write_text();
  }

  void launch(Emitter& out) const {
    out.launch_generated(text_, grid_of(axes_.axes.count), words_, patches_);
  }

 private:
  /// What is read, each once, then what is stored.
  void find_arrays() {
    for (const Operand& input : step_.inputs) {
      const auto found = std::ranges::find(arrays_, input);
      array_of_input_.push_back(static_cast<std::size_t>(found - arrays_.begin()));
      if (found == arrays_.end()) arrays_.push_back(input);
    }
    inputs_ = arrays_.size();
    for (const PointGroup::Member& member : group_.members) {
      if (member.is_stored) arrays_.push_back(member.output);
    }
  }

  /// The arguments: how many elements, sizes of the axes but the first, where arrays begin, and the
  /// steps of those whose elements lie alike.
  void lay_out() {
    std::vector<Strides> strides;
    for (const Operand& array : arrays_) {
      strides.push_back(broadcast_strides(array, step_.output.shape));
    }
    axes_ = merged(step_.output.shape.dims(), strides);
    add_word(axes_.axes.count);
    for (int axis = 1; axis < axes_.axes.rank; ++axis) add_word(axes_.axes.sizes[axis]);
    first_address_ = words_.size();
    for (const Operand& array : arrays_) {
      patches_.push_back({words_.size() * sizeof(std::uint64_t), source_of(array)});
      add_word(0);
    }
    for (const Steps& steps : axes_.steps) {
      const auto found = std::ranges::find_if(layouts_, [&](const Layout& layout) {
        return std::ranges::equal(layout.steps.bytes, steps.bytes);
      });
      layout_of_array_.push_back(static_cast<std::size_t>(found - layouts_.begin()));
      if (found != layouts_.end()) continue;
      layouts_.push_back({steps, words_.size()});
      for (int axis = 0; axis < axes_.axes.rank; ++axis) {
        add_word(static_cast<std::uint64_t>(steps.bytes[axis]));
      }
    }
  }

  void write_text() {
    std::string body;
    write_indices(body);
    write_loads(body);
    for (std::size_t i = 0; i < group_.members.size(); ++i) write_member(i, body);
    write_stores(body);
    text_ = fmt::format(
        "#include \"kernels/fused.hpp\"\n\n"
        "namespace tenon::cuda {{\n\n"
        "TENON_FUSED_KERNEL({}) {{\n"
        "  const auto count = static_cast<std::uint32_t>(args.words[0]);\n"
        "  for (std::uint32_t i = first_of(thread); i < count; i += stride_of(thread)) {{\n"
        "{}"
        "  }}\n"
        "}}\n\n"
        "}}  // namespace tenon::cuda\n",
        words_.size(), body);
  }

  void write_indices(std::string& body) const {
    body += "    std::uint32_t rest = i;\n";
    for (int axis = axes_.axes.rank - 1; axis > 0; --axis) {
      const std::string size = fmt::format("static_cast<std::uint32_t>(args.words[{}])", axis);
      body += fmt::format("    const std::uint64_t i{} = rest % {};\n    rest /= {};\n", axis, size,
                          size);
    }
    body += "    const std::uint64_t i0 = rest;\n";
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      std::string sum = "i0 * 0";
      for (int axis = 0; axis < axes_.axes.rank; ++axis) {
        const auto word = layouts_[i].first_word + static_cast<std::size_t>(axis);
        sum = fmt::format("{}i{} * args.words[{}]", axis == 0 ? "" : sum + " + ", axis, word);
      }
      body += fmt::format("    const std::uint64_t at{} = {};\n", i, sum);
    }
  }

  void write_loads(std::string& body) const {
    for (std::size_t i = 0; i < inputs_; ++i) {
      body += fmt::format("    const auto x{} = load_element<{}>({});\n", i,
                          type(arrays_[i].shape.dtype()), address(i));
    }
  }

  void write_stores(std::string& body) const {
    std::size_t array = inputs_;
    for (std::size_t i = 0; i < group_.members.size(); ++i) {
      if (!group_.members[i].is_stored) continue;
      body += fmt::format("    store_element({}, v{});\n", address(array++), i);
    }
  }

  void write_member(std::size_t index, std::string& body) {
    const Step step = group_.step_of(index, step_.inputs);
    PointOp op;
    find_point(step, op);
    std::vector<std::string> operands;
    for (const PointGroup::Source& source : group_.members[index].sources) {
      operands.push_back(source.is_member ? fmt::format("v{}", source.index)
                                          : fmt::format("x{}", array_of_input_[source.index]));
    }
    body += fmt::format("    const auto v{} = {};\n", index,
                        expression(op, operands, type(step.output.shape.dtype())));
  }

  std::string expression(const PointOp& op, const std::vector<std::string>& operands,
                         const std::string& to) {
    switch (op.kernel) {
      case Kernel::choose:
        return fmt::format("{}.bits != 0 ? {} : {}", operands[0], operands[1], operands[2]);
      case Kernel::cast:
        return fmt::format("cast_element<{}>({}, {})", to, operands[0], integers_of(op));
      case Kernel::unary_real:
        return call(to, "unary_real<UnaryReal", op, operands, reals_of(op));
      case Kernel::unary_integer:
        return call(to, "unary_integer<UnaryInteger", op, operands, integers_of(op));
      case Kernel::predicate:
        return call(to, "predicate_real<Predicate", op, operands);
      case Kernel::binary_real:
        return call(to, "binary_real<BinaryReal", op, operands);
      case Kernel::binary_integer:
        return call(to, "binary_integer<BinaryInteger", op, operands);
      default:
        return call(to, "compare_values<Comparison", op, operands);
    }
  }

  static std::string call(const std::string& to, std::string_view function, const PointOp& op,
                          const std::vector<std::string>& operands,
                          const std::string& parameters = {}) {
    std::string values;
    for (const std::string& operand : operands) {
      values += fmt::format("{}value_of({})", values.empty() ? "" : ", ", operand);
    }
    if (!parameters.empty()) values += ", " + parameters;
    return fmt::format("element_of<{}>({}::{}>({}))", to, function, op.id, values);
  }

  std::string reals_of(const PointOp& op) {
    if (!op.has_parameters) return "0, 0";
    std::string text;
    for (const float value : op.reals) {
      text += fmt::format("{}real_of(args.words[{}])", text.empty() ? "" : ", ", words_.size());
      add_word(std::bit_cast<std::uint32_t>(value));
    }
    return text;
  }
  std::string integers_of(const PointOp& op) {
    if (!op.has_parameters) return "0, 0";
    std::string text;
    for (const std::int64_t value : op.integers) {
      text += fmt::format("{}signed_of(args.words[{}])", text.empty() ? "" : ", ", words_.size());
      add_word(static_cast<std::uint64_t>(value));
    }
    return text;
  }

  std::string address(std::size_t array) const {
    return fmt::format("args.words[{}] + at{}", first_address_ + array, layout_of_array_[array]);
  }
  static std::string type(DType dtype) {
    return dtype == DType::boolean ? "DType::boolean" : fmt::format("DType::{}", name(dtype));
  }
  void add_word(std::uint64_t word) { words_.push_back(word); }

  struct Layout {
    Steps steps;
    std::size_t first_word;
  };

  const Step& step_;
  const PointGroup& group_;
  std::vector<Operand> arrays_;
  std::vector<std::size_t> array_of_input_, layout_of_array_;
  std::size_t inputs_ = 0;  ///< of the arrays
  MergedAxes axes_;
  std::vector<Layout> layouts_;
  std::vector<std::uint64_t> words_;
  std::size_t first_address_ = 0;
  std::vector<Patch> patches_;
  std::string text_;
};

}  // namespace

Refusal plan_fused(const Step& step, Emitter* out) {
  if (out != nullptr) FusedKernel(step).launch(*out);
  return std::nullopt;
}

}  // namespace tenon::cuda
