// Chains of element-wise steps as generated kernels: the bits of the single kernels, in as few
// launches as there should be, from a cache where there is one.
#include "device.hpp"
#include "emulated.hpp"
#include "host_compiler.hpp"
#include "io/temp_folder.hpp"
#include "run_twice.hpp"
#include "support/expect_error.hpp"
#include "support/op_testing.hpp"
#include "support/random_program.hpp"

#include <tenon/graph.hpp>
#include <tenon/lowered.hpp>
#include <tenon/ops.hpp>
#include <tenon/prepared_cache.hpp>
#include <tenon/session.hpp>
#include <tenon/snapshot.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

/// With a compiler of generated kernels, a GPU's own or the host's.
DevicePtr fusing_device(const std::string& keys = "") {
  cuda::set_emulated_compiler(open_host_compiler);
  DevicePtr device = test_device("?libraries=off" + keys);
  cuda::set_emulated_compiler(nullptr);
  return device;
}

/// Whether there is a compiler; where a GPU's machine has none, tests of what it makes are skipped.
bool can_fuse() {
  const auto device = std::dynamic_pointer_cast<cuda::CudaDevice>(fusing_device());
  const cuda::FoundCompiler& found = device->driver()->kernel_compiler();
  if (found.compiler == nullptr) WARN(found.about);
  return found.compiler != nullptr;
}

struct Outcome : RunOutcome {
  /// "N element-wise steps in L launches of generated kernels"; none where nothing is fused.
  std::array<int, 2> fused() const {
    std::array<int, 2> counts{};
    for (const std::string& note : notes) {
      std::array<int, 2> more{};
      if (std::sscanf(note.c_str(), "%d element-wise steps in %d launches", &more[0], &more[1]) !=
          2) {
        continue;
      }
      for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += more[i];
    }
    return counts;
  }
};

Outcome run(const Program& program, const std::vector<HostBuffer>& inputs,
            const std::vector<BackendPtr>& backends, std::shared_ptr<PreparedCache> cache = nullptr,
            const std::map<std::string, Buffer>& weights = {}) {
  Session session(program, {.backends = backends, .forbid_fallback = backends.size() == 1});
  session.bind(std::make_shared<const WeightSet>(weights, std::move(cache)));
  return {run_twice(session, inputs)};
}
Outcome run(const Program& program, const std::vector<HostBuffer>& inputs, const DevicePtr& device,
            std::shared_ptr<PreparedCache> cache = nullptr) {
  return run(program, inputs, device_backends(device), std::move(cache));
}

/// With one NaN for all, whose bits depend on how the CPU's compiler orders operands.
HostBuffer with_one_nan(const HostBuffer& array) {
  if (!is_floating(array.shape().dtype())) return array;
  HostBuffer wide = array.to(f32);
  for (float& element : wide.mutable_values<float>()) {
    if (element != element) element = std::numeric_limits<float>::quiet_NaN();
  }
  return wide;
}

void check_same_bits(const Outcome& got, const Outcome& wanted) {
  REQUIRE(got.results.size() == wanted.results.size());
  for (std::size_t i = 0; i < got.results.size(); ++i) {
    INFO("result " << i << " of " << to_string(got.results[i].shape()));
    const HostBuffer a = with_one_nan(got.results[i]), b = with_one_nan(wanted.results[i]);
    CHECK(std::memcmp(a.bytes(), b.bytes(), static_cast<std::size_t>(a.shape().bytes())) == 0);
  }
}

/// With and without generated kernels; returns what the former made.
Outcome check_fusion(const Program& program, const std::vector<HostBuffer>& inputs) {
  const Outcome got = run(program, inputs, fusing_device());
  check_same_bits(got, run(program, inputs, fusing_device("&fusion=off")));
  return got;
}

/// Values of a type that ops have trouble with, among others.
HostBuffer values(Random& random, const Shape& shape) {
  const DType dtype = shape.dtype();
  if (dtype == DType::boolean) return random.uniform(shape.with_dtype(i32), 0, 2).to(dtype);
  if (!is_floating(dtype)) return random.uniform(shape, 0, 9);
  HostBuffer array = random.uniform(shape.with_dtype(f32), -4, 4);
  constexpr float infinite = std::numeric_limits<float>::infinity();
  const float odd[] = {infinite, -infinite, 0.0f, -0.0f, std::numeric_limits<float>::quiet_NaN(),
                       1.0f,     65519.0f,  3e-8f};
  const std::span<float> elements = array.mutable_values<float>();
  for (std::size_t i = 5; i < elements.size(); i += 7) elements[i] = odd[i % std::size(odd)];
  return array.to(dtype);
}

