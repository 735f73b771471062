#include "emulation/emulated_routines.hpp"

#include "emulation/thread.hpp"

#include <tenon/error.hpp>
#include <tenon/host_view.hpp>
#include <tenon/ops/activation.hpp>
#include <tenon/ops/conv2d.hpp>
#include <tenon/ops/linear.hpp>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include <fmt/format.h>

namespace tenon::cuda::emulation {
namespace {

void check(const char* routine, std::initializer_list<Address> addresses) {
  for (const Address address : addresses) {
    if (address % routine_alignment == 0) continue;
    throw Error(Errc::device_error, routine,
                fmt::format("{:#x} is no multiple of {}", address, routine_alignment));
  }
}

/// NaNs, as whatever uses it would find them.
void spoil_workspace(Address workspace, std::uint64_t bytes) {
  std::fill_n(global<std::uint8_t>(workspace), bytes, std::uint8_t{0xFF});
}

HostView view(Address address, std::initializer_list<std::int64_t> sizes, DType dtype) {
  return {global<std::byte>(address), Shape(std::span(sizes.begin(), sizes.size()), dtype)};
}
HostView view(Address address, const std::int64_t (&sizes)[4], DType dtype) {
  return {global<std::byte>(address), Shape(std::span<const std::int64_t>(sizes), dtype)};
}

void run_gemm(const GemmCall& call) {
  check("gemm", {call.x, call.w, call.y, call.bias, call.residual, call.workspace});
  spoil_workspace(call.workspace, call.workspace_bytes);
  const auto bytes = [](std::int64_t elements, DType dtype) {
    return static_cast<Address>(elements * block_bytes(dtype));
  };
  for (std::int64_t i = 0; i < call.batch; ++i) {
    const Address x = call.x + bytes(i * call.rows * call.depth, call.dtype);
    const Address w =
        call.w + (call.w_repeats ? 0 : bytes(i * call.columns * call.depth, call.dtype));
    const Address of_y = bytes(i * call.rows * call.y_step, call.y_dtype);
    // The reference op takes dense arrays.
    std::vector<std::byte> y(bytes(call.rows * call.columns, call.y_dtype)), residual(y.size());
    const auto dense = [&](std::vector<std::byte>& array) {
      return HostView{array.data(), Shape({call.rows, call.columns}, call.y_dtype)};
    };
    const auto row = [&](Address array, std::int64_t r) {
      return global<std::byte>(array + of_y + bytes(r * call.y_step, call.y_dtype));
    };
    const std::size_t row_bytes = bytes(call.columns, call.y_dtype);
    std::vector<HostView> in{view(x, {call.rows, call.depth}, call.dtype),
                             view(w, {call.columns, call.depth}, call.dtype)};
    if (call.w_is_turned) {
      in[1].strides[0] = block_bytes(call.dtype);
      in[1].strides[1] = call.columns * block_bytes(call.dtype);
    }
    if (call.has_bias) in.push_back(view(call.bias, {call.columns}, call.y_dtype));
    for (std::int64_t r = 0; call.has_residual && r < call.rows; ++r) {
      std::memcpy(residual.data() + static_cast<std::size_t>(r) * row_bytes, row(call.residual, r),
                  row_bytes);
    }
    if (call.has_residual) in.push_back(dense(residual));
    const Linear op{.has_bias = call.has_bias, .has_residual = call.has_residual};
    op.reference(in, dense(y));
    for (std::int64_t r = 0; r < call.rows; ++r) {
      std::memcpy(row(call.y, r), y.data() + static_cast<std::size_t>(r) * row_bytes, row_bytes);
    }
  }
}

IntList list_of(std::initializer_list<std::int64_t> values) { return IntList(values); }

/// In place.
void activate(Activation activation, const HostView& y) {
  const auto apply = [&](const auto& op) { op.reference(std::span(&y, 1), y); };
  switch (activation) {
    case Activation::none:
      return;
    case Activation::relu:
      return apply(Relu{});
    case Activation::sigmoid:
      return apply(Sigmoid{});
    case Activation::tanh:
      return apply(Tanh{});
    case Activation::silu:
      return apply(Silu{});
    case Activation::gelu:
      return apply(Gelu{});
    case Activation::gelu_tanh:
      return apply(GeluTanh{});
  }
}

void run_convolution(const ConvolutionCall& call) {
  check("convolution", {call.x, call.w, call.y, call.bias, call.workspace});
  spoil_workspace(call.workspace, call.workspace_bytes);
  Conv2d op;
  op.stride = list_of({call.stride[0], call.stride[1]});
  op.padding = list_of({call.before[0], call.after[0], call.before[1], call.after[1]});
  op.dilation = list_of({call.dilation[0], call.dilation[1]});
  op.groups = call.groups;
  op.has_bias = call.has_bias;
  std::vector<HostView> in{view(call.x, call.x_sizes, call.dtype),
                           view(call.w, call.w_sizes, call.dtype)};
  if (call.has_bias) in.push_back(view(call.bias, {call.y_sizes[1]}, call.dtype));
  const HostView y = view(call.y, call.y_sizes, call.dtype);
  op.reference(in, y);
  activate(call.activation, y);
}

}  // namespace

void run_routine(Routine routine, const void* args) {
  if (routine == Routine::gemm) return run_gemm(*static_cast<const GemmCall*>(args));
  run_convolution(*static_cast<const ConvolutionCall*>(args));
}

}  // namespace tenon::cuda::emulation
