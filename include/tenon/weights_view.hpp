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

/// What a file says of its weights, for model structs to declare their tensors from:
/// `Linear{.weight = view["up"].tensor("weight")}`. A value: copies share the declarations. Tensors
/// it hands out stay valid while any view of the file, or the file, lives.
class WeightsView {
 public:
  /// `origin` names the file in messages.
  WeightsView(std::string origin, std::span<const std::pair<std::string, Shape>> weights);

  /// The view below a name: view["blk"][3]["attn_q"].
  WeightsView operator[](std::string_view part) const;
  WeightsView operator[](std::int64_t index) const;

  /// Full name of what is below: "blk.3.attn_q.weight" for name "weight".
  std::string full_name(std::string_view name) const;

  /// The weight `name` below this view. Errc::bad_reference with the full name and the file.
  Tensor tensor(std::string_view name,
                const std::source_location& where = std::source_location::current()) const;
  /// As tensor(), checked against the sizes a model expects (Errc::shape_mismatch).
  Tensor tensor(std::string_view name, std::span<const std::int64_t> dims,
                const std::source_location& where = std::source_location::current()) const;
  /// The weight, if there is one.
  std::optional<Tensor> find(std::string_view name, const std::source_location& where =
                                                        std::source_location::current()) const;
  bool contains(std::string_view name) const;

  /// One more than the largest number N in names "<this view>.N.…": how many layers a stack has.
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