/// Records random element-wise ops on operands that are dense, permuted, reversed, or broadcast.
class Chains {
 public:
  Chains(Random& random, const Shape& shape) : random_(random), shape_(shape) {
    for (const OpDef* def : all_ops()) {
      if (def->traits.pointwise && def->name != "quantize_linear" &&
          def->name != "dequantize_linear") {
        ops_.push_back(def);
      }
    }
  }

  void add_input(const Shape& shape) {
    inputs.push_back(values(random_, shape));
    values_.push_back(graph.input("in" + std::to_string(inputs.size()), shape));
  }
  void add_inputs(DType dtype) {
    const std::int64_t rows = shape_[0], columns = shape_[1];
    add_input(Shape({rows, columns}, dtype));
    add_input(Shape({columns, rows}, dtype));
    values_.back() = permute(values_.back(), {1, 0});
    add_input(Shape({rows, columns}, dtype));
    values_.back() = flip(values_.back(), AxisList({0, 1}));
    add_input(Shape({columns}, dtype));
    add_input(Shape({rows, 1}, dtype));
    add_input(Shape({}, dtype));
  }

  /// One of `def` on recent values of types that it takes, if there are any.
  bool add_op(const OpDef& def) {
    for (int attempt = 0; attempt < 300; ++attempt) {
      std::vector<Tensor> operands;
      for (int i = 0; i < def.max_inputs; ++i) operands.push_back(pick());
      try {
        values_.push_back(recorded(def, operands));
        if (values_.back().shape().rank() == 2) made.push_back(values_.back());
        return true;
      } catch (const Error&) {
        continue;  // types that the op does not take
      }
    }
    return false;
  }
  /// At least `count`, and until one of them has a result for a program.
  void add_ops(int count) {
    while (count > 0 || made.empty()) {
      const auto last = static_cast<std::int64_t>(ops_.size()) - 1;
      if (add_op(*ops_[static_cast<std::size_t>(random_.integer(0, last))])) --count;
    }
  }

  Program program() const {
    std::vector<Tensor> results{made.back()};
    for (const Tensor& value : made) {
      if (random_.integer(0, 5) == 0) results.push_back(value);
    }
    return graph.program(results);
  }

  const std::vector<const OpDef*>& ops() const { return ops_; }

  Graph graph;
  std::vector<HostBuffer> inputs;
  std::vector<Tensor> made;

 private:
  Tensor pick() {
    const auto last = static_cast<std::int64_t>(values_.size()) - 1;
    const std::int64_t first = random_.integer(0, 2) == 0 ? 0 : std::max<std::int64_t>(0, last - 4);
    return values_[static_cast<std::size_t>(random_.integer(first, last))];
  }

  Tensor recorded(const OpDef& def, const std::vector<Tensor>& operands) {
    static constexpr DType types[] = {
        f32, f16, bf16, DType::boolean, DType::i8, DType::u8, DType::i16, i32, i64, u32};
    if (def.name == "cast") {
      const auto type = static_cast<std::size_t>(random_.integer(0, std::size(types) - 1));
      return cast(operands[0], types[type]);
    }
    if (def.name == "clamp") return clamp(operands[0], -1.25, 2.5);
    if (def.name == "polygamma") return tenon::record(Polygamma{.order = 2}, {operands[0]}, here());
    if (def.name == "glu") {
      static constexpr const char* gates[] = {"silu", "gelu", "gelu_tanh", "relu", "sigmoid"};
      return glu(operands[0], operands[1], gates[random_.integer(0, 4)]);
    }
    return tenon::record(def, def.defaults, operands, here());
  }
  static std::source_location here() { return std::source_location::current(); }

  Random& random_;
  Shape shape_;
  std::vector<const OpDef*> ops_;
  std::vector<Tensor> values_;
};

TEST_CASE("cuda fusion: a chain is one launch", "[gpu]") {
  if (!can_fuse()) return;
  Graph graph;
  const Graph::Recording recording(graph);
  Random random;
  const Shape shape({30, 7}, f32);
  const Tensor x = graph.input("x", shape), a = graph.input("a", shape);
  const Tensor product = x * a, sum = relu(product + x);
  const std::vector<HostBuffer> inputs{values(random, shape), values(random, shape)};
  CHECK(check_fusion(graph.program({&sum, 1}), inputs).fused() == std::array{3, 1});
  // What others need, too, is stored on the way.
  const std::vector<Tensor> both{product, sum, max(product, {1}, true)};
  CHECK(check_fusion(graph.program(both), inputs).fused() == std::array{3, 1});
  const std::vector<Tensor> between{sum - max(product, {1}, true)};
  CHECK(check_fusion(graph.program(between), inputs).fused()[1] <= 2);
}

