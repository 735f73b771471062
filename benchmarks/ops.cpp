// Speed of the CPU backend's kernels by family: operations and bytes per second, and the share of
// the machine's limit. Bytes are those of operands and result, each once; a share above 100 % means
// that they stayed in cache. With one thread, times are processor times.
//
//   bench_ops [--threads N] [--only WORD]
#include "backends/cpu/cpu_features.hpp"
#include "backends/cpu/limits.hpp"
#include "backends/cpu/thread_pool.hpp"
#include "timing.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/grad.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/session.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace tenon;

/// Numbers in written memory: pages that were never written all share one zero page. Those of i64
/// are below 2^16 and serve as indices.
Buffer numbers(const Shape& shape, bool ascends) {
  const HostBuffer values = HostBuffer::zeros(shape);
  const std::int64_t unit = block_bytes(shape.dtype());
  const double least = is_floating(shape.dtype()) ? -4 : 0;
  const double scale = shape.dtype() == i64 ? 1 : 0x1p-13;
  std::byte* const bytes = values.view().data;
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    auto mixed = static_cast<double>(static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15u >> 48);
    if (ascends) mixed = 65536.0 * static_cast<double>(i) / static_cast<double>(shape.elements());
    store_double(shape.dtype(), bytes + i * unit, least + mixed * scale);
  }
  return values.to_device(cpu_device());
}

/// An op on inputs of these types. `ops`: arithmetic operations of one run, a multiply-add as two;
/// 0 where nothing but movement is done.
struct Case {
  std::string name;
  std::vector<Shape> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> build;
  double ops = 0;
  bool merge = true;       ///< whether adjacent steps may run as one
  std::size_t sorted = 0;  ///< how many of the inputs ascend
};

double product(const Shape& shape) { return static_cast<double>(shape.elements()); }

Case unary(std::string name, DType dtype,
           Tensor (*op)(const Tensor&, const std::source_location&)) {
  return {fmt::format("{} {}", name, tenon::name(dtype)),
          {Shape({1024, 4096}, dtype)},
          [op](const auto& x) { return op(x[0], std::source_location::current()); },
          4096.0 * 1024};
}

Case binary(std::string name, DType dtype,
            Tensor (*op)(const Tensor&, const Tensor&, const std::source_location&)) {
  return {fmt::format("{} {}", name, tenon::name(dtype)),
          {Shape({1024, 2048}, dtype), Shape({1024, 2048}, dtype)},
          [op](const auto& x) { return op(x[0], x[1], std::source_location::current()); },
          2048.0 * 1024};
}

Case convolution(std::string name, std::int64_t channels, std::int64_t outputs, std::int64_t size,
                 std::int64_t kernel, std::int64_t stride, std::int64_t groups) {
  const Shape x({1, channels, size, size}, f32);
  const Shape w({outputs, channels / groups, kernel, kernel}, f32);
  Conv2d op;
  op.stride = {stride, stride};
  op.padding = {kernel / 2, kernel / 2};
  op.groups = groups;
  const double pixels = static_cast<double>(((size - 1) / stride + 1) * ((size - 1) / stride + 1));
  return {std::move(name),
          {x, w},
          [op](const auto& in) { return conv2d(in[0], in[1], {}, op); },
          2 * pixels * product(w)};
}

/// Chains of element-wise ops, as one step and step by step.
std::vector<Case> chains() {
  const Shape f({1024, 2048}, f32), codes({1, 128, 128, 128}, DType::u8);
  const double elements = product(f);
  std::vector<Case> cases{
      {"relu(x * a + b)",
       {f, f, f},
       [](const auto& x) { return relu(x[0] * x[1] + x[2]); },
       3 * elements},
      {"gelu composed of ops",
       {f},
       [](const auto& x) {
         const Tensor cube = x[0] * x[0] * x[0];
         return x[0] * 0.5 * (tanh((x[0] + cube * 0.044715) * 0.7978845608) + 1.0);
       },
       9 * elements},
      {"residual of u8 codes",
       {codes, codes},
       [](const auto& x) {
         const Tensor scale = full(0.05, Shape({}, f32));
         const Tensor sum = dequantize_linear(x[0], scale) + dequantize_linear(x[1], scale);
         return quantize_linear(relu(sum), scale);
       },
       5 * product(codes)},
  };
  for (std::size_t i = 0; i < 3; ++i) {
    Case single = cases[2 * i];
    single.name += ", single";
    single.merge = false;
    cases.insert(cases.begin() + static_cast<std::ptrdiff_t>(2 * i + 1), std::move(single));
  }
  return cases;
}

