#include "arrays.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/error.hpp>
#include <tenon/graph.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/ops/permute.hpp>
#include <tenon/program.hpp>
#include <tenon/session.hpp>
#include <tenon/testkit.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <source_location>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::testkit {
namespace {

/// An array whose elements lie apart and run backwards, and the memory that they lie in.
struct Scattered {
  HostBuffer memory;
  HostBuffer view;

  explicit Scattered(const HostBuffer& dense)
      : memory(HostBuffer::zeros(Shape({room(dense.shape())}, u8))), view(scatter(dense)) {}

 private:
  static std::int64_t room(const Shape& shape) {
    std::int64_t bytes = 2 * block_bytes(shape.dtype());
    for (int i = 0; i < shape.rank(); ++i) bytes *= shape[i] + 1;
    return bytes;
  }
  HostBuffer scatter(const HostBuffer& dense) const {
    const Shape& shape = dense.shape();
    Strides strides{};
    std::int64_t step = 2 * block_bytes(shape.dtype()), offset = 0;
    for (int i = 0; i < shape.rank(); ++i) {  // axis 0 varies fastest
      const auto axis = static_cast<std::size_t>(i);
      strides[axis] = step;
      step *= shape[i] + 1;
      if (i == 0 && shape[i] > 0) {
        offset = strides[axis] * (shape[i] - 1);
        strides[axis] = -strides[axis];
      }
    }
    HostBuffer result = HostBuffer::borrow(memory.view().data + offset, shape, strides);
    copy_elements(dense.view(), result.view());
    return result;
  }
};

std::string list_of(std::span<const Shape> shapes) {
  std::vector<std::string> texts;
  for (const Shape& shape : shapes) texts.push_back(to_string(shape));
  return fmt::format("{}", fmt::join(texts, " "));
}

std::vector<Shape> shapes_of(std::span<const HostBuffer> arrays) {
  std::vector<Shape> shapes;
  for (const HostBuffer& array : arrays) shapes.push_back(array.shape());
  return shapes;
}

class OpCheck {
 public:
  OpCheck(const OpInstance& op, const OpCheckOptions& options)
      : op_(op), read_back_(*op.def()), options_(options), engine_(options.seed) {}

  std::vector<std::string> run(std::span<const Shape> inputs) {
    const Shape output = infer(inputs);  // throws what it says of the inputs
    guarded("attributes", [&] { check_attributes(); });
    guarded("infer()", [&] { check_infer(inputs, output); });
    guarded("the program's text", [&] { check_text(inputs); });
    for (const std::vector<Shape>& sizes : sizes_to_try(inputs)) {
      std::vector<HostBuffer> arrays;
      for (const Shape& shape : sizes) arrays.push_back(random(shape));
      guarded("reference()", [&] { check_values(arrays); });
    }
    return std::move(findings_);
  }

 private:
  template <class Check>
  void guarded(std::string_view what, const Check& check) {
    try {
      check();
    } catch (const std::exception& error) {
      find("{} threw: {}", what, error.what());
    }
  }
  template <class... Facts>
  void find(fmt::format_string<Facts...> format, Facts&&... facts) {
    findings_.push_back(fmt::format("{}: {} (seed {})", to_string(op_),
                                    fmt::format(format, std::forward<Facts>(facts)...),
                                    options_.seed));
  }

  Shape infer(std::span<const Shape> inputs) const {
    const auto count = static_cast<int>(inputs.size());
    if (count < op_.def()->min_inputs || count > op_.def()->max_inputs) {
      fail(Errc::bad_argument, op_.def()->name, fmt::format("{} operands", count));
    }
    return op_.def()->infer(op_.attributes(), inputs);
  }

  HostBuffer random(const Shape& shape) {
    return random_array(shape, engine_, options_.low, options_.high);
  }

  /// As they are, and with nothing along the first axis of those that agree in it.
  std::vector<std::vector<Shape>> sizes_to_try(std::span<const Shape> inputs) const {
    std::vector<std::vector<Shape>> all{{inputs.begin(), inputs.end()}};
    std::vector<Shape> empty(inputs.begin(), inputs.end());
    for (Shape& shape : empty) {
      if (shape.rank() > 0 && shape[0] == inputs[0][0])
        shape = shape.without_axis(0).with_axis(0, Axis(0));
    }
    try {
      static_cast<void>(infer(empty));
      if (!inputs.empty() && inputs[0].rank() > 0) all.push_back(std::move(empty));
    } catch (const Error&) {
      // An op may want elements.
    }
    return all;
  }

