// The gradient of every op, over the committed op cases: against finite differences in f64, and on
// the CPU backend against the reference.
#include "support/op_cases.hpp"
#include "support/op_testing.hpp"
#include "support/small_graph.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/grad.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

bool has_reals(const HostBuffer& array) { return is_floating(array.shape().dtype()); }

/// The case with its floating operands in `dtype`, but for those that the op wants in their own
/// type, such as attention's mask.
OpCase widened(const OpCase& op_case, DType dtype) {
  OpCase result = op_case;
  std::vector<std::size_t> reals;
  for (std::size_t i = 0; i < result.inputs.size(); ++i) {
    if (has_reals(result.inputs[i])) reals.push_back(i);
  }
  for (const std::size_t i : reals) result.inputs[i] = result.inputs[i].to(dtype);
  const auto is_taken = [&] {
    std::vector<Shape> types;
    for (const HostBuffer& input : result.inputs) types.push_back(input.shape());
    try {
      result.op.def()->infer(result.op.attributes(), types);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  for (; !reals.empty() && !is_taken(); reals.pop_back()) {
    result.inputs[reals.back()] = op_case.inputs[reals.back()];
  }
  return result;
}

/// A little beside the values of the case, so that none lies on a corner such as relu's, and ties
/// are broken; infinities and NaN become ordinary numbers.
OpCase beside_corners(const OpCase& op_case, Random& random) {
  OpCase result = widened(op_case, f64);
  for (HostBuffer& input : result.inputs) {
    if (input.shape().dtype() != f64) continue;
    const std::vector<double> old = elements(input);
    input = random.uniform(input.shape(), 0.011, 0.049);
    const auto values = input.mutable_values<double>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] += std::isfinite(old[i]) && std::fabs(old[i]) < 1e3 ? old[i] : 0.3;
    }
  }
  return result;
}

/// The same with values of a domain: most functions are defined within (0, 1), acosh above.
OpCase with_values(const OpCase& op_case, Random& random, double low, double high) {
  OpCase result = widened(op_case, f64);
  for (HostBuffer& input : result.inputs) {
    if (input.shape().dtype() == f64) input = random.uniform(input.shape(), low, high);
  }
  return result;
}
OpCase within_one(const OpCase& op_case, Random& random) {
  return with_values(op_case, random, 0.15, 0.85);
}
OpCase above_one(const OpCase& op_case, Random& random) {
  return with_values(op_case, random, 1.15, 1.85);
}

/// With pages in place of the entries of no page, which attention does not read; its gradient does.
OpCase with_every_page(OpCase op_case) {
  if (op_case.op.def() != &op_def<Attention>()) return op_case;
  const auto& attention = *static_cast<const Attention*>(op_case.op.attributes());
  if (!attention.has_table) return op_case;
  HostBuffer& table = op_case.inputs[attention.table_index()];
  const auto pages = static_cast<std::int32_t>(op_case.inputs[1].shape()[0]);
  std::vector<std::int32_t> entries;
  for (const double page : elements(table)) {
    entries.push_back(std::clamp(static_cast<std::int32_t>(page), 0, std::max(pages - 1, 0)));
  }
  table = HostBuffer::of<std::int32_t>(table.shape(), entries);
  return op_case;
}

/// The operands that are differentiated: those of the output's type, in f64.
std::vector<std::size_t> parameters_of(const OpCase& op_case) {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < op_case.inputs.size(); ++i) {
    if (op_case.inputs[i].shape().dtype() == f64) result.push_back(i);
  }
  return result;
}

/// How a case's arrays are declared: by their own shapes, or with some sizes as symbols.
using Declared = std::function<Shape(const Shape&)>;

/// The program that computes the gradients of the case's parameters, in order; its last input is
/// the gradient of the output.
Program gradient_program(const OpCase& op_case, std::span<const std::size_t> parameters,
                         const Declared& declared = std::identity()) {
  Graph graph(4 * small_graph_bytes);
  const Graph::Recording recording(graph);
  std::vector<Tensor> operands, differentiated;
  for (std::size_t i = 0; i < op_case.inputs.size(); ++i) {
    operands.push_back(graph.input("v" + std::to_string(i), declared(op_case.inputs[i].shape())));
  }
  for (const std::size_t i : parameters) differentiated.push_back(operands[i]);
  const Tensor result =
      record(*op_case.op.def(), op_case.op.attributes(), operands, std::source_location::current());
  const Tensor upstream = graph.input("upstream", result.shape().without_tags());
  return graph.program(grad({&result, 1}, {&upstream, 1}, differentiated));
}

