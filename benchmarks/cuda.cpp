// What a CUDA device reaches on the products and the attention of language models, and its limits.
//
//   bench_cuda [--device cuda:0] [--json] [--small] [limits|gemv|batch|gemm|attention|points|order|resnet]...
//
// The limit of gemv and batch is the bandwidth of copies on the device, measured in the same run. A program
// of several layers is timed, so that a launch from the CPU counts little. --small: tiny sizes, for
// a try on cuda:emulated.
#include "benchmarks/timing.hpp"

#include <tenon/backend.hpp>
#include <tenon/backends/cuda.hpp>
#include <tenon/error.hpp>
#include <tenon/tenon.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#ifdef TENON_WITH_CUDA_EMULATION
#include "backends/cuda/emulation/emulation.hpp"
#endif

namespace {

using namespace tenon;

struct Row {
  std::string what;
  double value = 0;
  std::string unit;
  std::optional<double> share{};  ///< of the limit
};

class Bench {
 public:
  Bench(const std::string& url, bool small)
      : device_(Device::open(url)), small_(small), least_(small ? 0 : 0.5) {}

  void run(std::string_view what) {
    if (what == "limits") return limits();
    if (what == "gemv") return gemv();
    if (what == "batch") return batch();
    if (what == "gemm") return gemm();
    if (what == "attention") return attention();
    if (what == "points") return points();
    if (what == "order") return order();
    if (what == "resnet") return resnet();
    throw Error(Errc::bad_argument, "bench_cuda", fmt::format("no benchmark '{}'", what));
  }
  const std::vector<Row>& rows() const { return rows_; }
  const Device& device() const { return *device_; }

 private:
  MemRegion& region() const { return device_->default_mem_region(); }

  /// Bytes read and written in a second by a copy on the device.
  double copied_per_second() {
    const std::uint64_t bytes = small_ ? 1 << 16 : std::uint64_t{1} << 30;
    const MemChunk from = region().malloc(bytes), to = region().malloc(bytes);
    const double seconds =
        bench::shortest([&] { region().copy(to.begin(), from.begin(), bytes); }, least_);
    return 2 * static_cast<double>(bytes) / seconds;
  }

  void limits() {
    rows_.push_back({"copy on the device", copied_per_second() / 1e9, "GB/s"});
    const std::uint64_t bytes = small_ ? 1 << 16 : std::uint64_t{256} << 20;
    const MemChunk chunk = region().malloc(bytes);
    std::vector<std::byte> host(bytes);
    const auto rate = [&](double seconds) { return static_cast<double>(bytes) / seconds / 1e9; };
    rows_.push_back({"copy to the device",
                     rate(bench::shortest([&] { chunk.write(host.data(), 0, bytes); }, least_)),
                     "GB/s"});
    rows_.push_back({"copy from the device",
                     rate(bench::shortest([&] { chunk.read(host.data(), 0, bytes); }, least_)),
                     "GB/s"});
  }

  /// An array on the device whose bytes are random, but for exponents: a block's scales are small, so
  /// that sums of several layers stay finite, and no other element is an infinity.
  Buffer random(const Shape& shape) {
    Buffer buffer = Buffer::allocate(shape, region());
    std::vector<std::uint16_t> words(std::size_t{1} << 18);
    const std::uint16_t mask = is_block(shape.dtype()) ? 0x8BFF : 0xBBFF;
    for (std::uint16_t& word : words) word = static_cast<std::uint16_t>(random_()) & mask;
    const auto bytes = static_cast<std::uint64_t>(shape.bytes());
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint64_t piece = std::min<std::uint64_t>(bytes - done, words.size() * 2);
      buffer.chunk().write(words.data(), done, piece);
      done += piece;
    }
    return buffer;
  }

  double seconds_of(const Graph& graph, const Tensor& result, const std::vector<Buffer>& inputs,
                    std::map<std::string, Buffer> weights) {
    Session session(
        graph.program({&result, 1}),
        {.backends = device_backends(device_), .forbid_fallback = true, .results_on_device = true});
    session.bind(std::make_shared<const WeightSet>(std::move(weights)));
    return bench::shortest([&] { session.forward(inputs).at(0).wait(); }, least_);
  }

