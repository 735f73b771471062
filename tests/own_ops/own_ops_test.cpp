// Ops and kernels of the user's own: registered, written down and read back, run by every backend.
// Registrations last for the process, so each test case has ops of its own.
#include "io/temp_folder.hpp"
#include "own_ops/soft_clip.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"

#include <tenon/io/network.hpp>
#include <tenon/tenon.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::testing {
namespace {

const std::source_location here = std::source_location::current();

/// SoftClip under another name.
template <char letter>
struct Clip : SoftClip {
  static constexpr char text[] = {'c', 'l', 'i', 'p', '_', letter, '\0'};
  static constexpr std::string_view name = text;
};

template <OpStruct Op>
Program program_of(const Op& op, const Shape& shape) {
  Graph graph;
  return graph.program(std::vector{record(op, {graph.input("x", shape)}, here)});
}

HostBuffer ramp(const Shape& shape) {
  HostBuffer array = HostBuffer::uninitialized(shape);
  std::int64_t next = -shape.elements() / 2;
  for (float& value : array.mutable_values<float>()) value = static_cast<float>(next++) / 8;
  return array;
}

Buffer run(Session& session, const HostBuffer& x) {
  return session.forward(std::vector{x.to_device(cpu_device())}).front();
}

TEST_CASE("own ops: an op that is not registered runs and prints, but is not saved") {
  const TempFolder folder;
  Clip<'a'> op;
  op.limit = 2;
  const Program program = program_of(op, Shape({3, 5}, f32));
  const std::string text = print(program);
  CHECK(text.find("clip_a(x, limit=2.0)") != std::string::npos);
  Session session(program, {.backends = default_backends()});
  const HostBuffer y = run(session, ramp(Shape({3, 5}, f32))).to_host();
  CHECK(y.values<float>()[0] == Approx(-0.875 / (1 + 0.875 / 2)));

  expect_error(Errc::unknown_op, [&] { parse(text); });
  expect_error(Errc::unknown_op, [&] { session.save(folder / "session.tenon"); });
  expect_error(Errc::unknown_op,
               [&] { io::save_network({program, {}}, folder / "net.json", folder / "net.raw"); });
}

TEST_CASE("own ops: a registered op is read back from text, networks and snapshots") {
  const TempFolder folder;
  const OpDef& def = register_op<Clip<'b'>>();
  CHECK(find_op("clip_b") == &def);
  CHECK(std::ranges::count(all_ops(), &def) == 1);
  CHECK_NOTHROW(register_op<Clip<'b'>>());  // again
  CHECK(std::ranges::count(all_ops(), &def) == 1);

  Clip<'b'> op;
  op.limit = 0.5;
  const Shape shape({7, 3}, f32);
  const Program program = program_of(op, shape);
  CHECK(print(parse(print(program))) == print(program));

  Session session(program, {.backends = default_backends()});
  const HostBuffer want = run(session, ramp(shape)).to_host();
  session.save(folder / "session.tenon");
  Session loaded = Session::load(folder / "session.tenon", default_backends());
  CHECK(
      std::ranges::equal(run(loaded, ramp(shape)).to_host().values<float>(), want.values<float>()));

  io::save_network({program, {}}, folder / "net.json", folder / "net.raw");
  Session network(io::load_network(folder / "net.json").program, {.backends = default_backends()});
  CHECK(std::ranges::equal(run(network, ramp(shape)).to_host().values<float>(),
                           want.values<float>()));
}

struct Relu2 : SoftClip {
  static constexpr std::string_view name = "relu";
};
struct Word : SoftClip {
  static constexpr std::string_view name = "repeat";
};
struct Keyword : SoftClip {
  static constexpr std::string_view name = "lambda";
};
struct Spelled : SoftClip {
  static constexpr std::string_view name = "SoftClip";
};
struct Backwards : SoftClip {
  static constexpr std::string_view name = "backwards";
  static constexpr int min_inputs = 2, max_inputs = 1;
};
struct Beyond : SoftClip {
  static constexpr std::string_view name = "beyond";
  static constexpr OpTraits traits{.in_place_inputs = 2};
};
struct Viewless : SoftClip {
  static constexpr std::string_view name = "viewless";
  static constexpr OpTraits traits{.view = true};
};
struct Meaningless {
  static constexpr std::string_view name = "meaningless";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr FieldList<> fields{};
  Shape infer(std::span<const Shape> in) const { return in[0]; }
};

TEST_CASE("own ops: another library's descriptor of the same op is taken for the same") {
  register_op<SoftClip>();
  static const OpDef twin = op_def<SoftClip>();
  register_op(twin);
  CHECK(find_op(SoftClip::name) == &op_def<SoftClip>());
  OpDef wider = twin;
  ++wider.max_inputs;
  expect_error(Errc::duplicate_name, [&] { register_op(wider); });
}

/// SoftClip's name, inputs and attributes, and another meaning.
struct HardClip : SoftClip {
  void reference(std::span<const HostView> in, const HostView& out) const {
    for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
      const double x = load_as_double(f32, in[0].at(index));
      store_double(f32, out.at(index), std::clamp(x, -limit, limit));
    });
  }
};
static_assert(HardClip::name == SoftClip::name);

