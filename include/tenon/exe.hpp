#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/fields.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/graph.hpp>
#include <tenon/held.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/optimize.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <concepts>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
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
  /// As SessionOptions::forbid_fallback.
  bool forbid_fallback = false;
  /// As SessionOptions::results_on_device; set by compile() for a device.
  bool results_on_device = false;
  std::size_t arena_bytes = Graph::default_budget_bytes;
  bool optimize = true;  ///< run the rewrites of optimize.hpp
  /// A folder, created if missing, that keeps what backends make of weights at bind (packed
  /// weights, programs and constants of an NPU) for the next process. There is one file per set of
  /// weights, named after a digest, for which every weight is read once. Only files that nobody
  /// else can have written are used (PreparedCache). Empty: nothing is kept. A cache that is given
  /// to Exe::bind is used instead: that of io::prepared_file() reads no weights, which suits large
  /// files.
  std::filesystem::path cache{};
  /// Names of forward's arguments, in order, for the program and for messages; the fields of an
  /// argument "cache" are "cache.keys" and so on. Without names they are "x0", "x1", ... More names
  /// than arguments, or one twice, are Errc::bad_argument.
  std::vector<std::string> arguments{};
  /// Calls with arguments that do not fit the compiled shapes are Errc::bad_input, naming the
  /// argument, instead of being traced and planned when they are made: a server's latency then has
  /// no surprises. Known sizes must be equal, and a symbolic one the same number wherever it
  /// stands.
  bool closed_shapes = false;
};

namespace detail {

template <auto Forward>
struct ForwardTraits {
  static_assert(!std::is_same_v<decltype(Forward), decltype(Forward)>,
                "compile<&Net<>::forward> takes a const member function of the model's struct");
};
template <class Result, class Owner, class... Args, Result (Owner::*Forward)(Args...) const>
struct ForwardTraits<Forward> {
  using Model = Owner;
  static_assert(!std::is_void_v<Result>, "forward returns a tensor, or a form of tensors");
  using Returns = Result;
  using Arguments = std::tuple<std::remove_cvref_t<Args>...>;
};

/// A program as recorded, and the form of what forward returned (an Exe knows its type).
struct Traced {
  Program program;
  std::shared_ptr<const void> form;
};

/// Sessions by input shapes and dtypes.
class SessionCache {
 public:
  using Trace = std::function<Traced(std::span<const Shape> inputs)>;
  struct Entry {
    Session session;
    std::shared_ptr<const void> form;
  };
  SessionCache(Trace trace, CompileOptions options);
  /// The session for inputs of these types; the first call for them traces, optimises and plans it.
  Entry session(std::span<const Shape> inputs);
  const CompileOptions& options() const noexcept { return options_; }

 private:
  Entry find_or_make(std::span<const Shape> inputs);

  Trace trace_;
  CompileOptions options_;
  ForkAwareMutex mutex_{"Exe"};
  std::list<std::pair<std::vector<Shape>, Entry>> sessions_;  // most recently used first
};

/// The options with the backends of a device filled in.
CompileOptions on_device(const DevicePtr& device, CompileOptions options);

/// The leaves of forward's arguments in order: their declared shapes and their names.
class ArgumentList {
 public:
  /// `paths` as visit_fields gives them for the tuple of `argument_count` arguments, of which one
  /// may have no leaves. Errc::bad_argument for a name that stands twice, or for none of them.
  ArgumentList(std::vector<std::string> paths, std::vector<Shape> declared,
               std::vector<std::string> names, std::size_t argument_count);

  const std::vector<Shape>& declared() const noexcept { return declared_; }
  bool is_static() const noexcept;
  /// Name of leaf `i`, such as "cache.keys"; empty where its argument has no name.
  std::string name(std::size_t i) const;
  /// These types with the tags of the declared ones of the same rank.
  std::vector<Shape> with_tags(std::span<const Shape> inputs) const;
  /// The types of a call's buffers, without tags. Errc::bad_input naming an argument that has
  /// another form than the declared one, that has no data, or whose tags contradict the declared.
  std::vector<Shape> shapes_of(std::span<const std::string> paths,
                               std::span<Buffer* const> leaves) const;
  /// Errc::bad_input, naming the argument: forward was compiled with another plain value.
  [[noreturn]] void refuse_value(const OtherValue& value) const;
  /// Errc::bad_input, naming the argument, unless these types fit the declared ones:
  /// CompileOptions::closed_shapes.
  void check_fit(std::span<const Shape> inputs) const;

