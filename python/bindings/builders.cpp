// The library's builders that record more than one op, for tensors of a graph. Their functions of Python, which also
// take arrays, are in tenon/_arrays/composed.py: names of parameters, defaults and what help() shows. An argument of a
// builder is found by its position.

#include "bindings.hpp"
#include "graphs.hpp"

#include <tenon/error.hpp>
#include <tenon/ops.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nanobind/stl/string.h>

namespace tenon::python {
namespace {

/// The arguments of a call and the graph that it is recorded in.
class Call {
 public:
  /// `parameters`: the arguments' names, of as many as there are, or none.
  Call(std::string_view name, const nb::tuple& arguments, const nb::tuple& parameters)
      : name_(name), arguments_(arguments), parameters_(parameters) {
    for (const nb::handle argument : arguments) look_at(argument);
    if (recorder_ != nullptr) return;
    Recorder* const current = Recorder::current();
    if (current == nullptr) {
      throw Error(Errc::call_order, std::string(name),
                  "no operand is a tensor, and no graph is being recorded");
    }
    recorder_ = current->shared_from_this();
  }

  std::size_t size() const { return arguments_.size(); }
  std::source_location where() const { return recorder_->location(); }
  Graph& graph() const { return recorder_->graph; }

  /// Argument `i` as a builder takes it.
  template <class T>
  T get(std::size_t i) const {
    const nb::handle argument = arguments_[i];
    try {
      return converted(argument, std::type_identity<T>());
    } catch (const std::bad_cast&) {
    } catch (const nb::python_error&) {
    }
    const bool is_named = parameters_.size() == arguments_.size();
    throw Error(Errc::bad_argument, std::string(name_),
                fmt::format("{} cannot be {}",
                            is_named ? nb::cast<std::string>(nb::repr(parameters_[i]))
                                     : fmt::format("argument {}", i + 1),
                            nb::cast<std::string>(nb::repr(argument))));
  }

  nb::object result(const Tensor& tensor) const { return nb::cast(Traced{tensor, recorder_}); }
  nb::object result(std::span<const Tensor> tensors) const {
    nb::list items;
    for (const Tensor& tensor : tensors) items.append(result(tensor));
    return nb::tuple(items);
  }
  nb::object result(const SortResult& made) const {
    return result(std::vector{made.values, made.indices});
  }
  nb::object result(const TopkResult& made) const {
    return result(std::vector{made.values, made.indices});
  }
  nb::object result(const NonzeroResult& made) const {
    return result(std::vector{made.indices, made.count});
  }
  nb::object result(const HistogramResult& made) const {
    return result(std::vector{made.counts, made.edges});
  }
  nb::object result(const BatchNormTraining& made) const {
    return result(std::vector{made.y, made.mean, made.variance});
  }
  nb::object result(const UniqueResult& made) const {
    return result(std::vector{made.values, made.count, made.inverse, made.counts});
  }

 private:
  /// Finds the graph, and the type that numbers among the operands get.
  void look_at(nb::handle argument) {
    if (nb::isinstance<nb::list>(argument) || nb::isinstance<nb::tuple>(argument)) {
      for (const nb::handle one : argument) look_at(one);
    }
    if (recorder_ != nullptr || !nb::isinstance<Traced>(argument)) return;
    const auto& traced = nb::cast<const Traced&>(argument);
    recorder_ = traced.recorder;
    type_ = traced.tensor.dtype();
  }

  Tensor converted(nb::handle argument, std::type_identity<Tensor>) const {
    return argument.is_none() ? Tensor() : recorder_->operand(argument, type_);
  }
  std::vector<Tensor> converted(nb::handle argument,
                                std::type_identity<std::vector<Tensor>>) const {
    std::vector<Tensor> tensors;
    for (const nb::handle one : argument) tensors.push_back(recorder_->operand(one, type_));
    return tensors;
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  static T converted(nb::handle argument, std::type_identity<T>) {
    return nb::cast<T>(argument);
  }
  static std::optional<double> converted(nb::handle argument,
                                         std::type_identity<std::optional<double>>) {
    if (argument.is_none()) return std::nullopt;
    return nb::cast<double>(argument);
  }
  static std::string converted(nb::handle argument, std::type_identity<std::string>) {
    return nb::cast<std::string>(argument);
  }
  /// One of an enumeration's words, in the order of its values.
  template <class Enum>
  static Enum word(nb::handle argument, std::initializer_list<std::string_view> words) {
    const auto given = nb::cast<std::string>(argument);
    const auto found = std::find(words.begin(), words.end(), given);
    if (found == words.end()) throw std::bad_cast();
    return static_cast<Enum>(found - words.begin());
  }
  static Reduction converted(nb::handle argument, std::type_identity<Reduction>) {
    return word<Reduction>(argument, {"none", "sum", "mean"});
  }
  static std::optional<Reduction> converted(nb::handle argument,
                                            std::type_identity<std::optional<Reduction>>) {
    if (argument.is_none()) return std::nullopt;
    return converted(argument, std::type_identity<Reduction>());
  }
  static QuantileMethod converted(nb::handle argument, std::type_identity<QuantileMethod>) {
    return word<QuantileMethod>(argument, {"linear", "lower", "higher", "nearest", "midpoint"});
  }
  static std::vector<double> converted(nb::handle argument,
                                       std::type_identity<std::vector<double>>) {
    std::vector<double> numbers;
    for (const nb::handle one : argument) numbers.push_back(nb::cast<double>(one));
    return numbers;
  }
  static Name converted(nb::handle argument, std::type_identity<Name>) {
    return argument.is_none() ? Name() : Name(nb::cast<std::string>(argument));
  }
  static DType converted(nb::handle argument, std::type_identity<DType>) {
    return to_dtype(argument);
  }
  static Shape converted(nb::handle argument, std::type_identity<Shape>) {
    return to_shape(argument);
  }
  static AxisRef converted(nb::handle argument, std::type_identity<AxisRef>) {
    if (nb::isinstance<nb::str>(argument)) return Name(nb::cast<std::string>(argument));
    return nb::cast<int>(argument);
  }
  static AxisList converted(nb::handle argument, std::type_identity<AxisList>) {
    if (argument.is_none()) return {};
    std::vector<AxisRef> axes;
    if (nb::isinstance<nb::list>(argument) || nb::isinstance<nb::tuple>(argument)) {
      for (const nb::handle one : argument) {
        axes.push_back(converted(one, std::type_identity<AxisRef>()));
      }
    } else {
      axes.push_back(converted(argument, std::type_identity<AxisRef>()));
    }
    return AxisList(std::span<const AxisRef>(axes));
  }
  static std::vector<std::int64_t> converted(nb::handle argument,
                                             std::type_identity<std::vector<std::int64_t>>) {
    std::vector<std::int64_t> numbers;
    if (argument.is_none()) return numbers;
    for (const nb::handle one : argument) numbers.push_back(nb::cast<std::int64_t>(one));
    return numbers;
  }
  static IntList converted(nb::handle argument, std::type_identity<IntList>) {
    return IntList(converted(argument, std::type_identity<std::vector<std::int64_t>>()));
  }

  std::string_view name_;
  nb::tuple arguments_;
  nb::tuple parameters_;
  std::shared_ptr<Recorder> recorder_;
  std::optional<DType> type_;
};

/// What holds an argument of a builder during the call.
template <class T>
struct Held {
  using type = T;
};
template <class T>
struct Held<std::span<const T>> {
  using type = std::vector<T>;
};
template <>
struct Held<std::string_view> {
  using type = std::string;
};
template <class T>
using HeldArgument = typename Held<std::remove_cvref_t<T>>::type;

struct Builder {
  std::function<nb::object(const Call&)> call;
  std::size_t arguments = 0;
  std::vector<bool> is_operand;  ///< a tensor or tensors
};

template <class Result, class... Args, class Function>
Builder builder_of(const Function& function, std::type_identity<Result (*)(Args...)>) {
  constexpr std::size_t count = sizeof...(Args) - 1;  // the last one is the place
  using Types = std::tuple<HeldArgument<Args>...>;
  Builder made;
  made.arguments = count;
  const auto types = std::make_index_sequence<count>();
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    made.is_operand = {(std::is_same_v<std::tuple_element_t<i, Types>, Tensor> ||
                        std::is_same_v<std::tuple_element_t<i, Types>, std::vector<Tensor>>)...};
  }(types);
  made.call = [function](const Call& call) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      const Graph::Recording recording(call.graph());
      const std::tuple held{call.get<std::tuple_element_t<i, Types>>(i)...};
      return call.result(function(std::get<i>(held)..., call.where()));
    }(std::make_index_sequence<count>());
  };
  return made;
}