TEST_CASE("cuda fusion: sizes are arguments, so that shapes share a kernel", "[gpu]") {
  Random random;
  const DevicePtr device = fusing_device();
  const auto cache = std::make_shared<PreparedCache>();
  const int before = host_compiler_state().compiled;
  for (const std::int64_t size : {1, 5, 700}) {
    Graph graph;
    const Graph::Recording recording(graph);
    const Shape shape({size}, f16);
    const Tensor y = exp(-graph.input("x", shape));
    run(graph.program({&y, 1}), {values(random, shape)}, device, cache);
  }
  CHECK(host_compiler_state().compiled <= before + 2);  // of one element: an axis less
}

TEST_CASE("cuda fusion: integers are rounded to bf16 once", "[gpu]") {
  if (!can_fuse()) return;
  Graph graph;
  const Graph::Recording recording(graph);
  const Tensor y = cast(-graph.input("x", Shape({2}, i32)), bf16);
  const HostBuffer x = HostBuffer::of<std::int32_t>(Shape({2}, i32), {16842753, -16842753});
  const Outcome outcome = check_fusion(graph.program({&y, 1}), {x});
  CHECK(outcome.fused() == std::array{2, 1});
  expect_equal(outcome.results.at(0), {-16908288, 16908288});
}

TEST_CASE("cuda fusion: every op, in types of every kind", "[gpu]") {
  if (!can_fuse()) return;
  Random random;
  std::set<std::string_view> fused;
  for (const DType dtype : {f32, f16, i32, DType::boolean}) {
    CAPTURE(name(dtype));
    Chains chains(random, Shape({5, 23}, dtype));
    const Graph::Recording recording(chains.graph);
    for (const DType input : {dtype, dtype, DType::boolean})
      chains.add_input(Shape({5, 23}, input));
    for (const OpDef* def : chains.ops()) {
      if (chains.add_op(*def)) fused.insert(def->name);
    }
    // All results are stored, by kernels that also sum them up.
    std::vector<Tensor> results = chains.made;
    const DType sum_type = is_floating(dtype) ? dtype : i32;
    const auto term = [&](const Tensor& result) {
      return result.shape().dtype() == sum_type ? result : cast(result, sum_type);
    };
    Tensor sum = term(results.front());
    for (const Tensor& result : chains.made) sum = sum + term(result);
    results.push_back(sum);
    const Outcome outcome = check_fusion(chains.graph.program(results), chains.inputs);
    CHECK(outcome.fused()[0] >= static_cast<int>(2 * chains.made.size()));
  }
  Chains all(random, Shape({1, 1}, f32));
  for (const OpDef* def : all.ops()) {
    INFO(def->name);
    CHECK(fused.contains(def->name));
  }
}

TEST_CASE("cuda fusion: random chains have the bits of the single kernels", "[gpu]") {
  if (!can_fuse()) return;
  Random random;
  static constexpr DType types[] = {f32, f16, bf16, i32, DType::boolean, i64, DType::u8};
  int launches = 0;
  for (int round = 0; round < fuzz_rounds(20); ++round) {
    const Shape shape({random.integer(0, 9) == 0 ? 0 : random.integer(1, 40), random.integer(1, 9)},
                      f32);
    Chains chains(random, shape);
    const Graph::Recording recording(chains.graph);
    chains.add_inputs(types[random.integer(0, 2)]);
    chains.add_inputs(types[random.integer(0, 6)]);
    chains.add_ops(static_cast<int>(random.integer(2, 16)));
    INFO("round " << round << ", " << to_string(shape) << "\n" << print(chains.program()));
    launches += check_fusion(chains.program(), chains.inputs).fused()[1];
  }
  CHECK(launches > 5);
}

/// What a program of any ops gives, or the error that ends it.
struct Ending {
  Outcome outcome;
  std::string error;
};
Ending ending(const Program& program, const std::vector<HostBuffer>& inputs,
              const std::map<std::string, Buffer>& weights, const DevicePtr& device) {
  try {
    std::vector<BackendPtr> backends = device_backends(device);
    backends.push_back(make_backend("reference"));
    return {run(program, inputs, backends, nullptr, weights), {}};
  } catch (const Error& error) {
    return {{}, error.what()};
  }
}

