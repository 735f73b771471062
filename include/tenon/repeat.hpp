#pragma once

#include <tenon/fields.hpp>
#include <tenon/graph.hpp>
#include <tenon/tensor.hpp>

#include <source_location>
#include <span>
#include <utility>
#include <vector>

namespace tenon {

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
  const auto leaves = [](const auto& value) {
    std::vector<Tensor> tensors;
    visit_fields(value,
                 [&](const std::string&, const Tensor& tensor) { tensors.push_back(tensor); });
    return tensors;
  };
  const auto rebuilt = [](const Carry& like, std::span<const Tensor> tensors) {
    Carry result;
    std::size_t next = 0;
    transform_fields(like, result, [&](const std::string&, const Tensor& old, Tensor& to) {
      // Keep the tags that the user gave.
      to = old.shape().has_tags() && !tensors[next].shape().has_tags()
               ? tensors[next].with_tags([&] {
                   std::vector<Name> tags;
                   for (int i = 0; i < old.rank(); ++i) tags.push_back(old.shape().tag(i));
                   return tags;
                 }())
               : tensors[next];
      ++next;
    });
    return result;
  };
  RepeatRecorder recorder(leaves(carry), where);
  for (const Layer& layer : layers) {
    RepeatRecorder::Frame frame = recorder.begin(leaves(layer));
    const Carry next = body(layer, frame.index, rebuilt(carry, frame.carry));
    recorder.end(leaves(next));
  }
  return rebuilt(carry, recorder.finish());
}

}  // namespace tenon