  void check_attributes() {
    OpInstance& copy = read_back_;
    for (const AttributeField& field : op_.def()->fields) {
      const AttributeValue value = field.get(op_.attributes());
      if (!field.set(copy.attributes(), value) || !(field.get(copy.attributes()) == value)) {
        find("attribute '{}' does not read back what was stored", field.name);
      }
    }
  }

  void check_infer(std::span<const Shape> inputs, const Shape& output) {
    if (!(infer(inputs) == output)) find("infer() says two things of the same inputs");
    std::vector<Shape> symbolic(inputs.begin(), inputs.end());
    for (Shape& shape : symbolic) {
      if (shape.rank() > 0) shape = shape.without_axis(0).with_axis(0, Axis(symbol("n")));
    }
    const Shape of_symbols = infer(symbolic);
    if (of_symbols.rank() != output.rank() || of_symbols.dtype() != output.dtype()) {
      find("infer() says {} of symbolic sizes and {} of numbers", to_string(of_symbols),
           to_string(output));
    }
  }

  /// What a program does around the op.
  struct Around {
    bool constants = false;  // inputs are constants of the program
    bool permuted = false;   // and permuted, so that their elements lie apart
    bool again = false;      // input 0 is used behind the op, too
  };

  Program program(std::span<const Shape> inputs, const Around& around) const {
    Graph graph(small_graph_bytes);
    const Graph::Recording recording(graph);
    const auto here = std::source_location::current();
    std::vector<Tensor> operands;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = fmt::format("x{}", i);
      Shape stored = inputs[i];
      if (around.permuted) stored = reversed(stored);
      Tensor x = around.constants ? graph.constant(name, stored) : graph.input(name, stored);
      if (around.permuted) {
        const std::vector<int> axes = axes_of(stored);
        x = permute(x, std::vector<AxisRef>(axes.begin(), axes.end()));
      }
      operands.push_back(x);
    }
    std::vector<Tensor> outputs{record(*op_.def(), op_.attributes(), operands, here)};
    if (around.again) {
      outputs.push_back(record(*op_.def(), op_.attributes(), operands, here));
      outputs.push_back(operands[0]);
    }
    return graph.program(outputs);
  }
  static Shape reversed(const Shape& shape) {
    std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
    std::ranges::reverse(dims);
    return Shape(std::span<const std::int64_t>(dims), shape.dtype());
  }
  /// Last axis first.
  static std::vector<int> axes_of(const Shape& shape) {
    std::vector<int> axes;
    for (int i = shape.rank(); i-- > 0;) axes.push_back(i);
    return axes;
  }

  void check_text(std::span<const Shape> inputs) {
    if (find_op(op_.def()->name) != op_.def()) return;  // not registered: there is nothing to parse
    const std::string text = print(program(inputs, {}));
    if (print(parse(text)) != text)
      find("its program does not print again as it was parsed:\n{}", text);
  }

  HostBuffer reference(std::span<const HostBuffer> inputs, std::byte before) const {
    return reference(inputs, before, op_);
  }
  HostBuffer reference(std::span<const HostBuffer> inputs, std::byte before,
                       const OpInstance& op) const {
    HostBuffer output = HostBuffer::uninitialized(infer(shapes_of(inputs)));
    std::fill_n(output.view().data, output.shape().bytes(), before);
    std::vector<HostView> views;
    for (const HostBuffer& input : inputs) views.push_back(input.view());
    op.def()->reference(op.attributes(), views, output.view());
    return output;
  }

  void check_values(std::span<const HostBuffer> inputs) {
    const HostBuffer want = reference(inputs, std::byte{0xA5});
    if (!same_bytes(want, reference(inputs, std::byte{0xA5}, read_back_))) {
      find("an attribute that `fields` does not name changes the result");
    }
    if (!same_bytes(want, reference(inputs, std::byte{0x5A}))) {
      find("reference() leaves elements of {} unwritten, or is different each time",
           to_string(want.shape()));
    }
    std::vector<Scattered> scattered;
    std::vector<HostBuffer> apart;
    for (const HostBuffer& input : inputs) scattered.emplace_back(input);
    for (const Scattered& array : scattered) apart.push_back(array.view);
    if (!same_bytes(want, reference(apart, std::byte{0xA5}))) {
      find("reference() of strided inputs is not that of dense ones");
    }
    check_in_place(inputs, want);
    if (op_.def()->view != nullptr) check_view(inputs[0], want);
    for (const BackendPtr& backend : options_.backends) check_backend(backend, inputs, want);
  }