  /// Layers x -> linear(x, up) -> linear(., down), whose weights are to be read once.
  void layers(const std::string& what, std::int64_t rows, const std::vector<DType>& types) {
    const double limit = copied_per_second();
    const std::int64_t width = small_ ? 256 : 4096, hidden = small_ ? 512 : 14336;
    const int pairs = small_ ? 1 : 6;
    for (const DType dtype : types) {
      Graph graph;
      const Graph::Recording recording(graph);
      const Shape x_shape({rows, width}, f32);
      Tensor x = graph.input("x", x_shape);
      std::map<std::string, Buffer> weights;
      double bytes = 0;
      const auto layer = [&](std::int64_t outputs, std::int64_t inputs) {
        const std::string name = fmt::format("w{}", weights.size());
        const Shape shape({outputs, inputs}, dtype);
        bytes += static_cast<double>(shape.bytes());
        weights[name] = random(shape);
        x = linear(x, graph.constant(name, shape));
      };
      for (int i = 0; i < pairs; ++i) {
        layer(hidden, width);
        layer(width, hidden);
      }
      const double seconds = seconds_of(graph, x, {random(x_shape)}, std::move(weights));
      rows_.push_back({fmt::format("{} {} {} x {}", what, name(dtype), hidden, width),
                       bytes / seconds / 1e9, "GB/s", bytes / seconds / limit});
    }
  }
  void gemv() {
    layers("gemv", 1,
           {DType::q4_0, DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_xs,
            DType::f16, DType::bf16});
  }
  void batch() {
    for (const std::int64_t rows : {16, 64}) {
      layers(fmt::format("{} rows", rows), rows,
             {DType::q8_0, DType::q4_k, DType::q6_k, DType::bf16});
    }
  }

  void gemm() {
    struct Size {
      std::int64_t rows, columns, depth;
    };
    const std::vector<Size> sizes =
        small_ ? std::vector<Size>{{64, 96, 64}}
               : std::vector<Size>{{512, 14336, 4096}, {4096, 14336, 4096}, {4096, 4096, 14336}};
    for (const Size& size : sizes) product(bf16, size.rows, size.columns, size.depth, bf16);
    // As language models have them.
    for (const DType weights : {bf16, DType::q4_k}) {
      if (small_) {
        product(f32, 160, 512, 256, weights);
      } else {
        for (const std::int64_t rows : {128, 192, 256}) product(f32, rows, 14336, 4096, weights);
        product(f32, 512, 14336, 4096, weights);
        product(f32, 512, 4096, 14336, weights);
      }
    }
  }
  void product(DType x_type, std::int64_t rows, std::int64_t columns, std::int64_t depth,
               DType w_type) {
    Graph graph;
    const Graph::Recording recording(graph);
    const Shape x_shape({rows, depth}, x_type), w_shape({columns, depth}, w_type);
    const Tensor y = linear(graph.input("x", x_shape), graph.constant("w", w_shape));
    const double seconds = seconds_of(graph, y, {random(x_shape)}, {{"w", random(w_shape)}});
    const auto flops = 2.0 * static_cast<double>(rows * columns * depth);
    const std::string types = x_type == w_type
                                  ? std::string(name(x_type))
                                  : fmt::format("{} by {}", name(x_type), name(w_type));
    rows_.push_back({fmt::format("gemm {} {} x {} x {}", types, rows, columns, depth),
                     flops / seconds / 1e12, "TFLOP/s"});
  }

  void attention() {
    constexpr std::int64_t heads = 32, kv_heads = 8, head = 128;
    const std::vector<std::int64_t> lengths =
        small_ ? std::vector<std::int64_t>{64} : std::vector<std::int64_t>{8192, 32768};
    for (const std::int64_t length : lengths) {
      for (const std::int64_t queries : {length, std::int64_t{1}}) {
        Graph graph;
        const Graph::Recording recording(graph);
        const Shape q({1, queries, small_ ? 2 : heads, head}, bf16);
        const Shape kv({1, length, small_ ? 1 : kv_heads, head}, bf16);
        const Tensor query = graph.input("q", q), key = graph.input("k", kv);
        const Tensor value = graph.input("v", kv);
        const Tensor y = tenon::attention(query, key, value, {.causal = true});
        const double seconds = seconds_of(graph, y, {random(q), random(kv), random(kv)}, {});
        if (queries == 1) {
          rows_.push_back({fmt::format("attention bf16, 1 query, {} keys", length),
                           2 * static_cast<double>(kv.bytes()) / seconds / 1e9, "GB/s"});
        } else {
          const double products = 2.0 * static_cast<double>(q.elements() * length);
          rows_.push_back({fmt::format("attention bf16, {} keys", length),
                           products / seconds / 1e12, "TFLOP/s"});
        }
      }
    }
  }

  /// Element-wise steps in a row, which read three arrays and write one.
  void points() {
    const double limit = copied_per_second();
    for (const DType dtype : {f32, f16}) {
      Graph graph;
      const Graph::Recording recording(graph);
      const Shape shape({small_ ? 1 << 10 : 1 << 26}, dtype);
      const Tensor x = graph.input("x", shape), a = graph.input("a", shape);
      const Tensor y = clamp(tanh(x * a + x) * graph.input("b", shape), -1, 1);
      const double seconds =
          seconds_of(graph, y, {random(shape), random(shape), random(shape)}, {});
      const double rate = 4 * static_cast<double>(shape.bytes()) / seconds;
      rows_.push_back(
          {fmt::format("5 element-wise steps {}", name(dtype)), rate / 1e9, "GB/s", rate / limit});
    }
  }

