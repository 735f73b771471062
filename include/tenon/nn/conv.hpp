#pragma once

#include <tenon/fields.hpp>
#include <tenon/ops/conv2d.hpp>
#include <tenon/ops/conv_transpose2d.hpp>
#include <tenon/weights_view.hpp>

#include <optional>
#include <source_location>

namespace tenon::nn {

/// 2-D convolution, NCHW. Weight [out, in / groups, kernel height, kernel width]; bias [out],
/// optional.
template <class T = Tensor>
struct Conv2d {
  T weight;
  std::optional<T> bias{};
  TENON_FIELDS(weight, bias, options)
  tenon::Conv2d options{};  ///< stride, padding, dilation, groups

  static Conv2d init(const WeightsView& view, const tenon::Conv2d& options = {},
                     const std::source_location& where = std::source_location::current()) {
    return {view.tensor("weight", where), view.find("bias", where), options};
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return conv2d(x, weight, bias.value_or(Tensor()), options, where);
  }
};

/// Convolution along one axis: x [N, in, W]. Weight [out, in / groups, kernel width]; bias [out],
/// optional.
template <class T = Tensor>
struct Conv1d {
  T weight;
  std::optional<T> bias{};
  TENON_FIELDS(weight, bias, options)
  Conv1dOptions options{};  ///< stride, padding, dilation, groups

  static Conv1d init(const WeightsView& view, const Conv1dOptions& options = {},
                     const std::source_location& where = std::source_location::current()) {
    return {view.tensor("weight", where), view.find("bias", where), options};
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return conv1d(x, weight, bias.value_or(Tensor()), options, where);
  }
};

/// Convolution along three axes: x [N, in, D, H, W]. Weight [out, in / groups, kernel sizes]; bias [out],
/// optional.
template <class T = Tensor>
struct Conv3d {
  T weight;
  std::optional<T> bias{};
  TENON_FIELDS(weight, bias, options)
  Conv3dOptions options{};  ///< stride, padding, dilation, groups

  static Conv3d init(const WeightsView& view, const Conv3dOptions& options = {},
                     const std::source_location& where = std::source_location::current()) {
    return {view.tensor("weight", where), view.find("bias", where), options};
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return conv3d(x, weight, bias.value_or(Tensor()), options, where);
  }
};

/// Transposed 2-D convolution, NCHW. Weight [in, out / groups, kernel height, kernel width]; bias
/// [out], optional.
template <class T = Tensor>
struct ConvTranspose2d {
  T weight;
  std::optional<T> bias{};
  TENON_FIELDS(weight, bias, options)
  tenon::ConvTranspose2d options{};  ///< stride, padding, output_padding, dilation, groups

  static ConvTranspose2d init(const WeightsView& view, const tenon::ConvTranspose2d& options = {},
                              const std::source_location& where = std::source_location::current()) {
    return {view.tensor("weight", where), view.find("bias", where), options};
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return conv_transpose2d(x, weight, bias.value_or(Tensor()), options, where);
  }
};

/// Transposed convolution along one axis: x [N, in, W]. Weight [in, out / groups, kernel width]; bias
/// [out], optional.
template <class T = Tensor>
struct ConvTranspose1d {
  T weight;
  std::optional<T> bias{};
  TENON_FIELDS(weight, bias, options)
  ConvTranspose1dOptions options{};  ///< stride, padding, output_padding, dilation, groups

  static ConvTranspose1d init(const WeightsView& view, const ConvTranspose1dOptions& options = {},
                              const std::source_location& where = std::source_location::current()) {
    return {view.tensor("weight", where), view.find("bias", where), options};
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return conv_transpose1d(x, weight, bias.value_or(Tensor()), options, where);
  }
};

/// Transposed convolution along three axes: x [N, in, D, H, W]. Weight [in, out / groups, kernel sizes];
/// bias [out], optional.
template <class T = Tensor>
struct ConvTranspose3d {
  T weight;
  std::optional<T> bias{};
  TENON_FIELDS(weight, bias, options)
  ConvTranspose3dOptions options{};  ///< stride, padding, output_padding, dilation, groups

  static ConvTranspose3d init(const WeightsView& view, const ConvTranspose3dOptions& options = {},
                              const std::source_location& where = std::source_location::current()) {
    return {view.tensor("weight", where), view.find("bias", where), options};
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return conv_transpose3d(x, weight, bias.value_or(Tensor()), options, where);
  }
};

}  // namespace tenon::nn
