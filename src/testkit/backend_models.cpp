#include "arrays.hpp"
#include "backend_trial.hpp"
#include "watched_backend.hpp"

#include <tenon/control.hpp>
#include <tenon/error.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/profile.hpp>
#include <tenon/repeat.hpp>
#include <tenon/trace.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stop_token>
#include <thread>

#include <unistd.h>

namespace tenon::testkit {
namespace {

using Outputs = std::vector<Tensor>;

/// A model whose inputs have `rows` rows, a symbol; names of constants are those that it declares.
struct Model {
  std::string_view name;
  Outputs (*record)(Graph& graph, std::int64_t rows);
  bool takes_none = true;  ///< also no rows
};

Tensor weight(Graph& graph, std::string_view name, std::initializer_list<Axis> sizes,
              DType dtype = f32) {
  return graph.constant(name, Shape(sizes, dtype));
}

Outputs layers(Graph& graph, std::int64_t rows) {
  const Tensor x = graph.input("x", Shape({rows, 16}, f32));
  const Tensor h = silu(linear(x, weight(graph, "up", {24, 16}), weight(graph, "up.bias", {24})));
  const Tensor g = softmax(linear(h, weight(graph, "gate", {24, 24})));
  const Tensor y = layer_norm(h * g + h, weight(graph, "norm", {24}));
  return {linear(relu(y), weight(graph, "down", {16, 24}), weight(graph, "down.bias", {16})) + x};
}

Outputs images(Graph& graph, std::int64_t rows) {
  const Tensor x = graph.input("x", Shape({rows, 3, 8, 8}, f32));
  Tensor y = relu(conv2d(x, weight(graph, "a", {4, 3, 3, 3}), weight(graph, "a.bias", {4}),
                         Conv2d{.padding = {1, 1, 1, 1}}));
  y = max_pool2d(y, MaxPool2d{.kernel = {2, 2}, .stride = {2, 2}});
  y = y + sigmoid(conv2d(y, weight(graph, "b", {4, 4, 1, 1})));
  return {linear(mean(y, {2, 3}), weight(graph, "head", {5, 4})), y};
}

Outputs attending(Graph& graph, std::int64_t rows) {
  const Tensor x = graph.input("x", Shape({rows, 6, 16}, f32));
  const auto heads = [&](const char* name) {
    return split_axis(linear(x, weight(graph, name, {16, 16})), -1, {2, 8});
  };
  const Tensor y = attention(heads("q"), heads("k"), heads("v"), Attention{.causal = true});
  return {linear(merge_axes(y, 2, 3), weight(graph, "o", {16, 16})) + x};
}

Outputs loop(Graph& graph, std::int64_t rows) {
  const Tensor x = graph.input("x", Shape({rows, 8}, f32));
  const Tensor w = weight(graph, "w", {3, 8, 8});
  const Tensor y = repeat(3, x, [&](const Tensor& index, const Tensor& now) {
    return tanh(matmul(now, select(w, index)) + x);
  });
  return {y * y};
}

Outputs loop_with_condition(Graph& graph, std::int64_t rows) {
  const Tensor x = graph.input("x", Shape({rows, 4}, f32));
  const Tensor y = while_loop(
      sigmoid(x), [](const Tensor& now) { return lt(sum(now), scalar_like(sum(now), 50)); },
      [](const Tensor& now) { return now + now; }, 12);
  return {y + x};
}

Outputs state(Graph& graph, std::int64_t rows) {
  const Tensor x = graph.input("x", Shape({rows, 4}, f32)), at = graph.input("at", Shape({}, i64));
  const Tensor log = graph.input("log", Shape({6, rows, 4}, f32));
  const Tensor now = tanh(x + weight(graph, "w", {4}));
  const Tensor later = update_slice(log, at, now);
  return {later, sum(later, 0) * now};
}

Outputs several_results(Graph& graph, std::int64_t rows) {
  const Tensor x = graph.input("x", Shape({rows, 5}, f32)), w = weight(graph, "w", {5});
  graph.input("unused", Shape({rows}, f32));
  const Tensor y = relu(x);
  return {x, y, y, transpose(y), w, y + w, w * w};
}

Outputs integers(Graph& graph, std::int64_t rows) {
  const Tensor ids = graph.input("ids", Shape({rows, 3}, i32));
  const Tensor rowed = gather(weight(graph, "table", {4, 8}), clamp(ids, 0, 3));
  const Tensor odd = eq(bitwise_and(ids, full_like(ids, 1)), full_like(ids, 1));
  const Tensor y = where(unsqueeze(odd, 2), rowed, neg(rowed));
  return {y, cast(ids, i64) + cast(odd, i64), argmax(y), logical_not(odd), sum(cast(ids, f32), 1)};
}

Outputs halves(Graph& graph, std::int64_t rows) {
  const Tensor x = graph.input("x", Shape({rows, 8}, f16)),
               b = graph.input("b", Shape({rows, 8}, bf16));
  const Tensor y = linear(x, weight(graph, "w", {8, 8}, f16));
  return {softmax(y), cast(y, f32) * cast(b, f32), relu(b), x + cast(x, f16)};
}

Outputs views(Graph& graph, std::int64_t rows) {
  const Tensor x = graph.input("x", Shape({rows, 4, 6}, f32)), w = weight(graph, "w", {12, 6});
  const Tensor left = slice(x, 2, 0, 3), right = slice(x, 2, 3, 6);
  const Tensor y = concat({left * right, right + left}, 2);
  const Tensor turned = permute(y, {1, 0, 2});
  return {exp(turned), linear(y, slice(w, 0, 4, 9)),
          linear(slice(x, 1, 1, 3), slice(w, 0, 0, 12, 2)), flip(y, 1) + x,
          reshape_like(relu(turned), relu(turned))};
}

Outputs chain(Graph& graph, std::int64_t rows) {
  Tensor y = graph.input("x", Shape({rows, 7}, f32));
  const Tensor w = weight(graph, "w", {7});
  for (int i = 0; i < 12; ++i) {
    const Tensor next = i % 3 == 0 ? tanh(y) : i % 3 == 1 ? y * w : sigmoid(y) - y;
    y = i % 4 == 3 ? next + y : next;
  }
  return {y};
}

constexpr Model models[] = {{"layers", layers},
                            {"images", images},
                            {"attention", attending},
                            {"a loop", loop},
                            {"a loop with a condition", loop_with_condition, false},
                            {"state that is updated", state},
                            {"several results", several_results},
                            {"integers", integers},
                            {"f16 and bf16", halves},
                            {"views", views},
                            {"a chain", chain}};

class ModelCheck {
 public:
  ModelCheck(BackendTrial& trial, const Model& model)
      : trial_(trial), model_(model), engine_(trial.options().seed), program_(record()) {
    weights_ = random_weights();
  }