 private:
  std::string name_of(const std::string& path) const;
  std::string described(const std::string& path) const;
  std::string described(std::size_t i) const { return described(paths_[i]); }
  void check_form(std::span<const std::string> paths) const;
  void check_tags(std::size_t i, const Shape& given) const;

  std::vector<std::string> paths_;
  std::vector<Shape> declared_;
  std::vector<std::string> names_;
};

/// Keeps the file's view alive that a model's tensor was declared by; null for tensors of a graph.
std::shared_ptr<const void> declaration_of(const Tensor& tensor, const std::string& path);

/// To be called in a catch block: rethrows the exception; where it reports the use of an empty
/// tensor, with the names of the model's empty fields added.
[[noreturn]] void rethrow_with_fields(std::span<const std::string> empty_fields);

/// A model's weights for binding: buffers by the names of its tensors. Errc::bad_argument names the
/// fields that are missing, superfluous or without data.
struct NamedField {
  std::string path;
  std::string tensor;  ///< its name; empty for an empty tensor
};
std::map<std::string, Buffer> named_weights(std::span<const NamedField> fields,
                                            std::span<const std::string> paths,
                                            std::span<const Buffer* const> weights);

/// A cache in a file of `folder` that is named after the digest of the weights; null for an empty
/// path. What fails is logged, and the cache keeps nothing.
std::shared_ptr<PreparedCache> disk_cache(const std::filesystem::path& folder,
                                          const std::map<std::string, Buffer>& weights);

/// The buffer under the tags of `shape`.
Buffer with_tags(Buffer buffer, const Shape& shape);

}  // namespace detail

template <auto Forward>
class BoundExe;

/// A compiled `forward`: traced from the model struct, without weights yet. A handle that bindings
/// share; calls on a moved-from one throw Errc::call_order. A call with shapes other than the
/// compiled ones is traced and planned at that time, and the plan is kept, or refused
/// (CompileOptions::closed_shapes); the axis tags of the compiled shapes apply to it, too. Keeps
/// the declarations of the model's tensors, so that the file may be closed.
template <auto Forward>
class Exe {
 public:
  using Traits = detail::ForwardTraits<Forward>;
  using Model = typename Traits::Model;
  using Arguments = typename Traits::Arguments;  ///< of Tensors
  using Shapes = rebind_t<Arguments, Shape>;     ///< the same form, of Shapes
  using Buffers = rebind_t<Arguments, Buffer>;   ///< the same form, of Buffers
  using Result = rebind_t<typename Traits::Returns, Buffer>;
  static_assert(detail::has_buffers<Arguments> && detail::has_buffers<typename Traits::Returns>,
                "a struct that forward takes or returns is a template whose one parameter is the "
                "type of its tensors: template <class T = Tensor> struct State { T cache; ... }");

  /// `where` is the line that inputs are said to come from in messages.
  Exe(Model model, const Shapes& shapes, CompileOptions options,
      const std::source_location& where = std::source_location::current())
      : state_(with_memory_errors("compile", [&] {
          return std::make_shared<State>(std::move(model), shapes, std::move(options), where);
        })) {}

  /// Binds weights. The cost is that of packing, which backends do once per weight or, with a cache
  /// that has a file (io::prepared_file, CompileOptions::cache), once per file. Weights may be on
  /// any device: those that the CPU cannot address are copied when a backend in CPU memory first
  /// uses them (PlanReport::weight_copies).
  BoundExe<Forward> bind(const Bufferized<Model>& weights,
                         std::shared_ptr<PreparedCache> prepared = nullptr) const {
    return with_memory_errors("Exe::bind", [&] {
      auto buffers = named(weights);
      if (!prepared) prepared = detail::disk_cache(state_->cache.options().cache, buffers);
      return BoundExe<Forward>(state_.shared(), std::make_shared<const WeightSet>(
                                                    std::move(buffers), std::move(prepared)));
    });
  }

