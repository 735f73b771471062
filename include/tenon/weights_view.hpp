#pragma once

#include <tenon/held.hpp>
#include <tenon/shape.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon {

/// Names and shapes of a file's weights, from which model structs declare their tensors:
/// `Linear{.weight = view["up"].tensor("weight")}`. A value: copies share the declarations. Its
/// tensors stay valid while any view of the file, or the file, exists.
class WeightsView {
 public:
  /// `origin` names the file in messages.
  WeightsView(std::string origin, std::span<const std::pair<std::string, Shape>> weights);

  /// The view of the weights below a name: view["blk"][3]["attn_q"].
  WeightsView operator[](std::string_view part) const;
  WeightsView operator[](std::int64_t index) const;

  /// Full name of a weight below this view: "blk.3.attn_q.weight" for "weight".
  std::string full_name(std::string_view name) const;

  /// The weight `name` below this view. Errc::bad_reference, naming it and the file, when there is
  /// none.
  Tensor tensor(std::string_view name,
                const std::source_location& where = std::source_location::current()) const;
  /// As tensor(), and checks the sizes that a model expects (Errc::shape_mismatch).
  Tensor tensor(std::string_view name, std::span<const std::int64_t> dims,
                const std::source_location& where = std::source_location::current()) const;
  /// The weight, if there is one.
  std::optional<Tensor> find(std::string_view name, const std::source_location& where =
                                                        std::source_location::current()) const;
  bool contains(std::string_view name) const;

  /// Number of layers: one more than the largest N in names "<this view>.N.…".
  std::int64_t count() const;

  const std::string& origin() const;

 private:
  struct Source;
  std::optional<Tensor> declared(std::string_view name, const std::source_location& where) const;
  WeightsView(std::shared_ptr<Source> source, std::string prefix)
      : source_(std::move(source)), prefix_(std::move(prefix)) {}

  detail::Held<Source, "WeightsView"> source_;
  std::string prefix_;
};

}  // namespace tenon
