#pragma once

#include <tenon/error.hpp>
#include <tenon/fields.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/select.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tenon {

/// Iterations that a loop with a condition may have.
inline constexpr std::int64_t max_iterations = std::int64_t{1} << 20;

namespace detail {

/// The tensors of a struct, tuple or array of tensors, in order.
template <class Form>
std::vector<Tensor> leaves_of(const Form& form) {
  std::vector<Tensor> tensors;
  visit_fields(form, [&](const std::string&, const Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

/// A struct of the form of `like` with these tensors, which get the tags that `like`'s have.
template <class Form>
Form with_leaves(const Form& like, std::span<const Tensor> tensors) {
  Form result;
  std::size_t next = 0;
  transform_fields(like, result, [&](const std::string&, const Tensor& old, Tensor& to) {
    to = tensors[next++];
    if (!old.shape().has_tags() || to.shape().has_tags()) return;
    std::vector<Name> tags;
    for (int i = 0; i < old.rank(); ++i) tags.push_back(old.shape().tag(i));
    to = to.with_tags(tags);
  });
  return result;
}

/// The index 0, i64[], in the graph of `beside`.
inline Tensor first_index(const Tensor& beside, const std::source_location& where) {
  const Full zero{.value = 0, .dims = {}, .dtype = i64};
  return record_beside(beside, op_def<Full>(), &zero, where);
}

/// Zeros of the type of x, or [count, sizes of x]. Symbolic sizes are read from inputs that have
/// them, so that x is not computed for its sizes; one that no symbol stands for is read from x.
Tensor zeros_of_type(const Tensor& x, std::optional<std::int64_t> count,
                     const std::source_location& where);

/// The steps of a scan over these: the one size of their first axes, which may be symbolic. Errc::bad_argument.
std::int64_t steps_of(std::span<const Tensor> stacks, const std::source_location& where);
/// The number of slices of `stack`, whose first axis has no static size, as an i64[]; a run with more than max_iterations
/// fails.
Tensor count_slices(const Tensor& stack, const std::source_location& where);
/// As many zeros of the type of `row` as `stack` has slices.
Tensor zeros_for_slices(const Tensor& stack, const Tensor& row, const std::source_location& where);
/// The index -1, i64[], in the graph of `beside`, which `has_next` takes: whether index + 1 < count.
Tensor before_first_index(const Tensor& beside, const std::source_location& where);
Tensor has_next(const Tensor& index, const Tensor& count, const std::source_location& where);

/// carry = body(index, carry) while the first tensor of `carry`, a bool[], is true.
template <class Carry, class Body>
Carry repeat_while(std::int64_t limit, Carry carry, Body&& body,
                   const std::source_location& where) {
  RepeatRecorder recorder(leaves_of(carry), where);
  RepeatRecorder::Frame frame = recorder.begin({});
  const Carry next = body(frame.index, with_leaves(carry, std::span<const Tensor>(frame.carry)));
  recorder.end(leaves_of(next), limit, 0);
  return with_leaves(carry, recorder.finish());
}

}  // namespace detail

/// Applies a stack of layers: carry = body(layer, index, carry) for each layer in order. `carry` is
/// a tensor, or a struct, tuple or array of tensors; `index` is the layer's number, an i64 scalar:
/// the number in the names of its weights, or its position when they have none.
///
/// Every layer is traced, and layers with equal traces share one repeated function, so that a stack
/// of n equal layers compiles one layer. Layers that differ (in types of weights, or attributes)
/// get their own functions. Outer values that `body` uses become extra operands.
template <class Layer, class Carry, class Body>
Carry repeat(const std::vector<Layer>& layers, Carry carry, Body&& body,
             const std::source_location& where = std::source_location::current()) {
  if (layers.empty()) return carry;
  RepeatRecorder recorder(detail::leaves_of(carry), where);
  for (const Layer& layer : layers) {
    RepeatRecorder::Frame frame = recorder.begin(detail::leaves_of(layer));
    const Carry next =
        body(layer, frame.index, detail::with_leaves(carry, std::span<const Tensor>(frame.carry)));
    recorder.end(detail::leaves_of(next));
  }
  return detail::with_leaves(carry, recorder.finish());
}

/// A loop: carry = body(index, carry), `count` times, with index = 0, 1, ... as an i64 scalar. The
/// body is traced once. select(x, index) of an outer value x is a view of its slice.
/// Errc::bad_argument for a count below 0.
template <class Carry, class Body>
Carry repeat(std::int64_t count, Carry carry, Body&& body,
             const std::source_location& where = std::source_location::current()) {
  RepeatRecorder recorder(detail::leaves_of(carry), where);
  RepeatRecorder::Frame frame = recorder.begin({});
  const Carry next =
      body(frame.index, detail::with_leaves(carry, std::span<const Tensor>(frame.carry)));
  recorder.end(detail::leaves_of(next), count);
  return detail::with_leaves(carry, recorder.finish());
}

template <class Carry, class Outputs>
struct Scanned {
  Carry carry;      ///< after the last step
  Outputs outputs;  ///< of every step, stacked along a new first axis
};

/// A loop over the first axis of `inputs`: {carry, output} = body(carry, input) for each of their
/// slices in order. `inputs` and the outputs are tensors, or structs, tuples or arrays of tensors.
/// Sizes may be symbolic. Where the first axis has such a size, a run with more than max_iterations
/// steps is Errc::out_of_range, and a gradient that needs values of its steps is Errc::unsupported. The
/// body is called twice: once to learn the outputs' types. Where an output has a size that no symbol
/// stands for (such as that of a slice of a symbolic axis), the first step, which there must be, is
/// computed once more when the program runs.
/// Errc::bad_argument when `inputs` are empty or their first axes are not of one size.
template <class Carry, class Inputs, class Body>
auto scan(Carry carry, const Inputs& inputs, Body&& body,
          const std::source_location& where = std::source_location::current()) {
  using Outputs = std::remove_cvref_t<decltype(body(carry, inputs).second)>;
  using Both = std::pair<Carry, Outputs>;
  const std::vector<Tensor> stacks = detail::leaves_of(inputs);
  const std::int64_t steps = detail::steps_of(stacks, where);
  const auto step = [&](const Tensor& index, const Carry& now) {
    std::vector<Tensor> slices;
    for (const Tensor& stack : stacks) slices.push_back(select(stack, index, where));
    return body(now, detail::with_leaves(inputs, std::span<const Tensor>(slices)));
  };
  // Nothing uses what this records but for the shapes.
  const Outputs example = step(detail::first_index(stacks[0], where), carry).second;
  Outputs empty;
  transform_fields(example, empty, [&](const std::string&, const Tensor& output, Tensor& to) {
    to = is_static(steps) ? detail::zeros_of_type(output, steps, where)
                          : detail::zeros_for_slices(stacks[0], output, where);
  });
  const auto next = [&](const Tensor& index, const Both& now) {
    auto [carried, output] = step(index, now.first);
    const std::vector<Tensor> made = detail::leaves_of(output);
    std::vector<Tensor> updated;
    for (const Tensor& stack : detail::leaves_of(now.second)) {
      updated.push_back(update_slice(stack, index, made[updated.size()], where));
    }
    return Both(carried, detail::with_leaves(now.second, std::span<const Tensor>(updated)));
  };

  Both last(carry, empty);
  if (is_static(steps)) {
    last = repeat(steps, last, next, where);
  } else {
    using While = std::pair<Tensor, Both>;
    const Tensor count = detail::count_slices(stacks[0], where);
    const Tensor before_first = detail::before_first_index(stacks[0], where);
    last = detail::repeat_while(
               max_iterations, While(detail::has_next(before_first, count, where), last),
               [&](const Tensor& index, const While& now) {
                 return While(detail::has_next(index, count, where), next(index, now.second));
               },
               where)
               .second;
  }
  return Scanned<Carry, Outputs>{last.first, last.second};
}

}  // namespace tenon