  /// What CUB has, too: reductions, scans, sorts.
  void order() {
    const std::int64_t part = small_ ? 256 : 1;
    const auto add = [&](const char* what, const Shape& shape, const auto& op) {
      Graph graph;
      const Graph::Recording recording(graph);
      const Tensor y = op(graph.input("x", shape));
      const double seconds = seconds_of(graph, y, {random(shape)}, {});
      rows_.push_back(
          {what, static_cast<double>(shape.elements()) / seconds / 1e6, "M elements/s"});
    };
    const Shape rows({4096 / part, 8192}, f32), all({(1 << 26) / part}, f32);
    const Shape line({(1 << 20) / part}, f32);
    const Shape vocabulary({64 / part + 1, 131072 / part}, f32), sorted({(1 << 22) / part}, f32);
    add("sum of all", all, [](const Tensor& x) { return sum(x, {0}); });
    add("sum of rows", rows, [](const Tensor& x) { return sum(x, {1}); });
    add("sum of columns", rows, [](const Tensor& x) { return sum(x, {0}); });
    add("running sum of rows", rows, [](const Tensor& x) { return cumsum(x, 1); });
    add("running sum of all", line, [](const Tensor& x) { return cumsum(x, 0); });
    add("top 40 of rows", vocabulary, [](const Tensor& x) { return topk(x, 40).values; });
    add("sort of all", sorted, [](const Tensor& x) { return sort(x, 0); });
    add("sort of rows", rows, [](const Tensor& x) { return sort(x, 1); });
  }

  /// ResNet-50 (He et al., arXiv:1512.03385), with batch norms folded into the convolutions.
  void resnet() {
    const std::vector<std::int64_t> batches =
        small_ ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{1, 32};
    for (const DType dtype : {f32, f16}) {
      for (const std::int64_t batch : batches) {
        Graph graph;
        const Graph::Recording recording(graph);
        std::map<std::string, Buffer> weights;
        const std::int64_t side = small_ ? 32 : 224, part = small_ ? 16 : 1;
        const Shape images({batch, 3, side, side}, dtype);
        const auto conv = [&](const Tensor& x, std::int64_t outputs, std::int64_t size,
                              std::int64_t stride = 1) {
          const auto constant = [&](const Shape& shape) {
            const std::string name = fmt::format("w{}", weights.size());
            weights[name] = random(shape);
            return graph.constant(name, shape);
          };
          const Tensor w = constant(Shape({outputs, x.shape()[1], size, size}, dtype));
          const std::int64_t padding = size / 2;
          return conv2d(x, w, constant(Shape({outputs}, dtype)),
                        {.stride = {stride, stride}, .padding = {padding, padding}});
        };
        Tensor x = relu(conv(graph.input("images", images), 64 / part, 7, 2));
        x = max_pool2d(x, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
        constexpr int counts[] = {3, 4, 6, 3};
        for (int stage = 0; stage < 4; ++stage) {
          const std::int64_t width = (64 << stage) / part;
          for (int i = 0; i < counts[stage]; ++i) {
            const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
            const Tensor shortcut = i == 0 ? conv(x, 4 * width, 1, stride) : x;
            const Tensor h = relu(conv(relu(conv(x, width, 1)), width, 3, stride));
            x = relu(conv(h, 4 * width, 1) + shortcut);
          }
        }
        const double seconds =
            seconds_of(graph, mean(x, {2, 3}), {random(images)}, std::move(weights));
        rows_.push_back({fmt::format("ResNet-50 {} of {}", name(dtype), batch),
                         static_cast<double>(batch) / seconds, "images/s"});
      }
    }
  }

  DevicePtr device_;
  bool small_;
  double least_;  ///< seconds of a measurement
  std::minstd_rand random_{1};
  std::vector<Row> rows_;
};

void print(const Bench& bench, bool json) {
  if (json) {
    nlohmann::ordered_json out{{"device", bench.device().params().at("name")},
                               {"rows", nlohmann::ordered_json::array()}};
    for (const Row& row : bench.rows()) {
      nlohmann::ordered_json one{{"what", row.what}, {"value", row.value}, {"unit", row.unit}};
      if (row.share) one["share"] = *row.share;
      out["rows"].push_back(std::move(one));
    }
    fmt::print("{}\n", out.dump(1));
    return;
  }
  for (const Row& row : bench.rows()) {
    fmt::print("{:40}{:12.1f} {:8}", row.what, row.value, row.unit);
    fmt::print("{}\n", row.share ? fmt::format("{:6.0f} %", 100 * *row.share) : "");
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::string device = "cuda:0";
  bool json = false, small = false;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--json") {
      json = true;
    } else if (word == "--small") {
      small = true;
    } else if (word == "--device" && i + 1 < argc) {
      device = argv[++i];
    } else {
      names.emplace_back(word);
    }
  }
  if (names.empty())
    names = {"limits", "gemv", "batch", "gemm", "attention", "points", "order", "resnet"};
  register_cuda_backend();
#ifdef TENON_WITH_CUDA_EMULATION
  cuda::register_emulation();
#endif
  Bench bench(device, small);
  for (const std::string& name : names) bench.run(name);
  print(bench, json);
} catch (const tenon::Error& error) {
  fmt::print(stderr, "bench_cuda: {}\n", error.what());
  return 1;
}
