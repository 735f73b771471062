#pragma once

#include <tenon/error.hpp>
#include <tenon/train/optimizers.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tenon::train {

/// The parameters of a group, in the order of the model's fields.
template <class T>
struct GroupItems {
  std::vector<T> items;
  TENON_FIELDS(items)
};

/// Optimisers of parts of the parameters, used as one of them:
///
///   train::Groups groups{[](const std::string& path, const Shape& shape) {
///                          return shape.rank() == 2 ? 0u : 1u;
///                        },
///                        train::Muon{}, train::adamw(0)};
///   groups.factors[1] = 0.1;   // of the rate
///
/// `group_of` gives the number of a parameter's optimiser, by its path ("up.weight") and shape; a number
/// from their count on leaves the parameter as it is.
template <class... Optimizers>
struct Groups {
  using Rule = std::function<std::size_t(const std::string& path, const Shape& shape)>;
  static constexpr std::size_t count = sizeof...(Optimizers);

  Rule group_of;
  std::tuple<Optimizers...> optimizers;
  std::array<double, count> factors;

  explicit Groups(Rule rule, const Optimizers&... each)
      : group_of(std::move(rule)), optimizers(each...) {
    factors.fill(1);
  }

  /// One state for each optimiser. Leaf: Buffer, Tensor or Shape.
  template <class Leaf>
  using State = std::tuple<
      rebind_t<decltype(std::declval<const Optimizers&>().start(
                   std::declval<const GroupItems<Buffer>&>(), std::declval<const DevicePtr&>())),
               Leaf>...>;

  template <class Buffers>
  State<Buffer> start(const Buffers& parameters, const DevicePtr& device) const {
    const auto groups = divided<Buffer>(parameters);
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return State<Buffer>{std::get<I>(optimizers).start(groups[I], device)...};
    }(std::make_index_sequence<count>());
  }

  template <class Model>
  std::pair<Model, State<Tensor>> update(const Model& parameters, const Model& gradients,
                                         const State<Tensor>& state, const Tensor& rate) const {
    std::vector<std::size_t> chosen;
    visit_fields(parameters, [&](const std::string& path, const Tensor& p) {
      if (!p.is_empty()) chosen.push_back(group_of(path, p.shape()));
    });
    const auto split = [&](const Model& model) {
      std::array<GroupItems<Tensor>, count> groups;
      std::size_t next = 0;
      for (const Tensor& one : tensors_of(model)) {
        const std::size_t group = chosen[next++];
        if (group < count) groups[group].items.push_back(one);
      }
      return groups;
    };
    const auto of_parameters = split(parameters), of_gradients = split(gradients);
    State<Tensor> next_state;
    std::array<GroupItems<Tensor>, count> moved;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (step<I>(of_parameters[I], of_gradients[I], state, rate, moved[I], next_state), ...);
    }(std::make_index_sequence<count>());

    std::vector<Tensor> result = tensors_of(parameters);
    std::array<std::size_t, count> taken{};
    for (std::size_t i = 0; i < result.size(); ++i) {
      const std::size_t group = chosen[i];
      if (group < count) result[i] = moved[group].items[taken[group]++];
    }
    return {with_tensors(parameters, std::span<const Tensor>(result)), next_state};
  }

 private:
  template <class Leaf, class Model>
  std::array<GroupItems<Leaf>, count> divided(const Model& model) const {
    std::array<GroupItems<Leaf>, count> groups;
    visit_fields(model, [&](const std::string& path, const Leaf& one) {
      const std::size_t group = group_of(path, one.shape());
      if (group < count) groups[group].items.push_back(one);
    });
    return groups;
  }

  template <std::size_t I>
  void step(const GroupItems<Tensor>& parameters, const GroupItems<Tensor>& gradients,
            const State<Tensor>& state, const Tensor& rate, GroupItems<Tensor>& moved,
            State<Tensor>& next) const {
    const Tensor own_rate = factors[I] == 1 ? rate : rate * factors[I];
    auto [parameters_after, state_after] =
        std::get<I>(optimizers).update(parameters, gradients, std::get<I>(state), own_rate);
    moved = std::move(parameters_after);
    std::get<I>(next) = std::move(state_after);
  }
};

}  // namespace tenon::train