/// A transposed convolution as a convolution of x with zeros between its pixels.
Tensor transposed_by_zeros(const Tensor& x, const Tensor& w, std::int64_t stride,
                           std::int64_t padding) {
  const std::int64_t rows = x.dim(2), columns = x.dim(3), reach = w.dim(2) - 1 - padding;
  const Tensor apart = unsqueeze(unsqueeze(x, 4), 3);  // [N, C, H, 1, W, 1]
  Tensor y = pad(apart, {0, 0, 0, 0, 0, 0}, {0, 0, 0, stride - 1, 0, stride - 1});
  y = merge_axes(merge_axes(y, 4, 5), 2, 3);
  y = slice(y, 2, 0, (rows - 1) * stride + 1);
  y = slice(y, 3, 0, (columns - 1) * stride + 1);
  return conv2d(y, w, {}, {.padding = {reach, reach}});
}

/// Images: transposed convolutions, resampling, norms, and gradients of windows.
std::vector<Case> image_cases() {
  std::vector<Case> cases;
  const Shape small({1, 128, 32, 32}, f32);
  const double products = 2.0 * 128 * 32 * 32 * 64 * 16;
  const ConvTranspose2d doubled{.stride = {2, 2}, .padding = {1, 1}};
  cases.push_back({"conv_transpose 4x4 / 2",
                   {small, Shape({128, 64, 4, 4}, f32)},
                   [=](const auto& x) { return conv_transpose2d(x[0], x[1], {}, doubled); },
                   products});
  cases.push_back({"conv_transpose by zeros",
                   {small, Shape({64, 128, 4, 4}, f32)},
                   [](const auto& x) { return transposed_by_zeros(x[0], x[1], 2, 1); },
                   products});
  for (const std::int64_t stride : {3, 4, 8}) {
    const std::int64_t taps = 2 * stride;
    const ConvTranspose2d spread{.stride = {stride, stride}, .padding = {stride / 2, stride / 2}};
    cases.push_back({fmt::format("conv_transpose {0}x{0} / {1}", taps, stride),
                     {small, Shape({128, 64, taps, taps}, f32)},
                     [=](const auto& x) { return conv_transpose2d(x[0], x[1], {}, spread); },
                     products / 16 * static_cast<double>(taps * taps)});
  }
  const ConvTranspose2d same{.padding = {1, 1}};
  cases.push_back({"conv_transpose 3x3",
                   {Shape({1, 64, 56, 56}, f32), Shape({64, 64, 3, 3}, f32)},
                   [=](const auto& x) { return conv_transpose2d(x[0], x[1], {}, same); },
                   2.0 * 64 * 56 * 56 * 64 * 9});
  const Shape image({1, 64, 64, 64}, f32);
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    const Resize op{.sizes = {128, 128}, .mode = mode};
    cases.push_back({fmt::format("resize x 2, {}", mode), {image}, [op](const auto& x) {
                       return resize(x[0], op);
                     }});
  }
  cases.push_back({"resize_backward, linear", {Shape({1, 64, 128, 128}, f32)}, [](const auto& x) {
                     return resize_backward(x[0], {.sizes = {64, 64}});
                   }});
  const Shape plane({1, 256, 56, 56}, f32), channels({256}, f32);
  cases.push_back({"group_norm, 32 groups",
                   {plane, channels, channels},
                   [](const auto& x) { return group_norm(x[0], 32, x[1], x[2]); },
                   6 * product(plane)});
  cases.push_back({"batch_norm",
                   {plane, channels, channels, channels, channels},
                   [](const auto& x) { return batch_norm(x[0], x[1], x[2], x[3], x[4]); },
                   2 * product(plane)});
  cases.push_back({"batch_norm_training",
                   {plane, channels, channels},
                   [](const auto& x) { return batch_norm_training(x[0], x[1], x[2]).y; },
                   6 * product(plane)});
  const MaxPool2dBackward pool{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  cases.push_back({"max_pool2d_backward 3x3 / 2",
                   {Shape({1, 64, 112, 112}, f32), Shape({1, 64, 56, 56}, f32)},
                   [pool](const auto& x) { return max_pool2d_backward(x[0], x[1], pool); }});
  cases.push_back(
      {"gradient of conv 3x3",
       {Shape({1, 64, 56, 56}, f32), Shape({64, 64, 3, 3}, f32), Shape({1, 64, 56, 56}, f32)},
       [](const auto& x) {
         const Tensor y = conv2d(x[0], x[1], {}, {.padding = {1, 1}});
         return grad({&y, 1}, {&x[2], 1}, {&x[1], 1}).front();
       },
       2.0 * 64 * 56 * 56 * 64 * 9});
  cases.push_back({"conv3d 3x3x3, 32 channels",
                   {Shape({1, 32, 16, 28, 28}, f32), Shape({32, 32, 3, 3, 3}, f32)},
                   [](const auto& x) { return conv3d(x[0], x[1], {}, {.padding = {1, 1, 1}}); },
                   2.0 * 32 * 16 * 28 * 28 * 32 * 27});
  cases.push_back({"unfold 3x3", {image}, [](const auto& x) {
                     return unfold2d(x[0], {.kernel = {3, 3}, .padding = {1, 1}});
                   }});
  cases.push_back({"grid_sample, bilinear", {image, Shape({1, 64, 64, 2}, f32)}, [](const auto& x) {
                     return grid_sample(x[0], x[1]);
                   }});
  return cases;
}

