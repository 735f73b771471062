#include "arrays.hpp"
#include "backend_trial.hpp"
#include "watched_backend.hpp"

#include <tenon/error.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/program.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <source_location>
#include <span>

#include <fmt/ranges.h>

namespace tenon::testkit {
namespace {

using Sizes = std::vector<std::int64_t>;
using Engine = std::mt19937_64;

// Operands that some op takes. An op is offered whatever its infer() accepts.
std::vector<std::vector<Sizes>> operand_sizes() {
  return {{{3, 4}},
          {{5}},
          {{}},
          {{2, 3, 8}},
          {{2, 4, 6, 6}},
          {{4, 4}},
          {{1, 4, 2, 5, 4}},
          {{1, 33}},
          {{2, 16}},  // 128 bytes: nothing of a cache line is left behind it
          // Two: alike, broadcast, products, filters, indices.
          {{3, 4}, {3, 4}},
          {{2, 3, 4}, {2, 3, 4}},
          {{5}, {5}},
          {{3, 4}, {4}},
          {{4}, {3, 4}},
          {{3, 1}, {1, 4}},
          {{2, 3, 4}, {}},
          {{}, {3, 4}},
          {{3, 4}, {4, 5}},
          {{2, 3, 4}, {2, 4, 5}},
          {{2, 3, 4}, {4, 5}},
          {{3, 4}, {5, 4}},
          {{2, 3, 4}, {5, 4}},
          // Two: sums that end within a vector and within a tile.
          {{3, 33}, {33, 5}},
          {{3, 33}, {5, 33}},
          {{17, 70}, {70, 19}},
          {{17, 70}, {19, 70}},
          {{1, 1030}, {1030, 3}},
          {{1, 1030}, {3, 1030}},
          {{3, 33}, {33}},
          {{4}, {4}},
          {{2, 3, 6, 6}, {4, 3, 3, 3}},
          {{1, 4, 5, 5}, {4, 1, 3, 3}},
          {{2, 3, 4, 4}, {3, 2, 3, 3}},
          {{5, 4}, {3}},
          {{3}, {5, 4}},
          {{3, 4}, {3, 2}},
          {{1, 3, 2, 8}, {3}},
          {{4, 4}, {4, 2}},
          {{6, 4}, {}},
          {{1, 6, 4}, {1, 2, 6}},
          {{1, 2, 5, 5}, {1, 3, 4, 2}},
          // Three: with a bias, attention, selections, norms.
          {{3, 4}, {3, 4}, {3, 4}},
          {{3, 1}, {4}, {3, 4}},
          {{3, 4}, {5, 4}, {5}},
          {{2, 3, 4}, {5, 4}, {5}},
          {{2, 3, 6, 6}, {4, 3, 3, 3}, {4}},
          {{2, 3, 4, 4}, {3, 2, 3, 3}, {2}},
          {{3, 4}, {4}, {4}},
          {{2, 4, 5}, {4}, {4}},
          {{1, 3, 2, 8}, {1, 5, 2, 8}, {1, 5, 2, 8}},
          {{1, 2, 4, 8}, {1, 6, 2, 8}, {1, 6, 2, 8}},
          {{2, 1, 4, 20}, {2, 70, 2, 20}, {2, 70, 2, 12}},
          {{2, 3, 2, 8}, {2, 5, 2, 8}, {2, 5, 2, 4}},
          {{3, 33}, {5, 33}, {5}},
          {{5, 4}, {3, 4}, {3, 4}},
          {{5, 4}, {}, {4}},
          // More.
          {{3, 4}, {5, 4}, {5}, {3, 5}},
          {{1, 3, 2, 8}, {1, 5, 2, 8}, {1, 5, 2, 8}, {3, 5}},
          {{2, 3, 6, 6}, {4, 3, 3, 3}, {4}, {2, 4, 4, 4}},
          {{2, 3, 4, 4}, {3}, {3}},
          {{2, 3, 4, 4}, {3}, {3}, {3}, {3}}};
}

/// Operands whose types differ.
std::vector<std::vector<Shape>> typed_operands() {
  return {{Shape({2, 1, 2, 8, 4}, f32), Shape({}, i64), Shape({1, 3, 2, 4}, f32), Shape({}, i32)},
          {Shape({3, 2, 4}, f32), Shape({3, 5, 4}, f32), Shape({3, 2}, i32)},
          {Shape({1, 3, 2, 8}, f32), Shape({3}, i32)},
          {Shape({3}, i32), Shape({5, 4}, f32)},
          {Shape({5, 4}, f32), Shape({3}, i32)},
          {Shape({3, 4}, f32), Shape({3, 2}, i32)},
          {Shape({6, 4}, f32), Shape({}, i64)},
          {Shape({5, 4}, f32), Shape({}, i64), Shape({4}, f32)},
          {Shape({5, 4}, f32), Shape({3, 4}, i32), Shape({3, 4}, f32)},
          {Shape({3, 4}, boolean), Shape({3, 4}, f32), Shape({3, 4}, f32)}};
}

/// Other values that an attribute may have.
std::vector<AttributeValue> other_values(const AttributeValue& value) {
  if (std::holds_alternative<std::int64_t>(value))
    return {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}};
  if (std::holds_alternative<double>(value)) return {0.5};
  if (std::holds_alternative<DType>(value)) return {f32, f16, i32};
  if (std::holds_alternative<Name>(value)) {
    return {Name("silu"), Name("relu"), Name("linear"), Name("nearest"), Name("zeros")};
  }
  if (std::holds_alternative<IntList>(value)) {
    return {IntList{0}, IntList{1}, IntList{2, 2}, IntList{1, 1, 1, 1}, IntList{3, 4}};
  }
  return {};
}

/// An op with its defaults, with every choice of flags, and with these and one other attribute.
std::vector<OpInstance> variants(const OpDef& def) {
  std::vector<OpInstance> all{OpInstance(def)};
  const auto add = [&](OpInstance op, const AttributeField& field, const AttributeValue& value) {
    if (field.set(op.attributes(), value)) all.push_back(std::move(op));
  };
  for (const AttributeField& field : def.fields) {
    const AttributeValue value = field.get(all[0].attributes());
    if (!std::holds_alternative<bool>(value)) continue;
    for (std::size_t i = 0, known = all.size(); i < known; ++i) {
      add(all[i], field, !std::get<bool>(value));
    }
  }
  const std::size_t flags = all.size();
  for (const AttributeField& field : def.fields) {
    for (const AttributeValue& value : other_values(field.get(all[0].attributes()))) {
      for (std::size_t i = 0; i < flags; ++i) add(all[i], field, value);
    }
  }
  return all;
}

/// One op on operands of known types.
struct Call {
  OpInstance op;
  std::vector<Shape> operands;
  Shape result;