TEST_CASE("own ops: two ops of one name are told apart by their structs") {
  register_op<SoftClip>();
  expect_error(Errc::duplicate_name, [] { register_op<HardClip>(); });
  OpDef by_hand = op_def<HardClip>();
  by_hand.type = nullptr;
  expect_error(Errc::duplicate_name, [&] { register_op(by_hand); });
  const OpInstance hard{HardClip()}, soft{SoftClip()};
  CHECK(hard.as<HardClip>() != nullptr);
  CHECK(hard.as<SoftClip>() == nullptr);
  CHECK_FALSE(hard == soft);

  // A kernel is that of one of them.
  register_kernel<HardClip>("cpu", {.run = [](const HardClip&, const KernelCall& call) {
                              const auto [begin, end] = call.share(call.output.shape.elements());
                              std::fill(call.output.as<float>() + begin,
                                        call.output.as<float>() + end, 7.0f);
                            }});
  const Shape shape({3, 5}, f32);
  const auto first_of = [&](const Program& program) {
    Session session(program, {.backends = default_backends()});
    return run(session, ramp(shape)).to_host().values<float>()[0];
  };
  CHECK(first_of(program_of(HardClip(), shape)) == 7);
  CHECK(first_of(program_of(SoftClip(), shape)) == Approx(-0.875 / (1 + 0.875)));
}

TEST_CASE("own ops: names that are taken and descriptors that lack something are refused") {
  expect_error(Errc::duplicate_name, [] { register_op<Relu2>(); });
  expect_error(Errc::duplicate_name, [] { register_op<Word>(); });
  expect_error(Errc::duplicate_name, [] { register_op<Keyword>(); });
  expect_error(Errc::bad_argument, [] { register_op<Spelled>(); });
  expect_error(Errc::bad_argument, [] { register_op<Backwards>(); });
  expect_error(Errc::bad_argument, [] { register_op<Beyond>(); });
  expect_error(Errc::bad_argument, [] { register_op<Viewless>(); });
  expect_error(Errc::bad_argument, [] { register_op<Meaningless>(); });
  CHECK(find_op("backwards") == nullptr);
}

TEST_CASE("own kernels: the CPU runs them, on any number of threads, and falls back to none") {
  std::atomic<int> calls = 0;
  register_kernel<Clip<'c'>>(
      "cpu",
      {.constraint = [](const Clip<'c'>&, const Step& step) { return needs_dense_f32(step); },
       .run =
           [&calls](const Clip<'c'>& op, const KernelCall& call) {
             if (call.thread == 0) ++calls;
             soft_clip(op.limit, call);
           }});
  const Clip<'c'> op;
  for (const int threads : {1, 2, 4}) {
    const std::vector<std::string> findings = testkit::check_op(
        op, {Shape({5, 67}, f32)},
        {.backends = {make_backend("cpu", {.threads = threads})}, .tolerance = 1e-6});
    INFO(fmt::format("{}", fmt::join(findings, "\n")));
    CHECK(findings.empty());
  }
  CHECK(calls > 0);
}

TEST_CASE("own kernels: the newest whose constraint holds runs, others take what it refuses") {
  const auto writes = [](float number) {
    return [number](const Clip<'d'>&, const KernelCall& call) {
      const auto [begin, end] = call.share(call.output.shape.elements());
      std::fill(call.output.as<float>() + begin, call.output.as<float>() + end, number);
    };
  };
  register_kernel<Clip<'d'>>("cpu", {.run = writes(1)});
  register_kernel<Clip<'d'>>(
      "cpu", {.constraint = [](const Clip<'d'>&, const Step& step) -> std::optional<std::string> {
                if (step.output.shape[0] % 2 == 0) return std::nullopt;
                return "an odd number of rows";
              },
              .run = writes(2)});
  for (const std::int64_t rows : {3, 4}) {
    const Shape shape({rows, 2}, f32);
    Session session(program_of(Clip<'d'>(), shape), {.backends = default_backends()});
    CHECK(run(session, ramp(shape)).to_host().values<float>()[0] == (rows == 4 ? 2 : 1));
  }
}

TEST_CASE("own kernels: one for an op of the library's takes the place of ours, merged or not") {
  // Behind a linear layer our own activations are merged into it.
  register_kernel<Softplus>("cpu", {.run = [](const Softplus&, const KernelCall& call) {
                              const auto [begin, end] = call.share(call.output.shape.elements());
                              std::fill(call.output.as<float>() + begin,
                                        call.output.as<float>() + end, 42.0f);
                            }});
  Graph graph;
  const Tensor x = graph.input("x", Shape({4, 32}, f32));
  const Tensor w = graph.constant("w", Shape({8, 32}, f32));
  Session session(graph.program(std::vector{softplus(linear(x, w))}),
                  {.backends = default_backends()});
  session.bind(std::make_shared<const WeightSet>(
      std::map<std::string, Buffer>{{"w", ramp(Shape({8, 32}, f32)).to_device(cpu_device())}}));
  const HostBuffer y = run(session, ramp(Shape({4, 32}, f32))).to_host();
  CHECK(std::ranges::all_of(y.values<float>(), [](float value) { return value == 42; }));
}

TEST_CASE("own kernels: between convolutions, and behind a norm, they read what they asked for") {
  register_kernel<Clip<'i'>>(
      "cpu",
      {.constraint = [](const Clip<'i'>&, const Step& step) { return needs_dense_f32(step); },
       .run = [](const Clip<'i'>& op, const KernelCall& call) { soft_clip(op.limit, call); }});
  Graph graph;
  std::map<std::string, Buffer> weights;
  std::mt19937 engine(1);
  const auto weight = [&](const std::string& name, const Shape& shape) {
    std::uniform_real_distribution<float> value(-0.2f, 0.2f);
    HostBuffer array = HostBuffer::uninitialized(shape);
    for (float& element : array.mutable_values<float>()) element = value(engine);
    weights.emplace(name, array.to_device(cpu_device()));
    return graph.constant(name, shape);
  };
  // Images that the backend would store with their channels last and go through one by one.
  const Shape images({6, 16, 40, 40}, f32);
  Tensor x = graph.input("images", images);
  for (int i = 0; i < 3; ++i) {
    x = relu(conv2d(x, weight(fmt::format("filter{}", i), Shape({16, 16, 3, 3}, f32)), {},
                    {.padding = {1, 1, 1, 1}}));
    x = record(Clip<'i'>(), {x}, here);
  }
  // Rows that it would store as tiles, or recompute in each thread.
  Tensor y = graph.input("rows", Shape({2, 64}, f32));
  y = rms_norm(linear(y, weight("up", Shape({96, 64}, f32))), weight("scale", Shape({96}, f32)));
  y = linear(record(Clip<'i'>(), {y}, here), weight("down", Shape({64, 96}, f32)));
  const Program program = graph.program(std::vector{x, y});
  const auto shared = std::make_shared<const WeightSet>(weights);
  const auto outputs = [&](BackendPtr backend) {
    Session session(program, {.backends = {std::move(backend)}});
    session.bind(shared);
    return session.forward(std::vector{ramp(images).to_device(cpu_device()),
                                       ramp(Shape({2, 64}, f32)).to_device(cpu_device())});
  };
  const std::vector<Buffer> want = outputs(make_backend("reference"));
  for (const int threads : {1, 2}) {
    const std::vector<Buffer> got =
        outputs(make_backend("cpu", {.threads = threads, .exact = true}));
    for (std::size_t i = 0; i < want.size(); ++i) {
      expect_close(got[i].to_host(), want[i].to_host(), 1e-4, 1e-4);
    }
  }
}