/// Functions of one and two operands beyond arithmetic, on a million elements.
std::vector<Case> function_cases() {
  const Shape million({1000000}, f32);
  std::vector<Case> cases;
  using Pair = Tensor (*)(const Tensor&, const Tensor&, const std::source_location&);
  const std::pair<const char*, Pair> pairs[] = {{"fmod", fmod},           {"remainder", remainder},
                                                {"floor_div", floor_div}, {"atan2", atan2},
                                                {"hypot", hypot},         {"pow", pow}};
  for (const auto& [name, op] : pairs) {
    for (const DType type : {f32, f64, i32, i64}) {
      const bool is_real = std::string_view(name) == "atan2" || std::string_view(name) == "hypot";
      if (is_real && !is_floating(type)) continue;
      const Shape shape = million.with_dtype(type);
      cases.push_back(
          {fmt::format("{} {}, 1M", name, tenon::name(type)),
           {shape, shape},
           [op](const auto& x) { return op(x[0], x[1], std::source_location::current()); },
           1e6});
    }
  }
  for (const double exponent : {3.0, 0.5, 1.7}) {
    cases.push_back(
        {fmt::format("pow(x, {}), 1M", exponent),
         {million},
         [exponent](const auto& x) { return pow(abs(x[0]), scalar_like(x[0], exponent)); },
         1e6});
  }
  cases.push_back({"norm, p = 3, 1M",
                   {Shape({1000, 1000}, f32)},
                   [](const auto& x) { return norm(x[0], 3, {1}); },
                   1e6});
  const std::pair<const char*, Tensor (*)(const Tensor&, const std::source_location&)> ones[] = {
      {"erfinv", erfinv}, {"lgamma", lgamma}, {"digamma", digamma}};
  for (const auto& [name, op] : ones) {
    cases.push_back(
        {fmt::format("{}, 1M", name),
         {million},
         [op](const auto& x) { return op(x[0] * 0.2499, std::source_location::current()); },
         1e6});
  }
  for (const std::int64_t size : {1000, 1000000}) {
    for (const bool in_order : {false, true}) {
      for (const DType type : {f32, i64}) {
        const Shape sorted({size}, type);
        cases.push_back({fmt::format("searchsorted {} in {}{}", tenon::name(type), size,
                                     in_order ? ", sorted" : ""),
                         {sorted, million.with_dtype(type)},
                         [](const auto& x) { return searchsorted(x[0], x[1]); },
                         1e6});
        cases.back().sorted = in_order ? 2 : 1;
      }
    }
  }
  return cases;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases{
      binary("add", f32, add),
      binary("add", i32, add),
      binary("add", i64, add),
      binary("add", f16, add),
      binary("mul", f64, mul),
      binary("lt", f32, lt),
      unary("relu", f32, relu),
      unary("exp", f32, exp),
      unary("tanh", f32, tanh),
      unary("sin", f32, sin),
      unary("silu", f32, silu),
      unary("gelu", f32, gelu),
      unary("exp", f16, exp),
      unary("tanh", f16, tanh),
      unary("silu", f16, silu),
      unary("gelu", f16, gelu),
      unary("gelu_tanh", f16, gelu_tanh),
  };
  const Shape rows({1024, 4096}, f32);
  const double elements = product(rows);
  cases.push_back({"cast f32 to bf16", {rows}, [](const auto& x) { return cast(x[0], bf16); }, 0});
  cases.push_back({"cast f32 to i32", {rows}, [](const auto& x) { return cast(x[0], i32); }, 0});
  cases.push_back({"softmax", {rows}, [](const auto& x) { return softmax(x[0]); }, 3 * elements});
  const Shape weight({4096}, f32);
  cases.push_back({"rms_norm",
                   {rows, weight},
                   [](const auto& x) { return rms_norm(x[0], x[1]); },
                   3 * elements});
  cases.push_back({"layer_norm",
                   {rows, weight, weight},
                   [](const auto& x) { return layer_norm(x[0], x[1], x[2]); },
                   6 * elements});
  cases.push_back({"rope",
                   {Shape({1, 512, 32, 128}, f32), Shape({1, 512}, i32)},
                   [](const auto& x) { return rope(x[0], x[1]); },
                   3.0 * 512 * 32 * 128});
  cases.push_back({"sum of rows", {rows}, [](const auto& x) { return sum(x[0], {1}); }, elements});
  cases.push_back(
      {"sum of columns", {rows}, [](const auto& x) { return sum(x[0], {0}); }, elements});
  cases.push_back({"argmax of rows", {rows}, [](const auto& x) { return argmax(x[0]); }, elements});
  cases.push_back({"cumsum", {rows}, [](const auto& x) { return cumsum(x[0]); }, elements});
  cases.push_back(
      {"topk 40", {rows}, [](const auto& x) { return topk(x[0], 40).indices; }, elements});
  for (const std::int64_t k : {100, 1000}) {
    cases.push_back({fmt::format("topk {}", k),
                     {rows},
                     [k](const auto& x) { return topk(x[0], k).indices; },
                     elements});
  }
  const Shape mask({1024, 16384}, boolean);
  cases.push_back(
      {"logical_and", {mask, mask}, [](const auto& x) { return logical_and(x[0], x[1]); }});
  cases.push_back({"logical_not", {mask}, [](const auto& x) { return logical_not(x[0]); }});
  cases.push_back({"where", {rows.with_dtype(boolean), rows, rows}, [](const auto& x) {
                     return where(x[0], x[1], x[2]);
                   }});
  cases.push_back({"where, a number", {rows.with_dtype(boolean), rows}, [](const auto& x) {
                     return where(x[0], x[1], scalar_like(x[1], 0));
                   }});
  for (const DType type : {i32, i64, f32}) {
    cases.push_back({fmt::format("iota {}", tenon::name(type)), {}, [type](const auto&) {
                       return iota(std::int64_t{1} << 22, type);
                     }});
  }
  const Shape wide({64, 65536}, f32);
  cases.push_back({"take_along", {wide, wide.with_dtype(i64)}, [](const auto& x) {
                     return take_along(x[0], x[1], 1);
                   }});
  const Shape thousands({1000, 1000}, f32), million({1000000}, f32), slots({65536}, f32);
  for (const Shape& x : {thousands, million}) {
    const std::string sizes = x.rank() == 1 ? "1M" : "1000 x 1000";
    cases.push_back({"sort " + sizes, {x}, [](const auto& in) { return sort(in[0]); }, 0});
    cases.push_back({"argsort " + sizes, {x}, [](const auto& in) { return argsort(in[0]); }, 0});
  }
  cases.push_back({"scatter add 1M",
                   {slots, million.with_dtype(i64), million},
                   [](const auto& x) { return scatter(x[0], x[1], x[2], 0, "add"); },
                   1e6});
  cases.push_back({"index_add rows of 64",
                   {Shape({65536, 64}, f32), Shape({65536}, i64), Shape({65536, 64}, f32)},
                   [](const auto& x) { return index_add(x[0], x[1], x[2], 0); },
                   65536.0 * 64});
  cases.push_back({"transposed copy",
                   {rows},
                   [](const auto& x) { return reshape(permute(x[0], {1, 0}), {-1}); },
                   0});
  cases.push_back(
      {"concat", {rows, rows}, [](const auto& x) { return concat({x[0], x[1]}, 1); }, 0});
  cases.push_back({"pad", {rows}, [](const auto& x) { return pad(x[0], {3, 5}, {2, 1}); }, 0});
  cases.push_back(convolution("conv 3x3, 64 channels", 64, 64, 56, 3, 1, 1));
  cases.push_back(convolution("conv 1x1, 256 channels", 256, 256, 28, 1, 1, 1));
  cases.push_back(convolution("conv 7x7 / 2, 3 channels", 3, 64, 224, 7, 2, 1));
  cases.push_back(convolution("conv 3x3, depthwise", 144, 144, 56, 3, 1, 144));
  const Conv2dInteger halved{.stride = {2, 2}, .padding = {3, 3}};
  const Shape codes({1, 3, 224, 224}, DType::u8), filter({64, 3, 7, 7}, DType::u8);
  const Shape zero({}, DType::u8);
  const double products = 2.0 * 64 * 3 * 49 * 112 * 112;
  cases.push_back({"conv_integer 7x7 / 2, 3 channels",
                   {codes, filter.with_dtype(DType::i8)},
                   [=](const auto& x) { return conv2d_integer(x[0], x[1], {}, {}, halved); },
                   products});
  cases.push_back({"the same, zero points",
                   {codes, filter, zero, zero},
                   [=](const auto& x) { return conv2d_integer(x[0], x[1], x[2], x[3], halved); },
                   products});
  const Shape image({1, 64, 112, 112}, f32);
  cases.push_back({"max_pool 3x3 / 2",
                   {image},
                   [](const auto& x) {
                     MaxPool2d op;
                     op.kernel = {3, 3};
                     op.stride = {2, 2};
                     op.padding = {1, 1};
                     return max_pool2d(x[0], op);
                   },
                   64.0 * 56 * 56 * 9});
  for (Case& made : function_cases()) cases.push_back(std::move(made));
  for (Case& made : image_cases()) cases.push_back(std::move(made));
  for (Case& chain : chains()) cases.push_back(std::move(chain));
  return cases;
}

