#pragma once

#include <tenon/program.hpp>
#include <tenon/tensor.hpp>

#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// Records tensors in one bump arena with a fixed budget. Nodes are in topological order: an op's
/// inputs are recorded before it. Not thread-safe; different graphs are independent.
class Graph {
 public:
  static constexpr std::size_t default_budget_bytes = std::size_t{16} << 20;

  explicit Graph(std::size_t budget_bytes = default_budget_bytes);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::size_t budget() const noexcept;
  std::size_t used() const noexcept;

  /// A value the caller provides at each run. Names are unique (Errc::duplicate_name); an empty
  /// name becomes "x0", "x1", ...
  Tensor input(std::string_view name, const Shape& shape,
               const std::source_location& where = std::source_location::current());

  /// A constant, bound by name before the first run: a weight of a file. A second call with the
  /// same name returns the same tensor; with another type it throws Errc::shape_mismatch.
  Tensor constant(std::string_view name, const Shape& shape,
                  const std::source_location& where = std::source_location::current());

  /// From now on, recording a weight of a file whose name is not in `names` throws
  /// Errc::bad_reference naming it. Detects weights that a model uses but does not list in its
  /// fields.
  void admit_only(std::vector<std::string> names);

  /// While one exists, this thread records ops without inputs (iota, full) and ops on weights alone
  /// in `graph`. May be nested: the innermost applies.
  class Recording {
   public:
    explicit Recording(Graph& graph) noexcept;
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    Graph* outer_;
  };

  /// The graph as a program whose function `name` returns `outputs`, without ops that no output
  /// needs. The program does not refer to the graph.
  Program program(std::span<const Tensor> outputs, std::string_view name = "forward") const;

  struct Impl;  // for the library's own sources
  Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Traces the layers of a stack and merges equal ones into one function that is repeated. For each
/// layer: begin(), ops on what begin() returned, end(). After the last layer, finish() returns the
/// stack's results. Layers whose functions print alike share one function; consecutive ones become
/// one `repeat`.
///
/// Use through `tenon::repeat` (repeat.hpp), which also gathers the layers' weight names.
class RepeatRecorder {
 public:
  /// Results of a layer have the types of `carry` (Errc::shape_mismatch names the layer).
  RepeatRecorder(std::span<const Tensor> carry, const std::source_location& where);
  ~RepeatRecorder();

  struct Frame {
    std::vector<Tensor> carry;
    Tensor index;  ///< i64[]: the layer's index
  };
  /// Starts the next layer; `weights` are the tensors declared for it.
  Frame begin(std::span<const Tensor> weights);
  /// Another value that is carried, while the first layer is traced; `start` is of the function around it.
  /// Errc::call_order at any other time.
  Tensor carry(const Tensor& start);
  /// `times`: how often the layer runs, with indices that count on. Errc::bad_argument below 0, and
  /// for weights with a number in their names when it is not 1. `condition`: the number of the carried
  /// value, a bool[], that must be true for the layer to run (again); -1: none.
  void end(std::span<const Tensor> results, std::int64_t times = 1, std::int64_t condition = -1);
  std::vector<Tensor> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon
