#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/fields.hpp>
#include <tenon/graph.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tenon {

struct CompileOptions {
  /// As SessionOptions::backends. When empty: those of the device, or of the CPU where none is
  /// given, made with `backend`.
  std::vector<BackendPtr> backends{};
  BackendOptions backend{};
  /// Ops that the device's own backend refuses run on the CPU. Without this they are
  /// Errc::unsupported, with the reason.
  bool cpu_fallback = false;
  std::size_t arena_bytes = Graph::default_budget_bytes;
  bool optimize = true;  ///< run the rewrites of optimize.hpp
};

namespace detail {

template <auto Forward>
struct ForwardTraits;
template <class Result, class Owner, class... Args, Result (Owner::*Forward)(Args...) const>
struct ForwardTraits<Forward> {
  using Model = Owner;
  using Returns = Result;
  using Arguments = std::tuple<std::remove_cvref_t<Args>...>;
};

/// Sessions by input types: what the typed and the untyped half of an Exe share.
class SessionCache {
 public:
  using Trace = std::function<Program(std::span<const Shape> inputs)>;
  SessionCache(Trace trace, CompileOptions options);
  /// A session for inputs of these types: traced, optimised and planned at first sight.
  Session session(std::span<const Shape> inputs);
  const CompileOptions& options() const noexcept { return options_; }

 private:
  Session find_or_make(std::span<const Shape> inputs);

  Trace trace_;
  CompileOptions options_;
  std::mutex mutex_;
  std::list<std::pair<std::vector<Shape>, Session>> sessions_;  // most recently used first
};

/// The options with the backends of a device filled in.
CompileOptions on_device(const DevicePtr& device, CompileOptions options);

/// Inputs in the order of a struct's leaves.
template <class Value>
std::vector<Shape> leaf_shapes(const Value& value) {
  std::vector<Shape> shapes;
  visit_fields(value, [&](const std::string&, const auto& leaf) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(leaf)>, Shape>) {
      shapes.push_back(leaf);
    } else {
      shapes.push_back(leaf.shape());
    }
  });
  return shapes;
}

}  // namespace detail

template <auto Forward>
class BoundExe;

/// A compiled `forward`: traced from the model struct, ready to take weights. A handle; bindings
/// share it. Calls with other shapes than the compiled ones are traced and planned when they come,
/// and kept. The file whose view made the model's tensors must live as long as new shapes may come.
template <auto Forward>
class Exe {
 public:
  using Traits = detail::ForwardTraits<Forward>;
  using Model = typename Traits::Model;
  using Arguments = typename Traits::Arguments;  ///< of Tensors
  using Shapes = rebind_t<Arguments, Shape>;     ///< the same form, of Shapes
  using Buffers = rebind_t<Arguments, Buffer>;   ///< the same form, of Buffers
  using Result = rebind_t<typename Traits::Returns, Buffer>;

  Exe(Model model, const Shapes& shapes, CompileOptions options)
      : state_(std::make_shared<State>(std::move(model), shapes, std::move(options))) {}

  /// Gives the weights; cheap but for the packing that backends do once per weight. With a cache
  /// that has a file (io::prepared_file), once per file.
  BoundExe<Forward> bind(
      const Bufferized<Model>& weights,
      std::shared_ptr<PreparedCache> prepared = std::make_shared<PreparedCache>()) const {
    std::map<std::string, Buffer> named;
    collect(state_->model, weights, named);
    return BoundExe<Forward>(
        state_, std::make_shared<const WeightSet>(std::move(named), std::move(prepared)));
  }

  /// The weights of another forward of the same model, packed once for both.
  BoundExe<Forward> bind(std::shared_ptr<const WeightSet> weights) const {
    return BoundExe<Forward>(state_, std::move(weights));
  }

  /// The program for the compiled shapes, as it runs.
  const Program& program() const { return state_->first.program(); }
  /// The plan for the compiled shapes.
  PlanReport report() const {
    Session session = state_->first;
    return session.report(state_->shapes);
  }

 private:
  friend class BoundExe<Forward>;

  struct State {
    State(Model traced_model, const Shapes& arguments, CompileOptions options)
        : model(std::move(traced_model)),
          example(arguments),
          cache([this](std::span<const Shape> inputs) { return trace(inputs); },
                std::move(options)),
          shapes(detail::leaf_shapes(arguments)),
          first(cache.session(shapes)) {}

    Program trace(std::span<const Shape> inputs) {
      Graph graph(cache.options().arena_bytes);
      std::vector<std::string> names;
      visit_fields(model, [&](const std::string&, const Tensor& tensor) {
        if (!tensor.is_empty()) names.emplace_back(tensor.name());
      });
      graph.admit_only(std::move(names));
      const Graph::Recording recording(graph);
      Arguments arguments;
      std::size_t next = 0;
      transform_fields(example, arguments, [&](const std::string&, const Shape&, Tensor& to) {
        to = graph.input("", inputs[next++]);
      });
      typename Traits::Returns result =
          std::apply([&](auto&... argument) { return (model.*Forward)(argument...); }, arguments);
      std::vector<Tensor> outputs;
      visit_fields(result,
                   [&](const std::string&, const Tensor& tensor) { outputs.push_back(tensor); });
      Program program = graph.program(outputs);
      // Keeps the result's form (lengths of vectors); its tensors go with the graph.
      const std::scoped_lock lock(mutex);
      form =
          map_fields<Shape>(result, [](const std::string&, const Tensor& t) { return t.shape(); });
      return program;
    }

    Model model;
    Shapes example;
    std::mutex mutex;
    rebind_t<typename Traits::Returns, Shape> form;
    detail::SessionCache cache;
    std::vector<Shape> shapes;
    Session first;
  };

  static void collect(const Model& model, const Bufferized<Model>& weights,
                      std::map<std::string, Buffer>& named) {
    std::vector<std::string> names;
    visit_fields(model, [&](const std::string&, const Tensor& tensor) {
      names.emplace_back(tensor.is_empty() ? std::string_view() : tensor.name());
    });
    std::size_t next = 0;
    visit_fields(weights, [&](const std::string& path, const Buffer& buffer) {
      if (next == names.size()) {
        throw Error(Errc::bad_argument, "Exe::bind",
                    "the weights have more tensors than the model");
      }
      if (!names[next].empty()) {
        if (!buffer.has_data()) {
          throw Error(Errc::bad_argument, "Exe::bind", "no data for '" + path + "'");
        }
        named.insert_or_assign(names[next], buffer);
      }
      ++next;
    });
    if (next != names.size()) {
      throw Error(Errc::bad_argument, "Exe::bind", "the weights have fewer tensors than the model");
    }
  }

  std::shared_ptr<State> state_;
};

/// An Exe with weights: call it. One thread at a time per object (Errc::busy); `fork()` gives
/// another that shares everything but the activations.
template <auto Forward>
class BoundExe {
 public:
  using Unbound = Exe<Forward>;
  using Result = typename Unbound::Result;

  /// Runs forward on buffers of the arguments' forms. State that forward updates is taken over when
  /// it comes as the last handle: `auto [y, cache] = run(x, std::move(cache))`.
  template <class... Args>
  Result operator()(Args&&... args) {
    typename Unbound::Buffers buffers(std::forward<Args>(args)...);
    std::vector<Buffer> inputs;
    take_leaves(buffers, inputs);
    std::vector<Shape> shapes;
    for (const Buffer& input : inputs) shapes.push_back(input.shape().without_tags());
    std::vector<Buffer> outputs = session(shapes).forward(std::move(inputs));
    Result result;
    std::size_t next = 0;
    const std::scoped_lock lock(state_->mutex);
    transform_fields(state_->form, result, [&](const std::string&, const Shape&, Buffer& to) {
      to = std::move(outputs[next++]);
    });
    return result;
  }

  BoundExe fork() const { return BoundExe(state_, weights_); }

  /// What is bound, by the names of Exe::program()'s constants.
  const WeightSet& weights() const noexcept { return *weights_; }
  std::shared_ptr<const WeightSet> shared_weights() const noexcept { return weights_; }

 private:
  friend class Exe<Forward>;
  BoundExe(std::shared_ptr<typename Unbound::State> state, std::shared_ptr<const WeightSet> weights)
      : state_(std::move(state)), weights_(std::move(weights)) {}

  template <class Value>
  static void take_leaves(Value& value, std::vector<Buffer>& leaves) {
    Value moved = std::move(value);
    visit_fields(moved, [&](const std::string&, const Buffer& leaf) { leaves.push_back(leaf); });
  }

  Session& session(const std::vector<Shape>& shapes) {
    for (auto known = sessions_.begin(); known != sessions_.end(); ++known) {
      if (known->first != shapes) continue;
      sessions_.splice(sessions_.begin(), sessions_, known);
      return sessions_.front().second;
    }
    // One slab serves every shape: only one of them runs at a time.
    Session fresh = state_->cache.session(shapes);
    fresh = sessions_.empty() ? fresh.fork() : fresh.fork(sessions_.front().second);
    fresh.bind(weights_);
    if (sessions_.size() == max_sessions) sessions_.pop_back();
    sessions_.emplace_front(shapes, std::move(fresh));
    return sessions_.front().second;
  }

  static constexpr std::size_t max_sessions = 32;

  std::shared_ptr<typename Unbound::State> state_;
  std::shared_ptr<const WeightSet> weights_;
  std::list<std::pair<std::vector<Shape>, Session>> sessions_;
};

/// Compiles `forward` of a model for arguments of these shapes:
/// `compile<&Mlp<>::forward>(model, {Shape({8, 784}, f32)})`.
template <auto Forward>
Exe<Forward> compile(const typename Exe<Forward>::Model& model,
                     const typename Exe<Forward>::Shapes& shapes, CompileOptions options = {}) {
  return Exe<Forward>(model, shapes, std::move(options));
}

/// The same on a device, by device_backends(): "cpu:" is every backend linked in, "npu:" needs
/// register_npu_backend() and npu::Options with a calibration in CompileOptions::backend.device.
/// The plan for these shapes is made at once, so that an op that nothing may run is found here.
/// Errors: those of device_backends(); Errc::unsupported naming the op and why it is refused.
template <auto Forward>
Exe<Forward> compile(const typename Exe<Forward>::Model& model,
                     const typename Exe<Forward>::Shapes& shapes, const DevicePtr& device,
                     CompileOptions options = {}) {
  Exe<Forward> exe(model, shapes, detail::on_device(device, std::move(options)));
  static_cast<void>(exe.report());
  return exe;
}

}  // namespace tenon
