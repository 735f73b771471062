// A random program as a user's model: a struct of weights with a forward.
#pragma once

#include "random_model.hpp"

#include <tenon/buffer.hpp>
#include <tenon/error.hpp>
#include <tenon/fields.hpp>
#include <tenon/tensor.hpp>
#include <tenon/weights_view.hpp>

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {

template <class T = Tensor>
struct RandomForward {
  std::vector<T> weights;
  TENON_FIELDS(weights)

  RandomModelPlan plan{};
  std::optional<WeightsView> declared{};  ///< what the tensors are of
  /// Of the first input's second axis, which forward refuses; -1: none.
  std::int64_t refused_length = -1;

  std::vector<Tensor> forward(const std::vector<Tensor>& inputs) const
    requires std::same_as<T, Tensor>
  {
    if (refused_length >= 0 && inputs[0].dim(1) == refused_length)
      throw Error(Errc::limit_exceeded, "forward", "this length is refused");
    std::map<std::string, Tensor> constants;
    for (const Tensor& weight : weights) constants.emplace(weight.name(), weight);
    return replay(plan, inputs, constants);
  }
};

/// The model of a plan whose constants these are, and its weights.
inline RandomForward<> random_forward(const RandomModelPlan& plan,
                                      const std::map<std::string, HostBuffer>& weights) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const auto& [name, value] : weights) shapes.emplace_back(name, value.shape());
  const WeightsView view("a random model", shapes);
  RandomForward<> model{.weights = {}, .plan = plan, .declared = view};
  for (const auto& [name, shape] : shapes) model.weights.push_back(view.tensor(name));
  return model;
}
inline RandomForward<Buffer> bufferized(const std::map<std::string, Buffer>& weights) {
  RandomForward<Buffer> buffers;
  for (const auto& [name, value] : weights) buffers.weights.push_back(value);
  return buffers;
}

}  // namespace tenon::testing