  std::string text() const {
    std::vector<std::string> types;
    for (const Shape& shape : operands) types.push_back(to_string(shape));
    return fmt::format("{} of {}", to_string(op), fmt::join(types, ", "));
  }
};

template <class List>
auto& one_of(List&& list, Engine& engine) {
  return list[engine() % std::size(list)];
}

/// What is offered of an op: calls that infer() accepts, the usual ones (defaults, f32) first, then others by
/// chance.
class Calls {
 public:
  Calls(const OpDef& def, Engine& engine) : engine_(engine), ops_(variants(def)) {
    const auto fits = [&](std::size_t count) {
      return static_cast<int>(count) >= def.min_inputs && static_cast<int>(count) <= def.max_inputs;
    };
    for (const std::vector<Sizes>& sizes : operand_sizes()) {
      if (fits(sizes.size())) operands_.push_back(shapes_of(sizes, f32));
    }
    for (std::vector<Shape>& operands : typed_operands()) {
      if (fits(operands.size())) operands_.push_back(std::move(operands));
    }
  }

  std::optional<Call> next() {
    while (usual_ < operands_.size()) {
      if (auto call = made(ops_[0], operands_[usual_++])) return call;
    }
    for (int tries = operands_.empty() ? 0 : 400; tries > 0; --tries) {
      if (auto call = drawn()) return call;
      if (tries == 300) is_choosy_ = true;  // infer() accepts few
    }
    return std::nullopt;
  }
  /// Whether the backend took a call: where it refuses some, half of those that follow are like one that it
  /// took, with other attributes.
  void note(const Call& call, bool is_taken) {
    if (is_taken) {
      taken_.push_back(call.operands);
    } else {
      is_choosy_ = true;
    }
  }