template <class Result, class... Args>
Builder builder_of(Result (*function)(Args...)) {
  return builder_of(function, std::type_identity<Result (*)(Args...)>());
}

using T = const Tensor&;
using Int = std::int64_t;
using Ints = const IntList&;
using Where = const std::source_location&;

PoolOptions pool_options(Ints kernel, Ints stride, Ints padding, Ints dilation, bool ceil_mode,
                         bool count_include_pad) {
  return {kernel, stride, padding, dilation, ceil_mode, count_include_pad};
}

/// nan_to_num with numbers for the infinities, or without.
Tensor numbers_of(T x, double nan, std::optional<double> positive, std::optional<double> negative,
                  Where where) {
  Tensor y = nan_to_num(x, nan, where);
  const auto replace = [&](double from, std::optional<double> to) {
    if (!to) return;
    const Tensor is_it = eq(x, scalar_like(x, from, where), where);
    y = tenon::where(is_it, scalar_like(x, *to, where), y, where);
  };
  replace(std::numeric_limits<double>::infinity(), positive);
  replace(-std::numeric_limits<double>::infinity(), negative);
  return y;
}

/// Every builder by its name. Where C++ has several of one name, or options, the arguments that Python gives.
const std::map<std::string_view, Builder>& builders() {
  static const auto* const table = new std::map<std::string_view, Builder>{
      {"celu", builder_of(&celu)},
      {"geglu", builder_of(&geglu)},
      {"hardshrink", builder_of(&hardshrink)},
      {"logsigmoid", builder_of(&logsigmoid)},
      {"prelu", builder_of(&prelu)},
      {"quick_gelu", builder_of(&quick_gelu)},
      {"reglu", builder_of(&reglu)},
      {"selu", builder_of(&selu)},
      {"softshrink", builder_of(&softshrink)},
      {"softsign", builder_of(&softsign)},
      {"tanhshrink", builder_of(&tanhshrink)},
      {"thresholded_relu", builder_of(&thresholded_relu)},

      {"alibi_mask", builder_of(&alibi_mask)},
      {"alibi_slopes", builder_of(&alibi_slopes)},
      {"prefix_mask", builder_of(&prefix_mask)},
      {"segment_mask", builder_of(&segment_mask)},
      {"segments_of", builder_of(&segments_of)},
      {"streaming_mask", builder_of(&streaming_mask)},
      {"gather_pages", builder_of(&gather_pages)},
      {"pages_of", builder_of(&pages_of)},

      {"broadcast_like", builder_of(&broadcast_like)},
      {"repeat_interleave", builder_of(&repeat_interleave)},
      {"reshape_like", builder_of(&reshape_like)},
      {"roll", builder_of(&roll)},
      {"split", builder_of(+[](T x, std::span<const Int> sizes, const AxisRef& axis, Where where) {
         return split(x, sizes, axis, where);
       })},
      {"sum_to", builder_of(&sum_to)},
      {"tile", builder_of(&tile)},

      {"diagonal", builder_of(&diagonal)},
      {"diagonal_matrix", builder_of(&diagonal_matrix)},
      {"einsum", builder_of(+[](std::string_view equation, std::span<const Tensor> operands,
                                Where where) { return einsum(equation, operands, where); })},
      {"inner", builder_of(&inner)},
      {"kron", builder_of(&kron)},
      {"lu_solve", builder_of(+[](T packed, T pivots, T b, Where where) {
         return lu_solve({packed, pivots}, b, where);
       })},
      {"outer", builder_of(&outer)},
      {"tensordot", builder_of(&tensordot)},
      {"trace", builder_of(&trace)},

      {"conv1d", builder_of(+[](T x, T w, T bias, Int stride, Int left, Int right, Int dilation,
                                Int groups, Where where) {
         return conv1d(x, w, bias, {stride, left, right, dilation, groups}, where);
       })},
      {"conv3d", builder_of(+[](T x, T w, T bias, Ints stride, Ints padding, Ints dilation,
                                Int groups, Where where) {
         return conv3d(x, w, bias, {stride, padding, dilation, groups}, where);
       })},
      {"conv_transpose1d",
       builder_of(+[](T x, T w, T bias, Int stride, Int left, Int right, Int output_padding,
                      Int dilation, Int groups, Where where) {
         return conv_transpose1d(x, w, bias,
                                 {stride, left, right, output_padding, dilation, groups}, where);
       })},
      {"conv_transpose3d",
       builder_of(+[](T x, T w, T bias, Ints stride, Ints padding, Ints output_padding,
                      Ints dilation, Int groups, Where where) {
         return conv_transpose3d(x, w, bias, {stride, padding, output_padding, dilation, groups},
                                 where);
       })},
      {"adaptive_avg_pool", builder_of(&adaptive_avg_pool)},
      {"adaptive_max_pool", builder_of(&adaptive_max_pool)},
      {"avg_pool", builder_of(+[](T x, Ints kernel, Ints stride, Ints padding, bool ceil_mode,
                                  bool count_include_pad, Where where) {
         return avg_pool(x, pool_options(kernel, stride, padding, {}, ceil_mode, count_include_pad),
                         where);
       })},
      {"global_avg_pool", builder_of(&global_avg_pool)},
      {"global_max_pool", builder_of(&global_max_pool)},
      {"lp_pool", builder_of(+[](T x, double p, Ints kernel, Ints stride, Ints padding,
                                 bool ceil_mode, Where where) {
         return lp_pool(x, p, pool_options(kernel, stride, padding, {}, ceil_mode, false), where);
       })},
      {"max_pool", builder_of(+[](T x, Ints kernel, Ints stride, Ints padding, Ints dilation,
                                  bool ceil_mode, Where where) {
         return max_pool(x, pool_options(kernel, stride, padding, dilation, ceil_mode, false),
                         where);
       })},
      {"depth_to_space", builder_of(&depth_to_space)},
      {"pixel_shuffle", builder_of(&pixel_shuffle)},
      {"pixel_unshuffle", builder_of(&pixel_unshuffle)},
      {"space_to_depth", builder_of(&space_to_depth)},

      {"fft2", builder_of(&fft2)},
      {"ifft2", builder_of(&ifft2)},
      {"hamming_window", builder_of(&hamming_window)},
      {"hann_window", builder_of(&hann_window)},
      {"log_mel_spectrogram", builder_of(&log_mel_spectrogram)},
      {"mel_filters", builder_of(+[](Int mels, Int size, double rate, double low, double high,
                                     bool htk, Where where) {
         return mel_filters(mels, size, rate, low, high, htk ? MelScale::htk : MelScale::slaney,
                            where);
       })},
      {"stft", builder_of(+[](T x, T window, Int hop, bool center, DType dtype, Where where) {
         return stft(x, window, hop, center, dtype, where);
       })},

      {"instance_norm", builder_of(&instance_norm)},
      {"l2_normalize", builder_of(&l2_normalize)},
      {"local_response_norm", builder_of(&local_response_norm)},

      {"linear_integer", builder_of(&linear_integer)},
      {"qlinear_linear", builder_of(+[](T x, T x_scale, T x_zero, T w, T w_scale, T w_zero,
                                        T y_scale, T y_zero, T bias, Where where) {
         return qlinear_linear({x, x_scale, x_zero}, {w, w_scale, w_zero}, {y_scale, y_zero}, bias,
                               where);
       })},
      {"qlinear_matmul", builder_of(+[](T a, T a_scale, T a_zero, T b, T b_scale, T b_zero,
                                        T y_scale, T y_zero, Where where) {
         return qlinear_matmul({a, a_scale, a_zero}, {b, b_scale, b_zero}, {y_scale, y_zero},
                               where);
       })},
      {"qlinear_conv2d",
       builder_of(+[](T x, T x_scale, T x_zero, T w, T w_scale, T w_zero, T y_scale, T y_zero,
                      T bias, Ints stride, Ints padding, Ints dilation, Int groups, Where where) {
         Conv2dInteger options;
         options.stride = stride;
         options.padding = padding;
         options.dilation = dilation;
         options.groups = groups;
         return qlinear_conv2d({x, x_scale, x_zero}, {w, w_scale, w_zero}, {y_scale, y_zero}, bias,
                               options, where);
       })},
      {"requantize", builder_of(&requantize)},

      {"binary_cross_entropy", builder_of(+[](T logits, T target, T weight, T positive_weight,
                                              Reduction reduction, Where where) {
         return binary_cross_entropy(logits, target, {weight, positive_weight, reduction}, where);
       })},
      {"cosine_embedding_loss", builder_of(&cosine_embedding_loss)},
      {"cross_entropy",
       builder_of(+[](T logits, T labels, double smoothing, Int ignored, Reduction reduction,
                      T weight, const AxisRef& axis, Where where) {
         return cross_entropy(logits, labels, {smoothing, ignored, weight, reduction, axis}, where);
       })},
      {"ctc_loss", builder_of(+[](T log_p, T labels, T steps, T counts, Int blank,
                                  Reduction reduction, bool zero_infinity, Where where) {
         return ctc_loss(log_p, labels, steps, counts, {blank, zero_infinity, reduction}, where);
       })},
      {"focal_loss", builder_of(+[](T logits, T target, double alpha, double gamma,
                                    Reduction reduction, Where where) {
         return focal_loss(logits, target, {alpha, gamma, reduction}, where);
       })},
      {"gaussian_nll_loss", builder_of(&gaussian_nll_loss)},
      {"hinge_embedding_loss", builder_of(&hinge_embedding_loss)},
      {"hinge_loss", builder_of(&hinge_loss)},
      {"huber_loss", builder_of(&huber_loss)},
      {"kl_divergence", builder_of(+[](T log_p, T target, std::optional<Reduction> reduction,
                                       bool log_target, Where where) {
         return kl_divergence(log_p, target, {log_target, reduction}, where);
       })},
      {"l1_loss", builder_of(&l1_loss)},
      {"log_cosh_loss", builder_of(&log_cosh_loss)},
      {"margin_ranking_loss", builder_of(&margin_ranking_loss)},
      {"mse_loss", builder_of(&mse_loss)},
      {"multi_margin_loss", builder_of(+[](T x, T labels, double p, double margin, T weight,
                                           Reduction reduction, Where where) {
         return multi_margin_loss(x, labels, {p, margin, weight, reduction}, where);
       })},
      {"nll_loss", builder_of(+[](T log_p, T labels, T weight, Int ignored, Reduction reduction,
                                  const AxisRef& axis, Where where) {
         return nll_loss(log_p, labels, {0, ignored, weight, reduction, axis}, where);
       })},
      {"poisson_nll_loss", builder_of(&poisson_nll_loss)},
      {"smooth_l1_loss", builder_of(&smooth_l1_loss)},
      {"soft_margin_loss", builder_of(&soft_margin_loss)},
      {"triplet_margin_loss",
       builder_of(+[](T anchor, T positive, T negative, double margin, double p, double eps,
                      bool swap, Reduction reduction, Where where) {
         return triplet_margin_loss(anchor, positive, negative, {margin, p, eps, swap, reduction},
                                    where);
       })},

      {"cdist", builder_of(&cdist)},
      {"corrcoef", builder_of(&corrcoef)},
      {"cosine_similarity", builder_of(&cosine_similarity)},
      {"cov", builder_of(&cov)},
      {"histogram", builder_of(+[](T x, Int bins, T edges, double low, double high, T weights,
                                   bool density, Where where) {
         const HistogramOptions options{low, high, weights, density};
         return edges.is_empty() ? histogram(x, bins, options, where)
                                 : histogram(x, edges, options, where);
       })},
      {"interp", builder_of(&interp)},
      {"nanmean", builder_of(&nanmean)},
      {"nansum", builder_of(&nansum)},
      {"quantile",
       builder_of(+[](T x, std::span<const double> q, bool is_one, const AxisList& axes,
                      bool keep_dims, QuantileMethod method, bool ignore_nan, Where where) {
         const QuantileOptions options{method, keep_dims, ignore_nan};
         return is_one ? quantile(x, q[0], axes, options, where)
                       : quantile(x, q, axes, options, where);
       })},
      {"trapezoid", builder_of(&trapezoid)},

      {"random_key", builder_of(&random_key)},
      {"split_key", builder_of(&split_key)},
      {"fold_in",
       builder_of(+[](T key, T number, Where where) { return fold_in(key, number, where); })},
      {"dropout", builder_of(&dropout)},
      {"random_bernoulli", builder_of(+[](T key, const Shape& shape, double p, Where where) {
         return random_bernoulli(key, shape, p, where);
       })},
      {"random_categorical", builder_of(&random_categorical)},
      {"random_exponential", builder_of(&random_exponential)},
      {"random_gumbel", builder_of(&random_gumbel)},
      {"random_integers", builder_of(&random_integers)},
      {"random_multinomial", builder_of(&random_multinomial)},
      {"random_normal", builder_of(&random_normal)},
      {"random_permutation", builder_of(&random_permutation)},
      {"random_uniform", builder_of(&random_uniform)},

      {"isclose", builder_of(&isclose)},
      {"lerp",
       builder_of(+[](T a, T b, T weight, Where where) { return lerp(a, b, weight, where); })},
      {"nan_to_num", builder_of(&numbers_of)},
      {"xlogy", builder_of(&xlogy)},

      {"bincount", builder_of(&bincount)},
      {"count_nonzero", builder_of(&count_nonzero)},
      {"gather_nd", builder_of(&gather_nd)},
      {"index_add", builder_of(&index_add)},
      {"index_put", builder_of(&index_put)},
      {"logsumexp", builder_of(&logsumexp)},
      {"masked_fill", builder_of(+[](T x, T mask, T value, Where where) {
         return masked_fill(x, mask, value, where);
       })},
      {"batch_norm_training", builder_of(&batch_norm_training)},
      {"nonzero", builder_of(&nonzero)},
      {"norm", builder_of(&norm)},
      {"put_along", builder_of(&put_along)},
      {"scatter_nd", builder_of(&scatter_nd)},
      {"sort_with_indices", builder_of(&sort_with_indices)},
      {"standard_deviation", builder_of(&standard_deviation)},
      {"topk", builder_of(&topk)},
      {"unique", builder_of(&unique)},
      {"variance", builder_of(&variance)},
  };
  return *table;
}