  void run() {
    sizes();
    const std::vector<Buffer> inputs = random_inputs(3);
    want_ = reference(inputs, weights_);
    way("inputs that are given up", [&] {
      Session session = made();
      std::vector<Buffer> own = copies(inputs);
      const std::vector<Buffer> kept = own;
      compare(session.forward(kept));
      own = copies(inputs);
      compare(session.forward(std::move(own)));
    });
    way("inputs and results in its memory", [&] {
      Session session(program_, trial_.chain(/*results_on_device=*/true));
      session.bind(weights_);
      std::vector<Buffer> there;
      for (const Buffer& input : inputs) there.push_back(input.to(trial_.backend()->region()));
      compare(session.forward(there));
      compare(session.forward(inputs));
    });
    way("ops one by one", [&] {
      Session session(program_, trial_.chain());
      session.bind(weights_);
      session.set_merge(false);
      compare(session.forward(inputs));
    });
    way("a profile and a trace", [&] {
      Session session(program_, trial_.chain());
      session.bind(weights_);
      session.enable_time_profile(true);
      session.set_trace(std::make_shared<Trace>());
      compare(session.forward(inputs));
    });
    way("other weights", [&] {
      Session session = made();
      compare(session.forward(inputs));
      const auto others = random_weights();
      session.bind(others);
      compare(session.forward(inputs), reference(inputs, others));
      session.bind(weights_);
      compare(session.forward(inputs));
    });
    way("submitted runs", [&] {
      Session session = made();
      const std::vector<Buffer> first = session.submit(inputs), second = session.submit(inputs);
      compare(first);
      compare(second);
    });
    way("a run that is cancelled", [&] {
      Session session = made();
      std::stop_source stop;
      session.set_interrupt({.cancel = stop.get_token()});
      compare(session.forward(inputs));
      stop.request_stop();
      try {
        session.forward(inputs);
        add("a run that is cancelled", "it ends well");
      } catch (const Error& error) {
        if (error.code() != Errc::cancelled) throw;
      }
      session.set_interrupt({});
      compare(session.forward(inputs));
    });
    way("an interrupt that is due", [&] { interrupted(inputs); });
    way("a snapshot", [&] { snapshot(inputs); });
    if (trial_.options().threads) way("forks at once", [&] { forks(inputs); });
  }

 private:
  Program record() const {
    Graph graph(small_graph_bytes);
    const Graph::Recording recording(graph);
    return graph.program(model_.record(graph, symbol("rows")));
  }

  Session made() const {
    Session session(program_, trial_.chain());
    session.bind(weights_);
    return session;
  }

  HostBuffer random(const Shape& shape) {
    const bool whole = !is_floating(shape.dtype());
    return random_array(shape, engine_, whole ? 0 : -1, whole ? 4 : 1);
  }

  std::shared_ptr<const WeightSet> random_weights() {
    std::map<std::string, Buffer> weights;
    for (const Function& function : program_.functions) {
      for (const Instruction& instruction : function.body) {
        if (instruction.kind != Instruction::Kind::constant) continue;
        const Shape& shape = *function.values[instruction.result].shape;
        weights.try_emplace(instruction.text, random(shape).to_device(cpu_device()));
      }
    }
    return std::make_shared<const WeightSet>(std::move(weights));
  }