 private:
  std::optional<Call> drawn() {
    if (is_choosy_ && !taken_.empty() && engine_() % 2 == 0) {
      return made(one_of(ops_, engine_), one_of(taken_, engine_));
    }
    std::vector<Shape> operands = one_of(operands_, engine_);
    const bool is_typed =
        std::ranges::any_of(operands, [](const Shape& shape) { return shape.dtype() != f32; });
    if (!is_typed) {
      constexpr DType dtypes[] = {f32, f32, f16, bf16, f64, i32, i64, i8, u8, boolean};
      const DType dtype = one_of(dtypes, engine_);
      for (Shape& shape : operands) shape = shape.with_dtype(dtype);
      Shape& other = one_of(operands, engine_);  // an index, a mask
      constexpr DType others[] = {i32, i64, boolean};
      if (engine_() % 2 == 0) other = other.with_dtype(one_of(others, engine_));
    }
    return made(one_of(ops_, engine_), std::move(operands));
  }
  static std::vector<Shape> shapes_of(const std::vector<Sizes>& all, DType dtype) {
    std::vector<Shape> shapes;
    for (const Sizes& sizes : all) shapes.emplace_back(std::span<const std::int64_t>(sizes), dtype);
    return shapes;
  }
  /// Nothing where there is no such call.
  static std::optional<Call> made(const OpInstance& op, std::vector<Shape> operands) {
    Shape result;
    try {
      result = op.def()->infer(op.attributes(), operands);
    } catch (const Error&) {
      return std::nullopt;
    }
    const DTypeKind kind = facts(result.dtype()).kind;
    if (kind == DTypeKind::block || kind == DTypeKind::stored || kind == DTypeKind::object)
      return std::nullopt;
    if (!result.is_static() || result.elements() > 1 << 16) return std::nullopt;
    return Call{op, std::move(operands), result};
  }

  Engine& engine_;
  std::vector<OpInstance> ops_;
  std::vector<std::vector<Shape>> operands_;  // in f32, or with the types that they need
  std::size_t usual_ = 0;
  std::vector<std::vector<Shape>> taken_;
  bool is_choosy_ = false;
};

/// How an op's operands lie.
enum class Way {
  dense,
  permuted,
  sliced,
  constants,
  sliced_constants,
  same,
  again,
  large,
  special
};

std::string_view words(Way way) {
  switch (way) {
    case Way::dense:
      return "dense inputs";
    case Way::permuted:
      return "strided inputs";
    case Way::sliced:
      return "parts of larger inputs";
    case Way::constants:
      return "constants";
    case Way::sliced_constants:
      return "the first an input, the others parts of larger constants";
    case Way::same:
      return "one array as every operand";
    case Way::again:
      return "inputs that are used again later";
    case Way::large:
      return "numbers up to 200";
    case Way::special:
      return "NaN, infinities and -0";
  }
  return "";
}

class CallCheck {
 public:
  CallCheck(BackendTrial& trial, const Call& call, Engine& engine)
      : trial_(trial),
        call_(call),
        engine_(engine),
        watched_(std::make_shared<const WatchedBackend>(trial.backend(), Watch::results)) {
    for (const Shape& shape : call.operands) {
      const bool whole = !is_floating(shape.dtype());
      const BackendCheckOptions& options = trial.options();
      arrays_.push_back(
          random_array(shape, engine, whole ? 0 : options.low, whole ? 2 : options.high));
    }
    if (call.op.def()->name == "searchsorted") sort_rows(arrays_[0]);
  }

  /// Whether the backend takes the call as it is.
  bool run() {
    std::optional<HostBuffer> want = reference(arrays_);
    if (!want || !run(Way::dense, arrays_, *want)) return false;
    for (const Way way :
         {Way::permuted, Way::sliced, Way::constants, Way::sliced_constants, Way::again}) {
      run(way, arrays_, *want);
    }
    const bool alike =
        arrays_.size() > 1 && std::ranges::all_of(call_.operands, [&](const Shape& shape) {
          return shape == call_.operands[0];
        });
    if (!alike) return true;
    const std::vector<HostBuffer> same(arrays_.size(), arrays_[0]);
    if ((want = reference(same))) run(Way::same, same, *want);
    return true;
  }

  /// With numbers that are rare. False where it has no operand for them.
  bool run_special() {
    const auto takes = [](const Shape& shape) {
      return shape.dtype() == f32 && shape.elements() > 4;
    };
    if (!std::ranges::all_of(call_.operands, takes) || call_.result.dtype() != f32) return false;
    if (call_.op.def()->name == "searchsorted") return false;  // its rows are sorted
    for (const Way way : {Way::large, Way::special}) {
      std::vector<HostBuffer> arrays;
      for (const Shape& shape : call_.operands) {
        arrays.push_back(random_array(shape, engine_, -200, 200));
        if (way == Way::special) add_special_values(arrays.back());
      }
      if (const auto want = reference(arrays)) run(way, arrays, *want);
    }
    return true;
  }