std::vector<HostBuffer> gradients(const OpCase& op_case, std::span<const std::size_t> parameters,
                                  const HostBuffer& upstream,
                                  const std::vector<BackendPtr>& backends,
                                  const Declared& declared = std::identity()) {
  Session session(gradient_program(op_case, parameters, declared), {.backends = backends});
  std::vector<Buffer> inputs;
  for (const HostBuffer& input : op_case.inputs) {
    inputs.push_back(input.contiguous().to_device(cpu_device()));
  }
  inputs.push_back(upstream.to_device(cpu_device()));
  std::vector<HostBuffer> result;
  for (const Buffer& output : session.forward(std::move(inputs))) {
    result.push_back(output.to_host());
  }
  return result;
}

/// The change of sum(upstream * y) when operand `i` moves along `direction`.
double slope(OpCase op_case, std::size_t i, const HostBuffer& direction, const HostBuffer& upstream,
             double step) {
  const HostBuffer at = op_case.inputs[i];
  op_case.inputs[i] = moved(at, direction, step);
  const double above = dot(upstream, run_reference(op_case.op, op_case.inputs));
  op_case.inputs[i] = moved(at, direction, -step);
  return (above - dot(upstream, run_reference(op_case.op, op_case.inputs))) / (2 * step);
}

bool is_finite(const HostBuffer& array) {
  return std::ranges::all_of(elements(array), [](double x) { return std::isfinite(x); });
}

/// The gradients of a case's parameters, and the values at which they were taken.
struct Differentiated {
  OpCase at;
  std::vector<std::size_t> parameters;
  HostBuffer upstream;
  std::vector<HostBuffer> gradients;
};

const std::vector<BackendPtr>& reference_backends() {
  static const std::vector<BackendPtr> backends = [] {
    register_reference_backend();
    return std::vector<BackendPtr>{make_backend("reference")};
  }();
  return backends;
}

/// By the reference, in f64, beside the case's own values, or, where a result there is not finite,
/// at others. None for a case without a gradient: of an op that has none or is constant almost
/// everywhere, and of a result that is not f64 (a mask, a cast to f32).
std::optional<Differentiated> differentiate(const OpCase& op_case, Random& random) {
  if (op_case.op.def()->gradient == nullptr || std::ranges::none_of(op_case.inputs, has_reals)) {
    return std::nullopt;
  }
  // Jumps of remainders are everywhere when the divisor is small, and slopes grow without bound
  // towards the edge of a domain.
  static const std::set<std::string_view> only_inside{"acos",   "acosh", "asin",     "atanh",
                                                      "erfinv", "fmod",  "remainder"};
  const bool inside = only_inside.contains(op_case.op.def()->name);
  for (const auto& make : {beside_corners, within_one, above_one}) {
    if (inside && make == beside_corners) continue;
    Differentiated result{with_every_page(make(op_case, random)), {}, {}, {}};
    result.parameters = parameters_of(result.at);
    result.at.output = run_reference(result.at.op, result.at.inputs);
    if (result.at.output.shape().dtype() != f64) return std::nullopt;
    if (!is_finite(result.at.output)) continue;
    result.upstream = random.uniform(result.at.output.shape());
    try {
      result.gradients =
          gradients(result.at, result.parameters, result.upstream, reference_backends());
    } catch (const Error& error) {
      const bool has_none = error.message().find("has no gradient") != std::string::npos;  // a form
      if (!has_none && error.message().find("the loss does not depend on") == std::string::npos) {
        throw;
      }
      return std::nullopt;
    }
    if (std::ranges::all_of(result.gradients, is_finite)) return result;
  }
  FAIL_CHECK("no finite gradient: " << op_case.name << ": " << to_string(op_case.op));
  return std::nullopt;
}

TEST_CASE("grad: every op agrees with finite differences, and on the CPU with the reference") {
  register_cpu_backend();
  Random random;
  const std::vector<BackendPtr> cpu{make_backend("cpu", {.threads = 2, .exact = true}),
                                    reference_backends().front()};
  std::set<std::string, std::less<>> checked;
  for (const auto& file : committed_op_cases()) {
    for (const OpCase& op_case : read_op_cases(file)) {
      const std::optional<Differentiated> made = differentiate(op_case, random);
      if (!made) continue;
      INFO(op_case.name << ": " << to_string(op_case.op));
      checked.insert(std::string(op_case.op.def()->name));
      for (std::size_t next = 0; next < made->parameters.size(); ++next) {
        const std::size_t i = made->parameters[next];
        INFO("operand " << i);
        // A jump or corner within the step shows as slopes that differ.
        HostBuffer direction;
        double want = 0, nearer = 1e9;
        for (int tries = 0; tries < 20 && want != Approx(nearer).epsilon(1e-3).margin(1e-5);
             ++tries) {
          direction = random.uniform(made->at.inputs[i].shape());
          want = slope(made->at, i, direction, made->upstream, 1e-6);
          nearer = slope(made->at, i, direction, made->upstream, 3e-7);
        }
        CHECK(dot(made->gradients[next], direction) == Approx(want).epsilon(1e-5).margin(1e-6));
      }

      OpCase narrow = widened(made->at, f32);
      narrow.output = run_reference(narrow.op, narrow.inputs);
      if (narrow.output.shape().dtype() != f32) continue;  // a cast to f64
      const HostBuffer upstream = made->upstream.to(f32);
      const std::vector<HostBuffer> want =
          gradients(narrow, made->parameters, upstream, reference_backends());
      const std::vector<HostBuffer> got = gradients(narrow, made->parameters, upstream, cpu);
      for (std::size_t i = 0; i < want.size(); ++i) {
        double largest = 1;
        for (const double value : elements(want[i])) largest = std::max(largest, std::fabs(value));
        expect_close(got[i], want[i], 2e-4 * largest, 2e-4);
      }
    }
  }
  CHECK(checked.size() >= 80);
}

/// Sizes other than 1, which may be there to broadcast, as symbols, one for each size; or only those
/// of one size.
Declared with_symbols(std::optional<std::int64_t> only) {
  return [only](const Shape& shape) {
    Shape result = shape;
    const int last = is_block(shape.dtype()) ? shape.rank() - 1 : shape.rank();
    for (int axis = 0; axis < last; ++axis) {
      if (shape[axis] == 1 || (only && shape[axis] != *only)) continue;
      result = result.with_dim(axis, symbol(Name(fmt::format("N{}", shape[axis]))));
    }
    return result;
  };
}

/// Every size of a case's inputs, and all of them.
std::set<std::optional<std::int64_t>> choices_of_sizes(const OpCase& op_case) {
  std::set<std::optional<std::int64_t>> result{std::nullopt};
  for (const HostBuffer& input : op_case.inputs) {
    for (const std::int64_t size : input.shape().dims()) result.insert(size);
  }
  return result;
}