/// y = x * w, element by element.
struct Scale {
  static constexpr std::string_view name = "own_scale";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 1};
  static constexpr FieldList<> fields{};
  Shape infer(std::span<const Shape> in) const {
    if (!(in[0] == in[1])) fail(Errc::shape_mismatch, name, "two shapes");
    return in[0];
  }
  void reference(std::span<const HostView> in, const HostView& out) const {
    for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
      const double x = load_as_double(in[0].shape.dtype(), in[0].at(index));
      const double w = load_as_double(in[1].shape.dtype(), in[1].at(index));
      store_double(out.shape.dtype(), out.at(index), x * w);
    });
  }
};

TEST_CASE("own kernels: constants are prepared once for all plans, of each layer its own") {
  static std::atomic<int> prepared = 0;
  register_kernel<Scale>(
      "cpu", {.constraint = [](const Scale&, const Step& step) { return needs_dense_f32(step); },
              .prepare = [](const Scale&, std::size_t input,
                            const HostBuffer& constant) -> std::shared_ptr<const void> {
                if (input != 1) return nullptr;
                ++prepared;
                const auto values = constant.values<float>();
                auto doubled = std::make_shared<std::vector<float>>(values.begin(), values.end());
                for (float& value : *doubled) value *= 2;
                return doubled;
              },
              .run =
                  [](const Scale&, const KernelCall& call) {
                    const auto* doubled = call.prepared_as<std::vector<float>>(1);
                    const float* w =
                        doubled != nullptr ? doubled->data() : call.inputs[1].as<float>();
                    const float factor = doubled != nullptr ? 0.5f : 1.0f;
                    const auto [begin, end] = call.share(call.output.shape.elements());
                    for (std::int64_t i = begin; i < end; ++i) {
                      call.output.as<float>()[i] = call.inputs[0].as<float>()[i] * w[i] * factor;
                    }
                  }});
  const std::vector<std::string> findings =
      testkit::check_op(Scale(), {Shape({5, 9}, f32), Shape({5, 9}, f32)},
                        {.backends = {make_backend("cpu", {.threads = 2})}, .tolerance = 1e-6});
  INFO(fmt::format("{}", fmt::join(findings, "\n")));
  CHECK(findings.empty());

  constexpr std::int64_t layers = 3;
  const Shape shape({6}, f32);
  Graph graph;
  std::map<std::string, Buffer> weights;
  Tensor x = graph.input("x", shape);
  RepeatRecorder stack(std::vector{x}, here);
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string name = fmt::format("blk.{}.w", i);
    const Tensor w = graph.constant(name, shape);
    HostBuffer value = HostBuffer::uninitialized(shape);
    for (float& element : value.mutable_values<float>()) element = static_cast<float>(i + 2);
    weights.emplace(name, value.to_device(cpu_device()));
    const auto frame = stack.begin(std::vector{w});
    stack.end(std::vector{record(Scale(), {frame.carry[0], w}, here)});
  }
  const Program program = graph.program(stack.finish());
  const auto shared = std::make_shared<const WeightSet>(std::move(weights));
  prepared = 0;
  for (int session = 0; session < 2; ++session) {
    Session scaled(program, {.backends = default_backends()});
    scaled.bind(shared);
    const HostBuffer y = run(scaled, ramp(shape)).to_host();
    const HostBuffer given = ramp(shape);
    for (std::size_t i = 0; i < 6; ++i) {
      CHECK(y.values<float>()[i] == given.values<float>()[i] * 2 * 3 * 4);
    }
  }
}