void measure(const Case& one, const BackendPtr& backend, const Limits& limits, bool alone) {
  Graph graph;
  const Graph::Recording recording(graph);
  std::vector<Tensor> operands;
  std::vector<Buffer> buffers;
  double bytes = 0;
  for (std::size_t i = 0; i < one.inputs.size(); ++i) {
    operands.push_back(graph.input(fmt::format("x{}", i), one.inputs[i]));
    buffers.push_back(numbers(one.inputs[i], i < one.sorted));
    bytes += static_cast<double>(one.inputs[i].bytes());
  }
  const Tensor result = one.build(operands);
  bytes += static_cast<double>(result.shape().bytes());
  Session session(graph.program({&result, 1}), {.backends = {backend}});
  session.set_merge(one.merge);
  session.bind(std::make_shared<const WeightSet>(std::map<std::string, Buffer>()));
  const auto run = [&] { static_cast<void>(session.forward(buffers)); };
  const double seconds = alone ? bench::shortest_alone(run) : bench::shortest(run);
  fmt::print("{:29} {:9.3f} {:9.2f} {:4.0f} % {:9.2f} {:4.0f} %\n", one.name, seconds * 1e3,
             one.ops / seconds * 1e-9, 100 * one.ops / seconds / limits.f32_ops,
             bytes / seconds * 1e-9, 100 * bytes / seconds / limits.read_bytes);
}

}  // namespace

int main(int argc, char** argv) try {
  int threads = 0;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--threads") threads = std::stoi(argv[i + 1]);
    if (name == "--only") only = argv[i + 1];
  }
  register_cpu_backend();
  const BackendPtr backend = make_backend("cpu", {.threads = threads});
  cpu::ThreadPool pool(threads);
  const Limits limits = cpu::measure_limits(pool, 0.3);
  fmt::print("level {}, {} threads; limits: f32 {:.0f} Gop/s, reading {:.1f} GB/s\n",
             cpu::name(cpu::active_isa()), pool.threads(), limits.f32_ops * 1e-9,
             limits.read_bytes * 1e-9);
  fmt::print("kernel                               ms     Gop/s of limit   GB/s of limit\n");
  for (const Case& one : all_cases()) {
    if (one.name.find(only) != std::string::npos) {
      measure(one, backend, limits, pool.threads() == 1);
    }
  }
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