  std::vector<Buffer> random_inputs(std::int64_t rows) {
    std::vector<Buffer> inputs;
    const Function& main = program_.main();
    for (std::uint32_t i = 0; i < main.parameter_count; ++i) {
      Shape shape = *main.values[i].shape;
      for (int axis = 0; axis < shape.rank(); ++axis) {
        if (!is_static(shape[axis])) shape = shape.with_dim(axis, rows);
      }
      inputs.push_back(random(shape).to_device(cpu_device()));
    }
    return inputs;
  }

  static std::vector<Buffer> copies(const std::vector<Buffer>& buffers) {
    std::vector<Buffer> result;
    for (const Buffer& buffer : buffers) {
      result.push_back(copy_of(buffer.to_host()).to_device(cpu_device()));
    }
    return result;
  }

  std::vector<HostBuffer> reference(const std::vector<Buffer>& inputs,
                                    const std::shared_ptr<const WeightSet>& weights) const {
    Session session(program_, trial_.reference());
    session.bind(weights);
    std::vector<HostBuffer> results;
    for (const Buffer& result : session.forward(inputs))
      results.push_back(copy_of(result.to_host()));
    return results;
  }

  /// One session, with sizes that come and go.
  void sizes() {
    std::optional<Session> session;
    if (!trial_.guarded(subject(), "making a session", [&] { session.emplace(made()); })) return;
    for (const std::int64_t rows : {3, 1, 0, 17, 3}) {
      if (rows == 0 && !model_.takes_none) continue;
      const std::vector<Buffer> inputs = random_inputs(rows);
      const std::string what = fmt::format("{} rows", rows);
      way(what, [&] {
        const std::vector<Buffer> first = session->forward(inputs),
                                  second = session->forward(inputs);
        compare(first, reference(inputs, weights_));
        for (std::size_t i = 0; i < first.size(); ++i) {
          if (same_bytes(first[i].to_host(), second[i].to_host())) continue;
          add(what, fmt::format("result {} has other bytes in a second run", i));
        }
      });
    }
  }

  /// The session looks at the interrupt before each partition, so this one is set behind its back.
  void interrupted(const std::vector<Buffer>& inputs) {
    const auto watched =
        std::make_shared<const WatchedBackend>(trial_.backend(), Watch::interrupts);
    Session session(program_, trial_.chain_with(watched));
    session.bind(weights_);
    try {
      session.forward(inputs);
    } catch (const Error& error) {
      if (error.code() != Errc::cancelled) throw;
    }
    if (const auto fault = watched->take_fault()) add(way_, *fault);
  }

  void snapshot(const std::vector<Buffer>& inputs) {
    const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                       fmt::format("tenon_check_backend_{}.snapshot", ::getpid());
    struct Removed {
      const std::filesystem::path& path;
      ~Removed() {
        std::error_code none;
        std::filesystem::remove(path, none);
      }
    };
    const Removed removed{file};
    Session session = made();
    compare(session.forward(inputs));
    session.save(file);
    Session loaded = Session::load(file, trial_.chain().backends);
    compare(loaded.forward(inputs));
  }

  void forks(const std::vector<Buffer>& inputs) {
    const Session session = made();
    std::vector<std::string> wrong(3);
    std::vector<std::thread> threads;
    for (std::string& what : wrong) {
      threads.emplace_back([this, &what, &inputs, fork = session.fork()]() mutable {
        try {
          for (int round = 0; round < 20 && what.empty(); ++round) {
            what = differences(fork.forward(inputs), want_).value_or("");
          }
        } catch (const std::exception& error) {
          what = error.what();
        } catch (...) {
          what = "it throws what is no std::exception";
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& what : wrong) {
      if (!what.empty()) add("forks at once", what);
    }
  }

  std::optional<std::string> differences(const std::vector<Buffer>& got,
                                         const std::vector<HostBuffer>& want) const {
    if (got.size() != want.size())
      return fmt::format("{} results instead of {}", got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double tolerance = trial_.tolerance(want[i].shape().dtype(), 10);
      if (const auto wrong = difference(got[i].to_host(), want[i], tolerance)) {
        return fmt::format("result {}: {}", i, *wrong);
      }
    }
    return std::nullopt;
  }

  void compare(const std::vector<Buffer>& got) { compare(got, want_); }
  void compare(const std::vector<Buffer>& got, const std::vector<HostBuffer>& want) {
    if (const auto wrong = differences(got, want)) add(way_, *wrong);
  }

  template <class Check>
  void way(std::string what, const Check& check) {
    way_ = std::move(what);
    trial_.guarded(subject(), way_, check);
  }
  void add(const std::string& what, const std::string& wrong) {
    trial_.add(subject(), fmt::format("{}: {}", what, wrong));
  }
  std::string subject() const { return fmt::format("model '{}'", model_.name); }

  BackendTrial& trial_;
  const Model& model_;
  std::mt19937_64 engine_;
  Program program_;
  std::shared_ptr<const WeightSet> weights_;
  std::vector<HostBuffer> want_;
  std::string way_;
};

}  // namespace

void check_backend_models(BackendTrial& trial) {
  for (const Model& model : models) ModelCheck(trial, model).run();
}

}  // namespace tenon::testkit