  /// Binds the weights of another forward of the same model, packed once for both.
  /// Errc::bad_argument for null. (A template, so that `bind({})` is the other one.)
  template <std::convertible_to<std::shared_ptr<const WeightSet>> Weights>
  BoundExe<Forward> bind(Weights weights) const {
    std::shared_ptr<const WeightSet> shared(std::move(weights));
    if (shared == nullptr) throw Error(Errc::bad_argument, "Exe::bind", "no weights: null");
    return BoundExe<Forward>(state_.shared(), std::move(shared));
  }

  /// The optimised program for the compiled shapes.
  const Program& program() const { return state_->first.program(); }
  /// Whether every size of the compiled shapes is known.
  bool is_static() const { return state_->arguments.is_static(); }
  /// The plan for the compiled shapes. Errc::bad_input when one of their sizes is symbolic.
  PlanReport report() const {
    Session session = state_->first;
    return session.report(state_->arguments.declared());
  }

 private:
  friend class BoundExe<Forward>;
  using Form = rebind_t<typename Traits::Returns, Shape>;

  struct State {
    State(Model traced_model, const Shapes& shapes, CompileOptions options,
          const std::source_location& compiled_at)
        : model(std::move(traced_model)),
          example(shapes),
          where(compiled_at),
          arguments(leaves_of(shapes, options.arguments)),
          cache([this](std::span<const Shape> inputs) { return trace(inputs); },
                std::move(options)),
          first(cache.session(arguments.declared()).session) {}

    static detail::ArgumentList leaves_of(const Shapes& shapes, std::vector<std::string> names) {
      std::vector<std::string> paths;
      std::vector<Shape> declared;
      visit_fields(shapes, [&](const std::string& path, const Shape& shape) {
        paths.push_back(path);
        declared.push_back(shape);
      });
      return {std::move(paths), std::move(declared), std::move(names), std::tuple_size_v<Shapes>};
    }

    /// Errc::bad_input, naming it, where a plain value of the arguments is not the compiled one.
    template <class Given>
    void check_values(const Given& given) const {
      detail::FieldWalk walk("");
      std::optional<detail::OtherValue> other;
      detail::find_other_value(given, example, walk, other);
      if (other) arguments.refuse_value(*other);
    }

    detail::Traced trace(std::span<const Shape> inputs) {
      Graph graph(cache.options().arena_bytes);
      std::vector<std::string> names, empty;
      visit_fields(model, [&](const std::string& path, const Tensor& tensor) {
        if (tensor.is_empty()) {
          empty.push_back(path);
          return;
        }
        // In the first trace, while the model's tensors are still valid.
        if (!declarations_known) declarations.push_back(detail::declaration_of(tensor, path));
        names.emplace_back(tensor.name());
      });
      declarations_known = true;
      graph.admit_only(std::move(names));
      const Graph::Recording recording(graph);
      try {
        return trace(graph, arguments.with_tags(inputs));
      } catch (const Error&) {
        detail::rethrow_with_fields(empty);
      }
    }

    detail::Traced trace(Graph& graph, const std::vector<Shape>& inputs) const {
      Arguments tensors;
      std::size_t next = 0;
      transform_fields(example, tensors, [&](const std::string&, const Shape&, Tensor& to) {
        to = graph.input(arguments.name(next), inputs[next], where);
        ++next;
      });
      typename Traits::Returns result =
          std::apply([&](auto&... tensor) { return (model.*Forward)(tensor...); }, tensors);
      std::vector<Tensor> outputs;
      visit_fields(result,
                   [&](const std::string&, const Tensor& tensor) { outputs.push_back(tensor); });
      Program program = graph.program(outputs);
      // The form of the result: lengths of vectors, and tags. Its tensors are freed with the graph.
      return {
          std::move(program),
          std::make_shared<const Form>(map_fields<Shape>(
              result, [](const std::string&, const Tensor& tensor) { return tensor.shape(); }))};
    }

