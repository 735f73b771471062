// The code of docs/cpp.md.
#include "io/temp_folder.hpp"
#include "support/shown_code.hpp"

#include <tenon/eigen.hpp>
#include <tenon/event.hpp>
#include <tenon/io/convert.hpp>
#include <tenon/log_spdlog.hpp>
#include <tenon/tenon.hpp>
#include <tenon/text/stream_decoder.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

namespace tenon::testing {
namespace {

/// What the library's messages and the page's code print on standard error.
class Printed {
 public:
  Printed() : sink_(set_log_sink(nullptr)), buffer_(std::cerr.rdbuf(text_.rdbuf())) {}
  ~Printed() {
    std::cerr.rdbuf(buffer_);
    set_log_sink(std::move(sink_));
  }
  std::string text() const { return text_.str(); }

 private:
  LogSink sink_;
  std::ostringstream text_;
  std::streambuf* buffer_;
};

int run(const std::filesystem::path& path) try {
  io::open(path);
  return 0;
} catch (const Error& error) {
  std::cerr << error.what() << '\n';
  return exit_status(error.code());  // 3 where there is no such file
}

template <class T = Tensor>
struct Tagger {
  nn::Lstm<T> lstm;
  nn::Linear<T> head;
  TENON_FIELDS(lstm, head)
  Tensor forward(const Tensor& x) const { return head.forward(lstm.forward(x).outputs); }
};

}  // namespace

TEST_CASE("cpp.md: messages") {
  Printed printed;
  log(LogLevel::warning, "to nobody");
  set_log_sink([](LogLevel level, std::string_view message) {
    if (level >= LogLevel::warning) std::cerr << "tenon: " << message << '\n';
  });
  log(LogLevel::info, "not wanted");
  log(LogLevel::warning, "a warning");
  CHECK(printed.text() == "tenon: a warning\n");

  std::ostringstream out;
  const auto before = spdlog::default_logger();
  const auto logger = std::make_shared<spdlog::logger>(
      "tenon", std::make_shared<spdlog::sinks::ostream_sink_mt>(out));
  logger->set_pattern("%n %l %v");
  spdlog::set_default_logger(logger);
  set_log_sink(spdlog_sink(spdlog::default_logger()));
  log(LogLevel::warning, "a warning");
  set_log_sink(nullptr);
  spdlog::set_default_logger(before);
  CHECK(out.str() == "tenon warning a warning\n");
}

TEST_CASE("cpp.md: exit statuses") {
  Printed printed;
  CHECK(run("there is no such file") == 3);
  CHECK(printed.text().starts_with("NotFound: there is no such file"));
  for (const auto& [code, status] : {std::pair{Errc::bad_argument, 2},
                                     {Errc::syntax, 3},
                                     {Errc::unsupported, 4},
                                     {Errc::device_lost, 5},
                                     {Errc::timeout, 6},
                                     {Errc::internal, 1}}) {
    CHECK(exit_status(code) == status);
  }
}

TEST_CASE("cpp.md: arrays in files") {
  const TempFolder temporary;
  const std::filesystem::path folder = temporary.path();
  HostBuffer w = HostBuffer::zeros(Shape({2, 32}, f32));
  std::ranges::fill(w.mutable_values<float>(), 0.5F);
  io::write_npy(folder / "x.npy", w);

  const HostBuffer x = io::read_npy(folder / "x.npy");
  const std::vector<io::NamedTensor> tensors{{"up.weight", w}, {"x", x}};
  io::save_safetensors(folder / "net.safetensors", tensors);

  const io::File file = io::open(folder / "net.safetensors");
  const WeightsView view = io::declare_as(
      file, DType::q8_0, [](const io::TensorEntry& entry) { return entry.name == "up.weight"; });
  const auto layer = nn::Linear<>::init(view["up"]);
  const nn::Linear<Buffer> weights = io::load_as(layer, file, cpu_device());  // q8_0
  CHECK(weights.weight.shape() == Shape({2, 32}, DType::q8_0));
  CHECK(weights.weight.to_host().to(f32).at({1, 31}) == Approx(0.5).epsilon(1e-3));
  CHECK(file.at("x").data().at({1, 31}) == 0.5);

  SnapshotWriter writer(folder / "words.snapshot");
  writer.add("words", "mortise tenon");
  writer.commit();
  const std::string words(Snapshot::open(folder / "words.snapshot").text("words"));
  CHECK(words == "mortise tenon");
}

TEST_CASE("cpp.md: Eigen") {
  const HostBuffer w = HostBuffer::of<float>(Shape({2, 3}, f32), {1, 2, 3, 4, 5, 6});
  const HostBuffer v = HostBuffer::of<float>(Shape({3}, f32), {1, 0, -1});
  HostBuffer y = HostBuffer::zeros(Shape({2}, f32));
  as_mutable_vector<float>(y) = as_matrix<float>(w) * as_vector<float>(v);
  CHECK(y.at({0}) == -2);
  CHECK(y.at({1}) == -2);
}

TEST_CASE("cpp.md: tokens as they come") {
  const text::Tokenizer tokenizer = text::Tokenizer::from_json_text(
      R"({"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel",
          "unk_token": "?", "vocab": {"?": 0, "one": 1, "two": 2}}})");
  std::string shown;
  text::StreamDecoder decoder(tokenizer);
  for (const std::int32_t id : tokenizer.encode("one two")) shown += decoder.push(id);
  shown += decoder.finish();
  CHECK(shown == "one two");
}

TEST_CASE("cpp.md: recurrent layers") {
  const Tagger<Shape> shapes{{{Shape({16, 3}, f32), Shape({16, 4}, f32)}},
                             {Shape({2, 4}, f32), Shape({2}, f32)}};
  const Tagger<Buffer> weights = train::initialize(shapes, 1, cpu_device());
  const std::vector<std::pair<std::string, Shape>> names = {
      {"lstm.weight_ih_l0", Shape({16, 3}, f32)},
      {"lstm.weight_hh_l0", Shape({16, 4}, f32)},
      {"head.weight", Shape({2, 4}, f32)},
      {"head.bias", Shape({2}, f32)}};
  const WeightsView view("tagger", names);
  const Tagger<> model{nn::Lstm<>::init(view["lstm"]), nn::Linear<>::init(view["head"])};
  auto exe = compile<&Tagger<>::forward>(model, {Shape({5, 1, 3}, f32)}, cpu_device());
  auto tagger = exe.bind(weights);
  const HostBuffer x = HostBuffer::zeros(Shape({5, 1, 3}, f32));
  CHECK(tagger(x.to_device(cpu_device())).shape() == Shape({5, 1, 2}, f32));
}

TEST_CASE("cpp.md: data of other threads and devices") {
  Graph graph;
  const Tensor operand = graph.input("x", Shape({4}, f32));
  const Tensor result = neg(operand);
  register_cpu_backend();
  Session session(graph.program({&result, 1}), {.backends = {make_backend("cpu")}});
  Buffer x = Buffer::allocate(Shape({4}, f32), cpu_device()->default_mem_region());
  EventSource work;
  const Buffer late = x.ready_at(work.event());
  const std::jthread filler([&] {
    x.fill<float>([](std::size_t i) { return static_cast<float>(i); });
    work.set();  // or work.fail(std::current_exception())
  });
  const HostBuffer y = session.forward({late})[0].to_host();
  CHECK(y.at({3}) == -3);
}

TEST_CASE("cpp.md: its code is what runs") {
  check_shown_code("docs/cpp.md", "tests/core/cpp_page_test.cpp", 10);
}

}  // namespace tenon::testing
