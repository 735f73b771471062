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
/// The number of steps is static; other sizes may be symbolic. The body is called twice: once to
/// learn the outputs' types. Where an output has a size that no symbol stands for (such as that of a
/// slice of a symbolic axis), one step is computed once more when the program runs.
/// Errc::bad_argument when `inputs` are empty or have no static first axis of one size.
template <class Carry, class Inputs, class Body>
auto scan(Carry carry, const Inputs& inputs, Body&& body,
          const std::source_location& where = std::source_location::current()) {
  using Outputs = std::remove_cvref_t<decltype(body(carry, inputs).second)>;
  const std::vector<Tensor> stacks = detail::leaves_of(inputs);
  const std::int64_t steps =
      stacks.empty() || stacks[0].rank(where) == 0 ? unknown_dim : stacks[0].dim(0, where);
  bool fits = is_static(steps);
  for (const Tensor& stack : stacks) {
    fits = fits && stack.rank(where) > 0 && stack.dim(0, where) == steps;
  }
  if (!fits) {
    throw Error(Errc::bad_argument, where, "scan: inputs without a first axis of one static size");
  }
  const auto step = [&](const Tensor& index, const Carry& now) {
    std::vector<Tensor> slices;
    for (const Tensor& stack : stacks) slices.push_back(select(stack, index, where));
    return body(now, detail::with_leaves(inputs, std::span<const Tensor>(slices)));
  };
  // Nothing uses what this records but for the shapes.
  const Outputs example = step(detail::first_index(stacks[0], where), carry).second;
  Outputs empty;
  transform_fields(example, empty, [&](const std::string&, const Tensor& output, Tensor& to) {
    to = detail::zeros_of_type(output, steps, where);
  });

  auto [last, outputs] = repeat(
      steps, std::pair<Carry, Outputs>(carry, empty),
      [&](const Tensor& index, const std::pair<Carry, Outputs>& now) {
        auto [next, output] = step(index, now.first);
        const std::vector<Tensor> made = detail::leaves_of(output);
        std::vector<Tensor> updated;
        for (const Tensor& stack : detail::leaves_of(now.second)) {
          updated.push_back(update_slice(stack, index, made[updated.size()], where));
        }
        return std::pair<Carry, Outputs>(
            next, detail::with_leaves(now.second, std::span<const Tensor>(updated)));
      },
      where);
  return Scanned<Carry, Outputs>{last, outputs};
}

}  // namespace tenon