    Model model;
    Shapes example;
    std::source_location where;
    detail::ArgumentList arguments;
    std::vector<std::shared_ptr<const void>> declarations;
    bool declarations_known = false;
    detail::SessionCache cache;
    Session first;
  };

  std::map<std::string, Buffer> named(const Bufferized<Model>& weights) const {
    static_assert(detail::has_buffers<Model>,
                  "a model's struct is a template whose one parameter is the type of its tensors: "
                  "template <class T = Tensor> struct Net { T weight; ... }");
    if constexpr (detail::has_buffers<Model>) return named_leaves(weights);
  }
  std::map<std::string, Buffer> named_leaves(const Bufferized<Model>& weights) const {
    std::vector<detail::NamedField> fields;
    visit_fields(state_->model, [&](const std::string& path, const Tensor& tensor) {
      fields.push_back({path, tensor.is_empty() ? std::string() : std::string(tensor.name())});
    });
    std::vector<std::string> paths;
    std::vector<const Buffer*> leaves;
    visit_fields(weights, [&](const std::string& path, const Buffer& leaf) {
      paths.push_back(path);
      leaves.push_back(&leaf);
    });
    return detail::named_weights(fields, paths, leaves);
  }

  detail::Held<State, "Exe"> state_;
};

/// An Exe with weights, to be called. One thread at a time per object (Errc::busy); `fork()` makes
/// another that shares everything except the activations. Calls on a moved-from one throw
/// Errc::call_order.
template <auto Forward>
class BoundExe {
 public:
  using Unbound = Exe<Forward>;
  using Buffers = typename Unbound::Buffers;
  using Result = typename Unbound::Result;

  /// Runs forward on buffers in the structure of its arguments; results have the axis tags that
  /// forward gave them. State that forward updates is updated in place when the call gets its last
  /// handle, and copied otherwise: `auto [y, cache] = run(x, std::move(cache))`.
  ///
  /// When a call throws, moved arguments are back in the caller's variables. The elements of state
  /// that forward updates then have unspecified values; all others are unchanged, so that a KV
  /// cache still holds the positions before the call.
  ///
  /// Errors: Errc::bad_input, naming an argument whose structure is not the compiled one, that has
  /// no data, whose axis tags contradict the compiled ones, or in which a plain value (a number, a
  /// text) is not the compiled one; those of forward and of Session::forward.
  template <class... Args>
  Result operator()(Args&&... args) {
    static_assert(fits<Args...>(),
                  "call it with a Buffer, or a struct of Buffers, for each of "
                  "forward's arguments, in their order");
    if constexpr (fits<Args...>()) {
      return with_memory_errors("forward", [&] {
        return call([](Session& session,
                       std::vector<Buffer>& inputs) { return session.forward(std::move(inputs)); },
                    std::index_sequence_for<Args...>(), std::forward<Args>(args)...);
      });
    }
  }

  /// As operator(), but returns at once: Session::submit. Arguments that are moved in are not given
  /// back where the run fails after that.
  template <class... Args>
  Result submit(Args&&... args) {
    static_assert(fits<Args...>(),
                  "call it with a Buffer, or a struct of Buffers, for each of "
                  "forward's arguments, in their order");
    if constexpr (fits<Args...>()) {
      return with_memory_errors("submit", [&] {
        return call([](Session& session,
                       std::vector<Buffer>& inputs) { return session.submit(std::move(inputs)); },
                    std::index_sequence_for<Args...>(), std::forward<Args>(args)...);
      });
    }
  }

  /// As Session::set_interrupt, for calls of every shape.
  void set_interrupt(Interrupt interrupt) { interrupt_ = std::move(interrupt); }

  BoundExe fork() const { return BoundExe(state_.shared(), weights_.shared()); }