  void check_in_place(std::span<const HostBuffer> inputs, const HostBuffer& want) {
    for (std::size_t i = 0; i < inputs.size() && i < 32; ++i) {
      const bool may = (op_.def()->traits.in_place_inputs >> i & 1u) != 0;
      if (!may || !(inputs[i].shape() == want.shape())) continue;
      std::vector<HostView> views;
      for (const HostBuffer& input : inputs) views.push_back(input.view());
      const HostBuffer own = copy_of(inputs[i]);
      views[i] = own.view();
      op_.def()->reference(op_.attributes(), views, own.view());
      if (!same_bytes(own, want)) {
        find("`in_place_inputs` names input {}, but overwriting it changes the result", i);
      }
    }
  }

  void check_view(const HostBuffer& input, const HostBuffer& want) {
    ViewPlacement placement;
    if (!op_.def()->view(op_.attributes(), input.view(), want.shape(), placement)) {
      find("view() does not share a dense input");
      return;
    }
    const HostView placed(input.view().data + placement.offset_bytes, want.shape(),
                          placement.strides);
    HostBuffer copy = HostBuffer::uninitialized(want.shape());
    copy_elements(placed, copy.view());
    if (!same_bytes(copy, want)) find("view() places other elements than reference() copies");
  }

  void check_backend(const BackendPtr& backend, std::span<const HostBuffer> inputs,
                     const HostBuffer& want) {
    for (const Around& around :
         {Around{}, Around{.permuted = true}, Around{.constants = true},
          Around{.constants = true, .permuted = true}, Around{.again = true}}) {
      const std::string where = fmt::format(
          "{}{}{}{}, {}", backend->name(), around.constants ? ", inputs as constants" : "",
          around.permuted ? ", inputs strided" : "", around.again ? ", input used again" : "",
          list_of(shapes_of(inputs)));
      guarded(where, [&] { run_on(backend, inputs, want, around, where); });
    }
  }

  void run_on(const BackendPtr& backend, std::span<const HostBuffer> inputs, const HostBuffer& want,
              const Around& around, const std::string& where) {
    std::map<std::string, Buffer> weights;
    std::vector<Buffer> given;
    std::vector<Shape> shapes;
    std::vector<HostBuffer> originals, copies;  // the session has the copies
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      HostBuffer stored = inputs[i];
      if (around.permuted) stored = stored.permute(axes_of(stored.shape())).contiguous();
      originals.push_back(stored);
      copies.push_back(copy_of(stored));
      const Buffer buffer = copies.back().to_device(cpu_device());
      if (around.constants) {
        weights.emplace(fmt::format("x{}", i), buffer);
      } else {
        given.push_back(buffer);
        shapes.push_back(stored.shape());
      }
    }
    Session session(program(shapes_of(inputs), around),
                    {.backends = {backend, make_reference_backend({})}});
    session.bind(std::make_shared<const WeightSet>(std::move(weights)));
    const bool is_plain = !around.constants && !around.permuted && want.shape().elements() > 0;
    for (const auto& fallback : session.report(shapes).fallbacks) {
      if (fallback.op != op_.def()->name || (options_.may_refuse && !is_plain)) continue;
      find("{}: refused: {}", where, fallback.why);
    }
    const std::vector<Buffer> first = session.forward(given), second = session.forward(given);
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (!same_bytes(first[i].to_host(), second[i].to_host())) {
        find("{}: a second run gives other bytes", where);
      }
    }
    for (std::size_t i = 0; i < copies.size(); ++i) {
      if (!same_bytes(copies[i], originals[i])) find("{}: it changed its input {}", where, i);
    }
    compare(first[0].to_host(), want, where);
    if (!around.again) return;
    compare(first[1].to_host(), want, where + ", the second time");
    if (!same_bytes(first[2].to_host(), inputs[0])) find("{}: its input is another later", where);
  }

  void compare(const HostBuffer& got, const HostBuffer& want, const std::string& where) {
    if (const auto wrong = difference(got, want, options_.tolerance)) find("{}: {}", where, *wrong);
  }

  OpInstance op_;
  OpInstance read_back_;  // made of what `fields` names alone
  OpCheckOptions options_;
  std::mt19937_64 engine_;
  std::vector<std::string> findings_;
};

}  // namespace

std::vector<std::string> check_op(const OpInstance& op, std::span<const Shape> inputs,
                                  const OpCheckOptions& options) {
  return OpCheck(op, options).run(inputs);
}

}  // namespace tenon::testkit