TEST_CASE("cuda fusion: random programs of all ops have the bits of single kernels") {
  const std::uint64_t seed = fuzz_seed(1);
  int launches = 0;
  for (int round = 0; round < fuzz_rounds(8); ++round) {
    RandomProgram random(seed + static_cast<std::uint64_t>(round));
    const Program program = random.make({.instructions = 40, .callees = round % 3});
    const std::vector<HostBuffer> inputs = random.inputs(program);
    INFO("seed " << seed << ", round " << round << "\n" << print(program));
    std::vector<Shape> shapes;
    for (const HostBuffer& input : inputs) shapes.push_back(input.shape());
    std::map<std::string, Buffer> weights;
    for (const ConstantSlot& slot : lower(program, shapes).constants) {
      if (!slot.folded) weights[slot.name] = random.value(slot.shape).to_device(cpu_device());
    }
    const Ending fused = ending(program, inputs, weights, fusing_device());
    const Ending single = ending(program, inputs, weights, fusing_device("&fusion=off"));
    CHECK(fused.error == single.error);
    check_same_bits(fused.outcome, single.outcome);
    launches += fused.outcome.fused()[1];
  }
  CHECK(launches > 0);
}

/// A chain whose kernel no other test makes.
struct OneChain {
  Graph graph;
  std::vector<HostBuffer> inputs;
  Program program;

  OneChain() {
    Random random;
    const Graph::Recording recording(graph);
    const Shape shape({4, 9}, bf16);
    inputs = {values(random, shape)};
    const Tensor y = tanh(abs(sqrt(graph.input("x", shape))));
    program = graph.program({&y, 1});
  }
};

/// How often the compiler is called for it.
int compilations(const OneChain& chain, std::shared_ptr<PreparedCache> cache) {
  const int before = host_compiler_state().compiled;
  const Outcome got = run(chain.program, chain.inputs, fusing_device(), std::move(cache));
  check_same_bits(got, run(chain.program, chain.inputs, fusing_device("&fusion=off")));
  return host_compiler_state().compiled - before;
}

TEST_CASE("cuda fusion: kernels are kept on disk") {
  const OneChain chain;
  const TempFolder folder;
  const std::filesystem::path path = folder / "weights.packed";
  const auto cache = [&] {
    return std::make_shared<PreparedCache>(PreparedFile{path, "these weights"});
  };
  CHECK(compilations(chain, cache()) == 1);
  REQUIRE(std::filesystem::exists(path));
  CHECK(compilations(chain, cache()) == 0);

  // Another version of the compiler has kernels of its own.
  host_compiler_state().version = "2";
  CHECK(compilations(chain, cache()) == 1);
  CHECK(compilations(chain, cache()) == 0);
  host_compiler_state().version = "1";
  CHECK(compilations(chain, cache()) == 0);

  // Torn, and damaged.
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size / 2);
  CHECK(compilations(chain, cache()) == 1);
  CHECK(compilations(chain, cache()) == 0);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path) / 2));
    file << "damaged";
  }
  CHECK(compilations(chain, cache()) == 1);
  CHECK(compilations(chain, cache()) == 0);
}

/// Everything in a snapshot but the first prepared section, which is `planted` there.
void copy_snapshot(const std::filesystem::path& from, const std::filesystem::path& to,
                   std::string_view planted) {
  const Snapshot snapshot = Snapshot::open(from);
  SnapshotWriter writer(to);
  for (const Snapshot::Section& section : snapshot.sections()) {
    if (section.name == "prepared/0") {
      writer.add(section.name, planted);
    } else {
      writer.add(section.name, snapshot.bytes(section.name));
    }
  }
  writer.commit();
}

