#pragma once

#include "bindings.hpp"

#include <tenon/graph.hpp>
#include <tenon/tensor.hpp>

#include <map>
#include <optional>
#include <set>
#include <source_location>
#include <string>
#include <utility>

namespace tenon::python {

class Recorder;

/// A tensor as Python holds it, with what keeps its graph alive.
struct Traced {
  Tensor tensor;
  std::shared_ptr<Recorder> recorder;
};

/// A graph under construction: `with tenon.Graph() as graph`.
class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  explicit Recorder(std::size_t budget_bytes) : graph(budget_bytes) {}

  Traced input(const std::string& name, const Shape& shape);
  Traced constant(const std::string& name, const Shape& shape);
  /// A constant that is part of the program.
  Traced capture(const std::string& name, HostBuffer value);
  Traced record(const OpInstance& op, const std::vector<Tensor>& operands);
  /// A traced tensor, an array, which becomes a constant of the program, or a number of type `type`.
  Tensor operand(nb::handle object, std::optional<DType> type);
  Program program(const std::vector<Tensor>& outputs, const std::string& name);

  /// The graph of the innermost `with` on this thread; null outside of any.
  static Recorder* current();
  void enter();
  /// Errc::call_order where another graph, or none, was entered last on this thread.
  void leave();
  /// Leaves this graph and those that were entered after it.
  void leave_all() noexcept;

  /// Where what is recorded now comes from: `place`, or the line of Python that is running.
  std::source_location location();

 private:
  /// "captured" and a number, from that of the arrays on, that no constant has.
  std::string free_name() const;
  /// What a std::source_location of libstdc++ and libc++ points to.
  struct Line {
    const char* file;
    const char* function;
    unsigned line;
    unsigned column;
  };
  std::map<std::pair<std::string, unsigned>, Line> lines_;  // the graph's nodes point to them
  std::set<std::string> weights_;  // the names of constants that are not captured

 public:
  Graph graph;
  std::map<std::string, HostBuffer> captured;
  std::optional<std::pair<std::string, unsigned>> place;
};

}  // namespace tenon::python