bool takes(const OpCase& op_case, const Declared& declared) {
  std::vector<Shape> types;
  for (const HostBuffer& input : op_case.inputs) types.push_back(declared(input.shape()));
  try {
    op_case.op.def()->infer(op_case.op.attributes(), types);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Ops whose gradients need some of the sizes: those of filters, and of resize_backward's operand.
constexpr std::string_view of_known_sizes = " conv2d conv_transpose2d resize_backward ";

TEST_CASE("grad: with symbolic sizes as with the sizes themselves, or refused at the op's line") {
  Random random;
  std::set<std::string, std::less<>> checked, refused;
  for (const auto& file : committed_op_cases()) {
    for (const OpCase& op_case : read_op_cases(file)) {
      const std::optional<Differentiated> made = differentiate(op_case, random);
      if (!made) continue;
      const std::string name(op_case.op.def()->name);
      for (const std::optional<std::int64_t> size : choices_of_sizes(made->at)) {
        const Declared declared = with_symbols(size);
        if (!takes(made->at, declared)) continue;  // the op itself needs the sizes
        INFO(op_case.name << ": " << to_string(op_case.op) << ", open: " << size.value_or(-1));
        try {
          const std::vector<HostBuffer> got =
              gradients(made->at, made->parameters, made->upstream, reference_backends(), declared);
          for (std::size_t i = 0; i < got.size(); ++i) {
            expect_close(got[i], made->gradients[i], 1e-9, 1e-9);
          }
          checked.insert(name);
        } catch (const Error& error) {
          INFO(error.what());
          const std::string_view text = error.what();
          CHECK(error.code() == Errc::unsupported);
          CHECK(text.find(fmt::format("{}: its gradient needs sizes", name)) != text.npos);
          CHECK(text.find("every_op_test.cpp") != text.npos);
          CHECK(of_known_sizes.find(fmt::format(" {} ", name)) != of_known_sizes.npos);
          refused.insert(name);
        }
      }
    }
  }
  CHECK(checked.size() >= 80);
}

/// The program of s, the sum over the parameters of weights[i] . their gradients, and of the gradients of s: its
/// inputs are those of gradient_program(), then the weights.
Program second_program(const OpCase& op_case, std::span<const std::size_t> parameters) {
  Graph graph(32 * small_graph_bytes);
  const Graph::Recording recording(graph);
  std::vector<Tensor> operands, differentiated;
  for (std::size_t i = 0; i < op_case.inputs.size(); ++i) {
    operands.push_back(graph.input("v" + std::to_string(i), op_case.inputs[i].shape()));
  }
  for (const std::size_t i : parameters) differentiated.push_back(operands[i]);
  const Tensor result =
      record(*op_case.op.def(), op_case.op.attributes(), operands, std::source_location::current());
  const Tensor upstream = graph.input("upstream", result.shape().without_tags());
  const std::vector<Tensor> first = grad({&result, 1}, {&upstream, 1}, differentiated);
  Tensor s;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const Tensor weights = graph.input("w" + std::to_string(i), first[i].shape().without_tags());
    // The second term is for parameters that s does not depend on, as those of a product of a constant.
    const Tensor part = sum(first[i].with_tags({}) * weights) + sum(differentiated[i] * 0.0);
    s = s.is_empty() ? part : s + part;
  }
  std::vector<Tensor> results{s};
  for (const Tensor& second : grad(s, differentiated)) results.push_back(second);
  return graph.program(results);
}

TEST_CASE("grad: gradients of gradients agree with finite differences of gradients") {
  Random random;
  std::set<std::string, std::less<>> checked;
  for (const auto& file : committed_op_cases()) {
    for (const OpCase& op_case : read_op_cases(file)) {
      const std::optional<Differentiated> made = differentiate(op_case, random);
      if (!made) continue;
      const std::string name(op_case.op.def()->name);
      INFO(op_case.name << ": " << to_string(op_case.op));
      std::vector<HostBuffer> values = made->at.inputs;
      values.push_back(made->upstream);
      for (const HostBuffer& gradient : made->gradients) {
        values.push_back(random.uniform(gradient.shape().without_tags()));
      }
      Session session(second_program(made->at, made->parameters),
                      {.backends = reference_backends()});
      checked.insert(name);
      const auto run = [&](std::size_t i, const HostBuffer& value) {
        std::vector<Buffer> inputs;
        for (std::size_t j = 0; j < values.size(); ++j) {
          inputs.push_back((j == i ? value : values[j]).contiguous().to_device(cpu_device()));
        }
        std::vector<HostBuffer> results;
        for (const Buffer& result : session.forward(std::move(inputs))) {
          results.push_back(result.to_host());
        }
        return results;
      };
      const std::vector<HostBuffer> got = run(0, values[0]);
      if (!std::ranges::all_of(got, is_finite)) {
        CHECK(name == "digamma");  // its second derivative at x < 0 is NaN, see polygamma
        continue;
      }
      for (std::size_t next = 0; next < made->parameters.size(); ++next) {
        const std::size_t i = made->parameters[next];
        INFO("operand " << i);
        HostBuffer direction;
        const auto slope_of = [&](double step) {
          const double above = elements(run(i, moved(values[i], direction, step))[0])[0];
          return (above - elements(run(i, moved(values[i], direction, -step))[0])[0]) / (2 * step);
        };
        double want = 0, nearer = 1e9;
        for (int tries = 0; tries < 20 && want != Approx(nearer).epsilon(1e-3).margin(1e-5);
             ++tries) {
          direction = random.uniform(values[i].shape());
          want = slope_of(1e-6);
          nearer = slope_of(3e-7);
        }
        CHECK(dot(got[next + 1], direction) == Approx(want).epsilon(1e-4).margin(1e-5));
      }
    }
  }
  CHECK(checked.size() >= 75);
}

/// Ops without a gradient, by why: results that are no reals, quantised values, state.
constexpr std::string_view without_gradient =
    " argmax argmin topk argsort searchsorted eq ne lt le gt ge is_nan is_inf is_finite "
    "logical_not logical_and logical_or logical_xor quantize dequantize quantize_linear "
    "dequantize_linear matmul_integer "
    "conv2d_integer cache_update full iota bitwise_not "
    "bitwise_and bitwise_or "
    "bitwise_xor shift_left shift_right random_bits non_max_suppression ";

TEST_CASE("grad: an op has a gradient or is named here") {
  for (const OpDef* def : all_ops()) {
    INFO(def->name);
    const std::string word = fmt::format(" {} ", def->name);
    CHECK((def->gradient == nullptr) == (without_gradient.find(word) != std::string_view::npos));
  }
}

}  // namespace
}  // namespace tenon::testing