TEST_CASE("own kernels: what one throws arrives, with the value it was to compute") {
  static bool foreign = false;
  register_kernel<Clip<'e'>>("cpu", {.run = [](const Clip<'e'>&, const KernelCall& call) {
                               if (call.thread + 1 != call.threads) return;
                               if (foreign) throw std::runtime_error("a stranger");
                               throw Error(Errc::bad_input, "clip_e", "it does not like x");
                             }});
  const Shape shape({64, 64}, f32);
  for (const int threads : {1, 4}) {
    Session session(program_of(Clip<'e'>(), shape),
                    {.backends = {make_backend("cpu", {.threads = threads})}});
    foreign = false;
    try {
      run(session, ramp(shape));
      FAIL("nothing was thrown");
    } catch (const Error& error) {
      CHECK(error.code() == Errc::bad_input);
      CHECK(std::string(error.what()).find("clip_e0: clip_e: it does not like x") !=
            std::string::npos);
    }
    foreign = true;
    CHECK_THROWS_AS(run(session, ramp(shape)), std::runtime_error);
  }
}

TEST_CASE("own kernels: what the last thread throws ends a loop as what the first one throws") {
  static std::atomic<int> calls = 0;
  register_kernel<Clip<'x'>>("cpu", {.run = [](const Clip<'x'>&, const KernelCall& call) {
                               if (call.thread == 0) ++calls;
                               if (call.thread + 1 != call.threads) return;
                               throw Error(Errc::bad_input, "clip_x", "it does not like x");
                             }});
  const Shape shape({64, 64}, f32);
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor x = graph.input("x", shape);
  const auto last = while_loop(
      std::pair(scalar_like(x, 0), x),
      [](const auto& now) { return lt(now.first, scalar_like(now.first, 1000)); },
      [](const auto& now) {
        return std::pair(now.first + 1.0, record(Clip<'x'>(), {now.second}, here));
      });
  for (const int threads : {1, 4}) {
    Session session(graph.program({&last.second, 1}),
                    {.backends = {make_backend("cpu", {.threads = threads})}});
    calls = 0;
    expect_error(Errc::bad_input, [&] { run(session, ramp(shape)); });
    CHECK(calls == 1);
  }
}

TEST_CASE("own kernels: what cannot be registered is said") {
  expect_error(Errc::bad_argument, [] { register_kernel("cpu", KernelDef{}); });
  expect_error(Errc::bad_argument, [] { register_kernel<Relu>("cpu", {}); });
  expect_error(Errc::unsupported, [] { register_kernel<Slice>("cpu", {.run = [](auto&&...) {}}); });
  expect_error(Errc::unsupported,
               [] { register_kernel<CacheUpdate>("cpu", {.run = [](auto&&...) {}}); });
}

// Each with one fault, which the test kit must find.