  const std::string& why_not() const noexcept { return why_not_; }

 private:
  void add_special_values(HostBuffer& array) const {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr float values[] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity,
                                -0.0F};
    const std::size_t first = engine_() % 12;
    const std::span<float> elements = array.mutable_values<float>();
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const std::size_t at = first + i;  // each of them in twelve elements, anywhere
      elements[i] = at % 3 == 0 ? values[at / 3 % 4] : elements[i] / 100;
    }
  }

  static void sort_rows(const HostBuffer& array) {
    const Shape& shape = array.shape();
    const std::int64_t width = shape.rank() > 0 ? shape[shape.rank() - 1] : 1;
    const std::int64_t size = block_bytes(shape.dtype());
    for (std::int64_t row = 0; row * width < shape.elements(); ++row) {
      std::byte* const begin = array.view().data + row * width * size;
      std::vector<double> elements;
      for (std::int64_t i = 0; i < width; ++i)
        elements.push_back(load_as_double(shape.dtype(), begin + i * size));
      std::ranges::sort(elements);
      for (std::int64_t i = 0; i < width; ++i)
        store_double(shape.dtype(), begin + i * size, elements[static_cast<std::size_t>(i)]);
    }
  }

  bool updates(std::size_t input) const {
    return call_.op.def()->traits.updates_input == static_cast<int>(input);
  }

  /// Nothing where the op refuses the values.
  std::optional<HostBuffer> reference(std::span<const HostBuffer> inputs) const {
    HostBuffer output = HostBuffer::zeros(call_.result);
    std::vector<HostView> views;
    for (const HostBuffer& input : inputs) views.push_back(input.view());
    try {
      call_.op.def()->reference(call_.op.attributes(), views, output.view());
    } catch (const Error&) {
      return std::nullopt;
    }
    return output;
  }

  /// A program of the op, and what it is run with.
  struct Made {
    Program program;
    std::vector<Buffer> inputs;
    std::map<std::string, Buffer> weights;
  };

  Made make(Way way, std::span<const HostBuffer> arrays) const {
    Made made;
    Graph graph(small_graph_bytes);
    const Graph::Recording recording(graph);
    std::vector<Tensor> operands;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (way == Way::same && i > 0) {
        operands.push_back(operands[0]);
        continue;
      }
      HostBuffer stored = copy_of(arrays[i]);
      const int rank = stored.shape().rank();
      std::vector<int> axes;
      if (way == Way::permuted && !updates(i)) {
        for (int axis = rank; axis-- > 0;) axes.push_back(axis);
        stored = stored.permute(axes).contiguous();
      }
      const bool constant =
          (way == Way::constants || (way == Way::sliced_constants && i > 0)) && !updates(i);
      const bool part = (way == Way::sliced || (way == Way::sliced_constants && i > 0)) &&
                        rank > 0 && !updates(i);
      if (part) stored = within_larger(stored);
      const std::string name = fmt::format("x{}", i);
      Tensor x =
          constant ? graph.constant(name, stored.shape()) : graph.input(name, stored.shape());
      if (part) x = slice(x, 0, 2, 2 + arrays[i].shape()[0]);
      if (!axes.empty()) x = permute(x, std::vector<AxisRef>(axes.begin(), axes.end()));
      operands.push_back(x);
      const Buffer buffer = stored.to_device(cpu_device());
      if (constant) {
        made.weights.emplace(name, buffer);
      } else {
        made.inputs.push_back(buffer);
      }
    }
    const auto record_call = [&] {
      return record(*call_.op.def(), call_.op.attributes(), operands,
                    std::source_location::current());
    };
    std::vector<Tensor> outputs{record_call()};
    if (way == Way::again) {
      outputs.push_back(record_call());
      outputs.push_back(operands[0]);
    }
    made.program = graph.program(outputs);
    return made;
  }

  /// Entries 2 and on of a larger array, with ones around.
  static HostBuffer within_larger(const HostBuffer& array) {
    const Shape& shape = array.shape();
    HostBuffer larger = HostBuffer::uninitialized(shape.with_dim(0, shape[0] + 3));
    std::fill_n(larger.view().data, larger.shape().bytes(), std::byte{1});
    copy_elements(array.view(), larger.slice(0, 2, 2 + shape[0]).view());
    return larger;
  }

  bool run(Way way, std::span<const HostBuffer> arrays, const HostBuffer& want) {
    if (way == Way::again && call_.op.def()->traits.updates_input >= 0) return true;
    bool taken = false;
    trial_.guarded(std::string(call_.op.def()->name),
                   fmt::format("{}, {}", call_.text(), words(way)), [&] {
                     const Made made = make(way, arrays);
                     Session session(made.program, trial_.chain_with(watched_));
                     session.bind(std::make_shared<const WeightSet>(made.weights));
                     std::vector<Shape> shapes;
                     for (const Buffer& input : made.inputs) shapes.push_back(input.shape());
                     taken = is_taken(session.report(shapes));
                     if (!taken && way == Way::dense) return;
                     std::vector<HostBuffer> before;
                     for (const Buffer& input : made.inputs)
                       before.push_back(copy_of(input.to_host()));
                     const std::vector<Buffer> first = session.forward(made.inputs),
                                               second = session.forward(made.inputs);
                     compare(way, first[0].to_host(), want);
                     if (const auto fault = watched_->take_fault()) add(way, *fault);
                     if (!same_bytes(first[0].to_host(), second[0].to_host()))
                       add(way, "a second run gives other bytes");
                     for (std::size_t i = 0; i < before.size(); ++i) {
                       if (!same_bytes(before[i], made.inputs[i].to_host()))
                         add(way, fmt::format("it changes input {}", i));
                     }
                     if (way != Way::again) return;
                     compare(way, first[1].to_host(), want);
                     if (!same_bytes(first[2].to_host(), arrays[0]))
                       add(way, "its first input is another later");
                   });
    return taken;
  }

  bool is_taken(const PlanReport& report) {
    for (const PlanReport::Fallback& fallback : report.fallbacks) {
      if (fallback.op != call_.op.def()->name) continue;
      why_not_ = fallback.why;
      return false;
    }
    return std::ranges::any_of(report.parts, [&](const PlanReport::Part& part) {
      return part.backend == trial_.backend()->name();
    });
  }

  void compare(Way way, const HostBuffer& got, const HostBuffer& want) {
    double tolerance = trial_.tolerance(want.shape().dtype());
    // Large products cancel: what is left of them is as exact as they are.
    if (way == Way::large || way == Way::special) tolerance *= 10 * largest(want);
    if (const auto wrong = difference(got, want, tolerance)) add(way, *wrong);
  }
  /// The largest finite magnitude, at least 1.
  static double largest(const HostBuffer& array) {
    double most = 1;
    for (const float value : array.values<float>()) {
      if (std::isfinite(value)) most = std::max(most, std::abs(double{value}));
    }
    return most;
  }
  void add(Way way, const std::string& what) {
    trial_.add(std::string(call_.op.def()->name),
               fmt::format("{}, {}: {}", call_.text(), words(way), what));
  }

  BackendTrial& trial_;
  const Call& call_;
  Engine& engine_;
  std::shared_ptr<const WatchedBackend> watched_;
  std::vector<HostBuffer> arrays_;
  std::string why_not_;
};

}  // namespace

