#include "ops/gradient.hpp"
#include "ops/rows.hpp"

#include <tenon/ops/axes.hpp>
#include <tenon/ops/linear.hpp>
#include <tenon/ops/matmul.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/ops/quantize.hpp>

#include <vector>

namespace tenon {

TENON_DEFINE_OP(linear, Linear);

Shape Linear::infer(std::span<const Shape> in) const {
  const std::size_t expected = 2 + std::size_t{has_bias} + std::size_t{has_residual};
  if (in.size() != expected) {  // C1
    fail(Errc::bad_argument, name, fmt::format("{} inputs, needs {}", in.size(), expected));
  }
  const Shape& x = in[0];
  const Shape& w = in[1];
  std::vector<std::string_view> names{"x", "w"};
  if (has_bias) names.push_back("bias");
  if (has_residual) names.push_back("residual");
  const std::string operands = operands_text(names, in);

  require_floating(name, x);  // C2
  if (!is_floating(w.dtype()) && !is_block(w.dtype())) {
    fail(Errc::unsupported_dtype, name,
         fmt::format("w needs a floating or a block type: {}", operands));
  }
  if (x.rank() < 1) {  // C3
    fail(Errc::shape_mismatch, name, fmt::format("x is a scalar: {}", operands));
  }
  require_rank(name, "w", w, 2);
  const int last = x.rank() - 1;
  common_axis(name, x, last, w, 1, "the contracted axis", operands);  // C4

  Axis columns = w.axis_at(0);
  if (has_bias) {
    require_rank(name, "bias", in[2], 1);
    require_floating(name, in[2]);
    columns = common_axis(name, w, 0, in[2], 0, "the output axis", operands);  // C5
  }
  std::vector<Axis> axes;
  for (int i = 0; i < last; ++i) axes.push_back(x.axis_at(i));
  axes.push_back(columns);
  require_distinct_tags(name, axes, operands);  // C7
  Shape y(std::span<const Axis>(axes), x.dtype());
  if (has_residual) {  // C6
    const Shape& residual = in.back();
    if (residual.rank() != y.rank() || residual.dtype() != y.dtype()) {
      fail(Errc::shape_mismatch, name,
           fmt::format("residual is not {}: {}", to_string(y), operands));
    }
    for (int i = 0; i < y.rank(); ++i) {
      const Axis axis = common_axis(name, y, i, residual, i, "the residual's shape", operands);
      y = y.with_dim(i, axis.size).with_tag(i, axis.tag);
    }
  }
  return y;
}

void Linear::reference(std::span<const HostView> in, const HostView& out) const {
  const HostView& w = in[1];
  const std::int64_t n_count = w.shape[0];
  const std::int64_t k_count = w.shape[1];
  if (out.shape.elements() == 0) return;
  const std::int64_t rows = out.shape.elements() / n_count;

  // The bias and the residual may lie where the output goes, and x may be strided: read all of them
  // before the first store. Weight rows are decoded one at a time.
  const std::vector<double> x = read_rows(in[0]);
  std::vector<double> y(static_cast<std::size_t>(out.shape.elements()));
  if (has_residual) y = read_rows(in.back());
  const std::vector<double> bias =
      has_bias ? read_rows(in[2]) : std::vector<double>(static_cast<std::size_t>(n_count));

  std::vector<double> weights(static_cast<std::size_t>(k_count));
  for (std::int64_t n = 0; n < n_count; ++n) {
    read_row(w.shape.dtype(), w.data + n * w.strides[0], w.strides[1], weights);
    for (std::int64_t m = 0; m < rows; ++m) {
      auto& value = y[static_cast<std::size_t>(m * n_count + n)];
      value += dot_product(x.data() + m * k_count, weights.data(), k_count) +
               bias[static_cast<std::size_t>(n)];
    }
  }
  write_row(y, out.shape.dtype(), out.data, block_bytes(out.shape.dtype()));
}

double Linear::flops(std::span<const Shape> in, const Shape& out) const {
  return 2.0 * static_cast<double>(out.elements()) * static_cast<double>(in[1][1]);
}

std::vector<Tensor> Linear::gradient(const Backward& at) const {
  const Tensor &x = at.inputs[0], &w = at.inputs[1], &g = at.upstream;
  const auto rows = [](const Tensor& t) {
    return t.rank() == 1 ? unsqueeze(t, 0) : merge_axes(t, 0, t.rank() - 2);
  };
  std::vector<Tensor> result;
  const Tensor plain = is_block(w.dtype()) ? dequantize(w, x.dtype()) : cast(w, x.dtype());
  result.push_back(matmul(g, plain));
  if (is_block(w.dtype())) {
    result.emplace_back();
  } else {
    result.push_back(cast(matmul(permute(rows(g), {1, 0}), rows(x)), w.dtype()));
  }
  if (has_bias) {
    const Shape& bias = at.inputs[2].shape();
    result.push_back(cast(sum_to(g, bias), bias.dtype()));
  }
  if (has_residual) result.push_back(g);
  return result;
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& residual,
              const std::source_location& where) {
  std::vector<Tensor> inputs{x, w};
  if (!bias.is_empty()) inputs.push_back(bias);
  if (!residual.is_empty()) inputs.push_back(residual);
  return record(Linear{.has_bias = !bias.is_empty(), .has_residual = !residual.is_empty()},
                std::span<const Tensor>(inputs), where);
}

}  // namespace tenon