struct Unwritten : SoftClip {
  static constexpr std::string_view name = "unwritten";
  void reference(std::span<const HostView> in, const HostView& out) const {
    HostView most = out;
    if (most.shape[0] == 0) return;
    most.shape = most.shape.without_axis(0).with_axis(0, Axis(out.shape[0] - 1));
    HostView from = in[0];
    from.shape = most.shape;
    SoftClip::reference(std::array{from}, most);
  }
};
struct Dense : SoftClip {
  static constexpr std::string_view name = "dense";
  void reference(std::span<const HostView> in, const HostView& out) const {
    SoftClip::reference(std::array{HostView(in[0].data, in[0].shape)}, out);
  }
};
struct InPlace : SoftClip {
  static constexpr std::string_view name = "in_place";
  void reference(std::span<const HostView> in, const HostView& out) const {
    for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
      const double first = load_as_double(f32, in[0].data);
      store_double(f32, out.at(index), first + load_as_double(f32, in[0].at(index)));
    });
  }
};
struct Hidden : SoftClip {
  static constexpr std::string_view name = "hidden";
  static constexpr FieldList<> fields{};
};
struct Numbers : SoftClip {
  static constexpr std::string_view name = "numbers";
  Shape infer(std::span<const Shape> in) const {
    return is_static(in[0][0]) ? in[0] : in[0].without_axis(0);
  }
};

struct Fickle : SoftClip {
  static constexpr std::string_view name = "fickle";
  Shape infer(std::span<const Shape> in) const {
    static int calls = 0;
    return ++calls == 2 ? in[0].without_axis(0) : in[0];
  }
};
struct Thrower : SoftClip {
  static constexpr std::string_view name = "thrower";
  void reference(std::span<const HostView>, const HostView&) const {
    throw std::runtime_error("no values today");
  }
};
/// Rows in the order of their numbers, said to be stored from the last to the first.
template <bool shares>
struct Misplaced {
  static constexpr std::string_view name = "misplaced";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.view = true};
  static constexpr FieldList<> fields{};
  Shape infer(std::span<const Shape> in) const {
    if (in[0][0] == 0) fail(Errc::bad_argument, name, "wants elements");
    return in[0];
  }
  void reference(std::span<const HostView> in, const HostView& out) const {
    copy_elements(in[0], out);
  }
  bool view(const HostView& in, const Shape& out, ViewPlacement& placement) const {
    placement.strides = in.strides;
    placement.offset_bytes = in.strides[0] * (out[0] - 1);
    placement.strides[0] = -in.strides[0];
    return shares;
  }
};

template <OpStruct Op>
std::string findings_of(const Op& op, BackendPtr backend = nullptr) {
  testkit::OpCheckOptions options;
  if (backend != nullptr) options.backends = {std::move(backend)};
  return fmt::format("{}", fmt::join(testkit::check_op(op, {Shape({6, 11}, f32)}, options), "\n"));
}

bool says(const std::string& findings, std::string_view what) {
  INFO(findings);
  return findings.find(what) != std::string::npos;
}

TEST_CASE("test kit: a right op has no findings, one with a fault has the one that names it") {
  CHECK(findings_of(SoftClip()).empty());
  CHECK(says(findings_of(Unwritten()), "unwritten"));
  CHECK(says(findings_of(Dense()), "strided inputs"));
  CHECK(says(findings_of(InPlace()), "overwriting it changes"));
  Hidden hidden;
  hidden.limit = 3;
  CHECK(says(findings_of(hidden), "an attribute that `fields` does not name"));
  CHECK(says(findings_of(Numbers()), "of symbolic sizes"));
  CHECK(says(findings_of(Fickle()), "infer() says two things"));
  CHECK(says(findings_of(Thrower()), "reference() threw: no values today"));
  CHECK(says(findings_of(Misplaced<true>()), "view() places other elements"));
  CHECK(says(findings_of(Misplaced<false>()), "view() does not share a dense input"));
  // An attribute that cannot be stored.
  const AttributeField forgetful[] = {{"limit", op_def<SoftClip>().fields[0].get,
                                       [](void*, const AttributeValue&) { return true; }}};
  OpDef def = op_def<SoftClip>();
  def.fields = forgetful;
  SoftClip changed;
  changed.limit = 3;
  const std::vector<Shape> shape = {Shape({6}, f32)};
  CHECK(says(fmt::format("{}", fmt::join(testkit::check_op(OpInstance(def, &changed), shape), "")),
             "attribute 'limit' does not read back"));
  expect_error(Errc::unsupported_dtype, [] { testkit::check_op(SoftClip(), {Shape({2}, i32)}); });
  expect_error(Errc::bad_argument, [] { testkit::check_op(SoftClip(), {}); });
}