namespace {

/// Offers calls of an op until the backend has taken enough, or refused too many.
void check_backend_op(BackendTrial& trial, const OpDef& def, Engine& engine) {
  const std::string name(def.name);
  const std::int64_t enough = trial.options().trials_per_op;
  std::int64_t offered = 0, taken = 0;
  int special = trial.options().other_special_values.contains(name) ? 0 : 2;
  std::string why_not;
  Calls calls(def, engine);
  while (taken < enough && offered < (taken > 0 ? 5 : 1) * enough) {
    const std::optional<Call> call = calls.next();
    if (!call) break;
    ++offered;
    CallCheck check(trial, *call, engine);
    const bool is_taken = check.run();
    calls.note(*call, is_taken);
    if (is_taken) {
      ++taken;
      if (special > 0 && check.run_special()) --special;
    }
    if (!check.why_not().empty()) why_not = check.why_not();
  }
  if (taken > 0) {
    trial.result.ran.emplace(name, taken);
    if (taken < enough) {
      trial.result.few.emplace(name, fmt::format("{} of {} trials{}{}", taken, offered,
                                                 why_not.empty() ? "" : ": ", why_not));
    }
  } else if (!why_not.empty()) {
    trial.result.left.emplace(name, why_not);
  }
}

}  // namespace

void check_backend_ops(BackendTrial& trial) {
  Engine engine(trial.options().seed);
  for (const OpDef* def : all_ops()) {
    if (def->reference == nullptr || def->traits.view || def->traits.takes_objects) continue;
    check_backend_op(trial, *def, engine);
  }
}

}  // namespace tenon::testkit
