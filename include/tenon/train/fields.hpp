// Arithmetic on models' structs, leaf by leaf.
#pragma once

#include <tenon/buffer.hpp>
#include <tenon/fields.hpp>
#include <tenon/tensor.hpp>

#include <span>
#include <string>
#include <vector>

namespace tenon::train {

/// The shapes of a struct of buffers, as compile() takes them.
template <class Buffers>
rebind_t<Buffers, Shape> shapes_of(const Buffers& buffers) {
  return map_fields<Shape>(buffers,
                           [](const std::string&, const Buffer& buffer) { return buffer.shape(); });
}

/// The tensors of a model's struct that are not empty, in field order.
template <class Model>
std::vector<Tensor> tensors_of(const Model& model) {
  std::vector<Tensor> tensors;
  visit_fields(model, [&](const std::string&, const Tensor& tensor) {
    if (!tensor.is_empty()) tensors.push_back(tensor);
  });
  return tensors;
}

/// A struct of `model`'s form with these tensors in place of its own, in field order.
template <class Model>
Model with_tensors(const Model& model, std::span<const Tensor> tensors) {
  Model result;
  std::size_t next = 0;
  transform_fields(model, result, [&](const std::string&, const Tensor& from, Tensor& to) {
    if (!from.is_empty()) to = tensors[next++];
  });
  return result;
}

/// f(a's tensor, b's tensor), ... for structs of one form.
template <class Model, class Function, class... Others>
Model zip_fields(Function&& function, const Model& first, const Others&... others) {
  const std::vector<std::vector<Tensor>> lists{tensors_of(first), tensors_of(others)...};
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < lists[0].size(); ++i) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      results.push_back(function(lists[I][i]...));
    }(std::make_index_sequence<1 + sizeof...(Others)>());
  }
  return with_tensors(first, results);
}

}  // namespace tenon::train
