#include "graph/backward_pass.hpp"
#include "graph/grad_impl.hpp"
#include "graph/graph_impl.hpp"
#include "graph/inline_repeats.hpp"

#include <tenon/grad.hpp>
#include <tenon/ops/fill.hpp>

#include <fmt/format.h>

namespace tenon {
namespace {

[[noreturn]] void refuse(const std::source_location& where, const std::string& why) {
  throw Error(Errc::bad_argument, fmt::format("{}: grad", to_string(where)), why);
}

/// "'up.weight' f32[8, 64]", or only the type where it has no name.
std::string described(const Tensor& tensor, std::size_t number) {
  const std::string_view own = tensor.name();
  return fmt::format("{} {}",
                     own.empty() ? fmt::format("parameter {}", number) : fmt::format("'{}'", own),
                     to_string(tensor.shape()));
}

/// Then nothing can depend on it, as on a sequence that a loop takes no step through.
bool has_no_elements(const Shape& shape) { return shape.is_static() && shape.elements() == 0; }

}  // namespace

std::vector<Tensor> grad_placed(std::span<const Tensor> outputs, std::span<const Tensor> upstream,
                                std::span<const Tensor> parameters,
                                const std::source_location& where, const PlaceOf& place_of) {
  if (outputs.empty() || outputs.size() != upstream.size()) {
    refuse(where, fmt::format("{} outputs, {} gradients of them", outputs.size(), upstream.size()));
  }
  Graph::Impl& graph = graph_of("grad", outputs, where);
  const auto imported = [&](const Tensor& tensor, const auto& description) {
    if (!is_floating(tensor.dtype(where)) && !is_complex(tensor.dtype(where))) {
      refuse(where, fmt::format("{} has no gradient: it is not floating", description()));
    }
    return graph.import(tensor, "grad");
  };
  std::vector<const Node*> ends, starts;
  for (const Tensor& output : outputs) {
    ends.push_back(imported(output, [&] { return to_string(output.shape()); }));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    starts.push_back(imported(parameters[i], [&] { return described(parameters[i], i); }));
  }
  graph.has_gradients = true;
  inline_repeats(graph, starts, ends);

  ConstantNames constants;
  for (const Node* start : starts) {
    if (start->kind == Node::Kind::constant && !start->scoped) constants.insert(start->name);
  }
  BackwardPass pass(graph, *graph.current, where, place_of, std::move(constants), nullptr);
  pass.find_path(ends, starts);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (!(upstream[i].shape(where).without_tags() == ends[i]->shape.without_tags())) {
      refuse(where, fmt::format("a gradient {} for an output {}", to_string(upstream[i].shape()),
                                to_string(ends[i]->shape)));
    }
    pass.add(ends[i], upstream[i].with_tags({}));
  }
  pass.run();

  std::vector<Tensor> result;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    Tensor gradient = pass.of(starts[i]);
    if (gradient.is_empty() && has_no_elements(starts[i]->shape)) {
      gradient = full_like(graph.handle(starts[i]), 0, where);
    }
    if (gradient.is_empty()) {
      refuse(where, fmt::format("the loss does not depend on {}", described(parameters[i], i)));
    }
    const Shape& own = parameters[i].shape();
    if (own.has_tags()) {
      std::vector<Name> tags;
      for (int axis = 0; axis < own.rank(); ++axis) tags.push_back(own.tag(axis));
      gradient = gradient.with_tags(std::span<const Name>(tags));
    }
    result.push_back(gradient);
  }
  return result;
}

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> upstream,
                         std::span<const Tensor> parameters, const std::source_location& where) {
  return grad_placed(outputs, upstream, parameters, where,
                     [](const Node& node) { return to_string(node.where); });
}

std::vector<Tensor> grad(const Tensor& loss, std::span<const Tensor> parameters,
                         const std::source_location& where) {
  const Shape& shape = loss.shape(where);
  if (shape.rank() != 0 || !is_floating(shape.dtype())) {
    refuse(where, fmt::format("the loss is {}, not a floating scalar", to_string(shape)));
  }
  const Tensor one = scalar_like(loss, 1.0, where);
  return grad({&loss, 1}, {&one, 1}, parameters, where);
}

}  // namespace tenon