const Builder& builder(const std::string& name) {
  const auto found = builders().find(name);
  if (found == builders().end()) throw nb::key_error(name.c_str());
  return found->second;
}

}  // namespace

void bind_builders(nb::module_& module) {
  module.def(
      "build",
      [](const std::string& name, const nb::tuple& arguments, const nb::tuple& parameters) {
        const Builder& wanted = builder(name);
        if (arguments.size() != wanted.arguments) {
          throw Error(Errc::bad_argument, name,
                      fmt::format("{} arguments, takes {}", arguments.size(), wanted.arguments));
        }
        return wanted.call(Call(name, arguments, parameters));
      },
      nb::arg("name"), nb::arg("arguments"), nb::arg("parameters") = nb::tuple(),
      "Records a builder of the library; errors name the parameters");
  module.def(
      "builder_operands",
      [](const std::string& name) {
        nb::list flags;
        for (const bool is_operand : builder(name).is_operand) flags.append(is_operand);
        return nb::tuple(flags);
      },
      nb::arg("name"), "Which arguments of a builder are tensors");
  module.def("builder_names", [] {
    nb::list names;
    for (const auto& [name, made] : builders()) names.append(nb::str(name.data(), name.size()));
    return names;
  });
  module.def(
      "is_recording", [] { return Recorder::current() != nullptr; },
      "Whether a graph is being recorded");
}

}  // namespace tenon::python