TEST_CASE("test kit: a kernel with a fault has findings, and so has one that is never used") {
  const BackendPtr cpu = make_backend("cpu", {.threads = 3});
  CHECK(says(findings_of(Clip<'f'>(), cpu), "no kernel for clip_f"));

  register_kernel<Clip<'g'>>("cpu", {.run = [](const Clip<'g'>& op, const KernelCall& call) {
                               if (call.thread != 0) return;  // the others leave out their parts
                               soft_clip(op.limit, call);
                             }});
  CHECK(says(findings_of(Clip<'g'>(), cpu), "elements are wrong"));

  register_kernel<Clip<'h'>>("cpu", {.run = [](const Clip<'h'>& op, const KernelCall& call) {
                               soft_clip(op.limit, call);  // as if every input were dense
                             }});
  CHECK(says(findings_of(Clip<'h'>(), cpu), "inputs strided"));

  register_kernel<Clip<'j'>>("cpu", {.run = [](const Clip<'j'>&, const KernelCall& call) {
                               static std::atomic<float> next = 0;
                               next = next + 1;
                               const auto count = call.output.shape.elements();
                               std::fill_n(call.output.as<float>(), count, next.load());
                             }});
  CHECK(says(findings_of(Clip<'j'>(), make_backend("cpu", {.threads = 1})),
             "a second run gives other bytes"));

  register_kernel<Clip<'k'>>(
      "cpu",
      {.constraint = [](const Clip<'k'>&, const Step& step) { return needs_dense_f32(step); },
       .run =
           [](const Clip<'k'>& op, const KernelCall& call) {
             soft_clip(op.limit, call);
             if (call.output.data != call.inputs[0].data && call.output.shape.elements() > 0) {
               call.inputs[0].as<float>()[0] = 7;
             }
           }});
  CHECK(says(findings_of(Clip<'k'>(), make_backend("cpu", {.threads = 1})),
             "cpu, inputs as constants, f32[6, 11]: it changed its input 0"));
}

TEST_CASE("own ops: little work stays on its caller's thread") {
  static std::atomic<int> most_threads;
  register_kernel<Clip<'w'>>(
      "cpu",
      {.constraint = [](const Clip<'w'>&, const Step& step) { return needs_dense_f32(step); },
       .run =
           [](const Clip<'w'>& op, const KernelCall& call) {
             int most = most_threads;
             while (call.threads > most &&
                    !most_threads.compare_exchange_weak(most, call.threads)) {
             }
             soft_clip(op.limit, call);
           }});
  const auto threads_for = [](std::int64_t elements) {
    most_threads = 0;
    const Shape shape({elements}, f32);
    Session session(program_of(Clip<'w'>(), shape),
                    {.backends = {make_backend("cpu", {.threads = 2})}});
    run(session, ramp(shape));
    return most_threads.load();
  };
  constexpr const char* variable = "TENON_CPU_MIN_SHARED_WORK";
  CHECK(threads_for(10) == 2);  // test programs set it to 0
  ::setenv(variable, "", 1);
  CHECK(threads_for(10) == 1);
  CHECK(threads_for(10'000) == 1);
  CHECK(threads_for(100'000) == 2);
  ::setenv(variable, "3000", 1);
  CHECK(threads_for(900) == 1);
  CHECK(threads_for(1'000) == 2);
  for (const char* const wrong : {"many", "-1", "3x", "nan"}) {
    ::setenv(variable, wrong, 1);
    expect_error(Errc::bad_argument, [] { make_backend("cpu"); });
  }
  ::setenv(variable, "0", 1);
}

}  // namespace
}  // namespace tenon::testing