TEST_CASE(
    "cuda fusion: a snapshot has the kernels, which are run where nobody can have planted them") {
  if (!can_fuse()) return;
  const OneChain chain;
  const TempFolder folder;
  const std::filesystem::path path = folder / "chain.snapshot";
  {
    Session session(chain.program, {.backends = device_backends(fusing_device())});
    session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>()));
    session.prepare(std::array{chain.inputs[0].shape()});
    session.save(path, {.prepared = true});
  }
  const Outcome wanted = run(chain.program, chain.inputs, fusing_device("&fusion=off"));
  const auto loads_after = [&](const std::filesystem::path& file) {
    const int before = host_compiler_state().compiled;
    Session session = Session::load(file, device_backends(fusing_device()));
    const Outcome got{run_twice(session, chain.inputs)};
    CHECK(got.fused()[1] == 1);
    check_same_bits(got, wanted);
    return host_compiler_state().compiled - before;
  };
  CHECK(loads_after(path) == 0);
  host_compiler_state().version = "2";  // as another compute capability or driver is
  CHECK(loads_after(path) == 1);
  host_compiler_state().version = "1";

  std::filesystem::create_symlink(path, folder / "link");
  CHECK(loads_after(folder / "link") == 1);
  const auto others = std::filesystem::perms::others_write;
  std::filesystem::permissions(path, others, std::filesystem::perm_options::add);
  CHECK(loads_after(path) == 1);
  std::filesystem::permissions(path, others, std::filesystem::perm_options::remove);
  CHECK(loads_after(path) == 0);

  for (const std::string_view planted : {"", "no image of a kernel",
                                         "\x7f"
                                         "ELF"}) {
    copy_snapshot(path, folder / "planted", planted);
    CHECK(loads_after(folder / "planted") == 1);
  }
  std::filesystem::copy_file(path, folder / "torn");
  std::filesystem::resize_file(folder / "torn", std::filesystem::file_size(path) / 2);
  expect_error(Errc::truncated, [&] { loads_after(folder / "torn"); });
}

TEST_CASE("cuda fusion: without a compiler steps are single kernels, and the report says why") {
  const OneChain chain;
  const auto says = [&](const DevicePtr& device, const std::string& what) {
    const Outcome outcome = run(chain.program, chain.inputs, device);
    return std::ranges::any_of(outcome.notes, [&](const std::string& note) {
      return note.find(what) != std::string::npos;
    });
  };
  CHECK(says(emulated_device(),
             "a kernel for each element-wise step: the emulation has no compiler"));
  CHECK(says(fusing_device("&fusion=off"), "a kernel for each element-wise step: fusion=off"));
  CHECK(says(fusing_device(),
             "3 element-wise steps in 1 launches of generated kernels, by the host's"));
}

TEST_CASE("cuda fusion: a compiler that fails is no reason to fail, and is not asked again") {
  const OneChain chain;
  const Outcome wanted = run(chain.program, chain.inputs, emulated_device());
  HostCompilerState& state = host_compiler_state();
  for (bool HostCompilerState::* const fault :
       {&HostCompilerState::fails, &HostCompilerState::gives_no_image}) {
    int texts = 0;
    state.seen = [&](const std::string&) { ++texts; };
    state.*fault = true;
    Session session(chain.program,
                    {.backends = device_backends(fusing_device()), .forbid_fallback = true});
    for (int binding = 0; binding < 2; ++binding) {
      session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>()));
      const Outcome outcome{run_twice(session, chain.inputs)};
      check_same_bits(outcome, wanted);
      CHECK(outcome.fused()[0] == 0);
      CHECK(std::ranges::any_of(outcome.notes, [](const std::string& note) {
        return note.find("a kernel for each element-wise step: ") == 0;
      }));
    }
    state.*fault = false;
    state.seen = nullptr;
    CHECK(texts == 1);
  }
}

TEST_CASE("cuda fusion: NVRTC compiles the texts") {
  const cuda::FoundCompiler unknown = cuda::open_nvrtc(10);
  CHECK(unknown.compiler == nullptr);
  cuda::FoundCompiler nvrtc = cuda::open_nvrtc(90);
  if (nvrtc.compiler == nullptr) {
    WARN(nvrtc.about);
    return;
  }
  CHECK(nvrtc.about.ends_with("for sm_90"));
  int compiled = 0;
  host_compiler_state().seen = [&](const std::string& text) {
    if (++compiled > 10) return;
    INFO(text);
    const std::vector<std::byte> image = nvrtc.compiler->compile(text);
    CHECK(image.size() > 1000);
    CHECK(std::memcmp(image.data(),
                      "\x7f"
                      "ELF",
                      4) == 0);
  };
  Random random;
  for (const DType dtype : {f32, f16, bf16, i32, DType::boolean}) {
    Chains chains(random, Shape({6, 5}, f32));
    const Graph::Recording recording(chains.graph);
    chains.add_inputs(dtype);
    chains.add_inputs(f32);
    chains.add_ops(25);
    run(chains.program(), chains.inputs, fusing_device());
  }
  host_compiler_state().seen = nullptr;
  CHECK(compiled >= 5);
  const std::string what = expect_error(Errc::internal, [&] { nvrtc.compiler->compile("what"); });
  CHECK(what.find("fused.cu(1)") != std::string::npos);
}

}  // namespace
}  // namespace tenon::testing
