#pragma once

#include <tenon/fields.hpp>
#include <tenon/ops/batch_norm.hpp>
#include <tenon/ops/group_norm.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/weights_view.hpp>

#include <cstdint>
#include <optional>
#include <source_location>

namespace tenon::nn {

/// Layer normalisation of the last axis, with scale and, optionally, shift.
template <class T = Tensor>
struct LayerNorm {
  T weight;
  std::optional<T> bias{};
  double eps = 1e-5;
  TENON_FIELDS(weight, bias, eps)

  static LayerNorm init(const WeightsView& view, double eps,
                        const std::source_location& where = std::source_location::current()) {
    return {view.tensor("weight", where), view.find("bias", where), eps};
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return bias ? layer_norm(x, weight, *bias, eps, where) : layer_norm(x, weight, eps, where);
  }
};

/// Root-mean-square normalisation of the last axis, with scale.
template <class T = Tensor>
struct RmsNorm {
  T weight;
  double eps = 1e-5;
  TENON_FIELDS(weight, eps)

  static RmsNorm init(const WeightsView& view, double eps,
                      const std::source_location& where = std::source_location::current()) {
    return {view.tensor("weight", where), eps};
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return rms_norm(x, weight, eps, where);
  }
};

/// Batch normalisation of images [N, C, H, W] with the statistics of the training, which the file
/// has as running_mean and running_var [C]; scale and shift are optional. Serves x of other ranks
/// [N, C, ...] too.
///
/// The statistics are fields, of which grad() has gradients and which optimisers move, though they
/// are no parameters: nothing here updates them as a training does. train::Groups leaves them as
/// they are where its rule gives paths that end in "running_mean" and "running_var" no group.
template <class T = Tensor>
struct BatchNorm2d {
  std::optional<T> weight{};
  std::optional<T> bias{};
  T running_mean;
  T running_var;
  double eps = 1e-5;
  TENON_FIELDS(weight, bias, running_mean, running_var, eps)

  static BatchNorm2d init(const WeightsView& view, double eps = 1e-5,
                          const std::source_location& where = std::source_location::current()) {
    return {view.find("weight", where), view.find("bias", where),
            view.tensor("running_mean", where), view.tensor("running_var", where), eps};
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return batch_norm(x, running_mean, running_var, weight.value_or(Tensor()),
                      bias.value_or(Tensor()), eps, where);
  }
};

/// Normalisation of groups of channels, x [N, C, ...], with optional scale and shift per channel.
template <class T = Tensor>
struct GroupNorm {
  std::optional<T> weight{};
  std::optional<T> bias{};
  std::int64_t groups = 1;
  double eps = 1e-5;
  TENON_FIELDS(weight, bias, groups, eps)

  static GroupNorm init(const WeightsView& view, std::int64_t groups, double eps = 1e-5,
                        const std::source_location& where = std::source_location::current()) {
    return {view.find("weight", where), view.find("bias", where), groups, eps};
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    return group_norm(x, groups, weight.value_or(Tensor()), bias.value_or(Tensor()), eps, where);
  }
};

}  // namespace tenon::nn