  /// As for Session, for calls of every shape. Errc::call_order after the first call or prepare().
  void enable_time_profile(bool enable) {
    check_not_called("enable_time_profile");
    profile_ = enable;
  }
  void set_trace(std::shared_ptr<Trace> trace) {
    check_not_called("set_trace");
    trace_ = std::move(trace);
  }
  /// Times of the last call, when enable_time_profile() was called; Profile sums them up.
  std::span<const StepTime> step_times() const {
    if (sessions_.empty()) return {};
    return sessions_.front().second.session.step_times();
  }

  /// The bound weights, by the names of Exe::program()'s constants.
  const WeightSet& weights() const { return *weights_; }
  std::shared_ptr<const WeightSet> shared_weights() const { return weights_.shared(); }

  /// The plan for the compiled shapes with these weights. Errc::bad_input when a size is symbolic.
  PlanReport report() const {
    Session session = state_->first.fork();
    session.bind(weights_.shared());
    return session.report(state_->arguments.declared());
  }

  /// The preparation of a call with arguments of these shapes: records the program, plans it and
  /// has the weights packed, unless that was done before.
  void prepare(const typename Unbound::Shapes& arguments) {
    const std::vector<Shape> shapes = shapes_of(arguments);
    entry_of(shapes).session.prepare(shapes);
  }

  /// A session with the program, plans and weights of calls with arguments of these shapes, for what a session has and an
  /// executable has not: report(), explain() and save() of a model with symbolic sizes, steps and views.
  Session session(const typename Unbound::Shapes& arguments) {
    return entry_of(shapes_of(arguments)).session.fork();
  }

 private:
  friend class Exe<Forward>;
  using State = typename Unbound::State;
  using Form = typename Unbound::Form;
  using Entry = detail::SessionCache::Entry;

  BoundExe(std::shared_ptr<State> state, std::shared_ptr<const WeightSet> weights)
      : state_(std::move(state)), weights_(std::move(weights)) {}

  template <class... Args>
  static constexpr bool fits() {
    if constexpr (sizeof...(Args) == std::tuple_size_v<Buffers>) {
      return []<std::size_t... I>(std::index_sequence<I...>) {
        return (std::is_constructible_v<std::tuple_element_t<I, Buffers>, Args> && ...);
      }(std::index_sequence_for<Args...>());
    } else {
      return false;
    }
  }

  /// An argument that call() moves, or a copy.
  template <std::size_t I, class Arg, class Value = std::tuple_element_t<I, Buffers>>
  using Taken = std::conditional_t<std::is_same_v<Arg, Value>, Value&&, Value>;

  /// `run` runs a session on inputs, which it leaves alone where it throws.
  template <class Run, std::size_t... I, class... Args>
  Result call(Run run, std::index_sequence<I...>, Args&&... args) {
    // Copies are made first: where one throws, nothing has been moved.
    std::tuple<Taken<I, Args>...> copied(std::forward<Args>(args)...);
    Buffers buffers(std::move(copied));
    std::vector<Buffer> inputs;
    std::vector<Buffer*> leaves;
    try {
      Entry& entry = session_for(buffers, leaves);
      // Made before the run: behind it, no memory may be needed, since arguments that it took are in its results.
      Result result;
      const Places places = places_of(*static_cast<const Form*>(entry.form.get()), result);
      inputs.reserve(leaves.size());
      for (Buffer* leaf : leaves) inputs.push_back(std::move(*leaf));
      fill(places, run(entry.session, inputs));
      return result;
    } catch (...) {
      for (std::size_t i = 0; i < inputs.size(); ++i) *leaves[i] = std::move(inputs[i]);
      (give_back<Args>(std::get<I>(buffers), args), ...);
      throw;
    }
  }

  /// The session for arguments like these, and the arguments' leaves.
  Entry& session_for(Buffers& buffers, std::vector<Buffer*>& leaves) {
    std::vector<std::string> paths;
    visit_fields(buffers, [&](const std::string& path, Buffer& leaf) {
      paths.push_back(path);
      leaves.push_back(&leaf);
    });
    const std::vector<Shape> shapes = state_->arguments.shapes_of(paths, leaves);
    state_->check_values(buffers);
    Entry& entry = entry_of(shapes);
    entry.session.set_interrupt(interrupt_);
    return entry;
  }

  /// Undoes the move of an argument.
  template <class Arg, class Value>
  static void give_back(Value& value, std::remove_reference_t<Arg>& arg) {
    if constexpr (std::is_same_v<Arg, Value>) arg = std::move(value);
  }

  /// The leaves of a result, with the shapes whose tags they get.
  using Places = std::vector<std::pair<const Shape*, Buffer*>>;
  static Places places_of(const Form& form, Result& result) {
    Places places;
    transform_fields(form, result, [&](const std::string&, const Shape& shape, Buffer& to) {
      places.emplace_back(&shape, &to);
    });
    return places;
  }
  static void fill(const Places& places, std::vector<Buffer> outputs) {
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto& [shape, to] = places[i];
      *to = detail::with_tags(std::move(outputs[i]), *shape);
    }
  }

  /// Of the leaves of arguments, without tags.
  std::vector<Shape> shapes_of(const typename Unbound::Shapes& arguments) const {
    std::vector<Shape> shapes;
    visit_fields(arguments, [&](const std::string&, const Shape& shape) {
      shapes.push_back(shape.without_tags());
    });
    state_->check_values(arguments);
    return shapes;
  }

  Entry& entry_of(const std::vector<Shape>& shapes) {
    for (auto known = sessions_.begin(); known != sessions_.end(); ++known) {
      if (known->first != shapes) continue;
      sessions_.splice(sessions_.begin(), sessions_, known);
      return sessions_.front().second;
    }
    if (state_->cache.options().closed_shapes) state_->arguments.check_fit(shapes);
    // All shapes share one slab: only one of them runs at a time.
    Entry fresh = state_->cache.session(shapes);
    fresh.session = sessions_.empty() ? fresh.session.fork()
                                      : fresh.session.fork(sessions_.front().second.session);
    fresh.session.bind(weights_.shared());
    fresh.session.enable_time_profile(profile_);
    if (trace_) fresh.session.set_trace(trace_);
    if (sessions_.size() == max_sessions) sessions_.pop_back();
    sessions_.emplace_front(shapes, std::move(fresh));
    return sessions_.front().second;
  }

  void check_not_called(std::string_view option) const {
    if (sessions_.empty()) return;
    throw Error(Errc::call_order, "BoundExe",
                std::string(option) + " after the first call: options are set before it");
  }

  static constexpr std::size_t max_sessions = 32;

  detail::Held<State, "BoundExe"> state_;
  detail::Held<const WeightSet, "BoundExe"> weights_;
  std::list<std::pair<std::vector<Shape>, Entry>> sessions_;  // most recently used first
  bool profile_ = false;
  std::shared_ptr<Trace> trace_;
  Interrupt interrupt_;
};

/// Compiles `forward` of a model for arguments of these shapes:
/// `compile<&Mlp<>::forward>(model, {Shape({8, 784}, f32)})`. Sizes may be symbols.
template <auto Forward>
Exe<Forward> compile(const typename Exe<Forward>::Model& model,
                     const typename Exe<Forward>::Shapes& shapes, CompileOptions options = {},
                     const std::source_location& where = std::source_location::current()) {
  return Exe<Forward>(model, shapes, std::move(options), where);
}

/// The same on a device, with its device_backends(): "cpu:" uses every linked backend, "npu:" needs
/// register_npu_backend() and npu::Options with a calibration in CompileOptions::backend.device.
/// Results lie in the device's memory; Buffer::to_host() brings them to the CPU's. If all sizes are
/// static, the plan is made at once, so that an op that no backend may run is reported here;
/// otherwise by the first call.
///
/// Errors: those of device_backends(); Errc::unsupported, naming the op and why it is refused.
template <auto Forward>
Exe<Forward> compile(const typename Exe<Forward>::Model& model,
                     const typename Exe<Forward>::Shapes& shapes, const DevicePtr& device,
                     CompileOptions options = {},
                     const std::source_location& where = std::source_location::current()) {
  Exe<Forward> exe(model, shapes, detail::on_device(device, std::move(options)), where);
  if (exe.is_static()) static_cast<void>(exe.report());
  return exe;
}

}  // namespace tenon
