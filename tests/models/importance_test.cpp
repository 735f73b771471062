// Importance matrices of models: what their weights are multiplied with.
#include "support/expect_error.hpp"
#include "tiny_models.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/compare.hpp>
#include <tenon/graph.hpp>
#include <tenon/io/load.hpp>
#include <tenon/models/decoder.hpp>
#include <tenon/models/importance.hpp>
#include <tenon/models/vocabulary.hpp>
#include <tenon/session.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

const std::string text = "in the beginning the hand and the word were one, and then they were not";

io::File tiny(const std::string& name) {
  return io::open("tests/models/data/tiny_" + name + ".gguf");
}

double total(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

void check_close(const std::vector<double>& found, const std::vector<double>& wanted) {
  REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO("column " << i);
    CHECK(std::abs(found[i] - wanted[i]) <= 1e-4 * std::abs(wanted[i]) + 1e-9);
  }
}

}  // namespace

TEST_CASE("importance: a layer's first weights are multiplied with its norm's output") {
  const io::File file = tiny("llama");
  const auto matrix = models::collect_importance(file, text, {.dataset = "a.txt"});
  CHECK(matrix.datasets == std::vector<std::string>{"a.txt"});
  CHECK(matrix.chunk_count == 1);
  CHECK(matrix.tensors.count("token_embd.weight") + matrix.tensors.count("output.weight") == 0);

  // The reference backend's activations of the same tokens.
  const auto ids = models::load_tokenizer(file).encode(text);
  Graph graph;
  const WeightsView view = file.view();
  const auto decoder = models::Decoder<>::init(view, models::DecoderConfig::from(file));
  const Shape shape({1, std::ssize(ids)}, i32);
  Program program = [&] {
    const Graph::Recording recording(graph);
    return graph.program(std::vector{decoder.states(graph.input("ids", shape))});
  }();
  std::vector<std::string> names;
  for (const io::TensorEntry& tensor : file.tensors()) names.push_back(tensor.name);
  Session session(std::move(program), {.backends = {make_reference_backend({})}});
  session.bind(std::make_shared<const WeightSet>(io::load_buffers(file, names, cpu_device())));
  const Buffer input = HostBuffer::of(shape, std::span(ids)).to_device(cpu_device());
  const RecordedValues recorded = record_activations(session, std::vector{input});
  const auto norm = recorded.find("layer0_0_rms_norm0");
  REQUIRE(norm != recorded.end());
  const auto rows = norm->second.values<float>();
  const auto columns = static_cast<std::size_t>(norm->second.shape()[2]);
  std::vector<double> squares(columns);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    squares[i % columns] += static_cast<double>(rows[i]) * static_cast<double>(rows[i]);
  }
  for (const char* const name :
       {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"}) {
    const io::ColumnSums& sums = matrix.tensors.at(name);
    CHECK(sums.counts == std::vector<double>{static_cast<double>(ids.size())});
    check_close(sums.sums, squares);
  }
  // Every product of every layer.
  const std::int64_t layers = models::DecoderConfig::from(file).layers;
  CHECK(std::ssize(matrix.tensors) == 7 * layers);
}

TEST_CASE("importance: experts have the rows that were routed to them") {
  const io::File file = tiny("bailingmoe");
  const auto matrix = models::collect_importance(file, text, {});
  const auto tokens = static_cast<double>(models::load_tokenizer(file).encode(text).size());
  const io::ColumnSums& up = matrix.tensors.at("blk.0.ffn_up_exps.weight");
  const io::ColumnSums& down = matrix.tensors.at("blk.0.ffn_down_exps.weight");
  const io::ColumnSums& router = matrix.tensors.at("blk.0.ffn_gate_inp.weight");
  CHECK(up.matrices() == 5);
  CHECK(total(up.counts) == 2 * tokens);
  CHECK(down.counts == up.counts);
  // Each row goes to two experts.
  std::vector<double> all(static_cast<std::size_t>(up.columns));
  for (std::size_t i = 0; i < up.sums.size(); ++i) all[i % all.size()] += up.sums[i] / 2;
  check_close(all, router.sums);
}

TEST_CASE("importance: every weight of every tiny model's layers that quantize converts") {
  // What it copies, of matrices.
  const auto is_copied = [](const std::string& name) {
    constexpr const char* parts[] = {"_norm.",          "ssm_conv1d.",  "shortconv.conv.", "_lerp_",
                                     "time_mix_first.", "time_mix_v1.", "time_mix_v2."};
    return std::ranges::any_of(parts, [&](const char* part) { return contains(name, part); });
  };
  std::vector<std::string> refused;
  for (const std::string& name : tiny_architectures()) {
    INFO(name);
    const io::File file = tiny(name);
    io::ImportanceMatrix matrix;
    try {
      matrix = models::collect_importance(file, text, {.max_chunks = 1});
    } catch (const Error& error) {
      CHECK(error.code() == Errc::unsupported);
      refused.push_back(name);
      continue;
    }
    const auto tokens = static_cast<double>(models::load_tokenizer(file).encode(text).size());
    for (const io::TensorEntry& tensor : file.tensors()) {
      const bool is_weight = tensor.name.starts_with("blk.") && tensor.name.ends_with("weight") &&
                             tensor.shape.rank() > 1 && !is_copied(tensor.name);
      if (!is_weight) continue;
      INFO(tensor.name);
      const auto found = matrix.tensors.find(tensor.name);
      REQUIRE(found != matrix.tensors.end());
      const io::ColumnSums& sums = found->second;
      CHECK(sums.columns == tensor.shape[tensor.shape.rank() - 1]);
      // Once for each token, also where several layers have their rows in it. Keys' weights make
      // values, too, in layers that have no others for them.
      const std::string key = "attn_k.weight";
      const bool is_key = tensor.name.ends_with(key);
      const std::string prefix = tensor.name.substr(0, tensor.name.size() - key.size());
      const double uses = is_key && !matrix.tensors.contains(prefix + "attn_v.weight") ? 2 : 1;
      if (sums.matrices() == 1) CHECK(sums.counts[0] == uses * tokens);
    }
  }
  CHECK(refused == std::vector<std::string>{"gemma3n", "gemma4_inputs"});
}

TEST_CASE("importance: pieces, each behind the token that begins a text") {
  const io::File file = tiny("llama");
  const text::Tokenizer tokenizer = models::load_tokenizer(file);
  const auto tokens = std::ssize(tokenizer.encode(text, {.add_special = false}));
  const std::int64_t beginning = tokenizer.adds_bos() ? 1 : 0;
  std::vector<std::int64_t> reports;
  const auto matrix = models::collect_importance(
      file, text, {.chunk = 8, .progress = [&](std::int64_t done, std::int64_t pieces) {
                     reports.push_back(done);
                     CHECK(pieces == (tokens + 7 - beginning) / (8 - beginning));
                   }});
  const std::int64_t pieces = std::ssize(reports);
  CHECK(matrix.chunk_count == static_cast<std::uint32_t>(pieces));
  CHECK(matrix.tensors.at("blk.0.attn_q.weight").counts.front() ==
        static_cast<double>(tokens + pieces * beginning));
  const auto two = models::collect_importance(file, text, {.chunk = 8, .max_chunks = 2});
  CHECK(two.tensors.at("blk.0.attn_q.weight").counts == std::vector<double>{16});
}

TEST_CASE("importance: refused calls") {
  const io::File file = tiny("llama");
  expect_error(Errc::bad_argument, [&] { models::collect_importance(file, "", {}); });
  for (const std::int64_t chunk : {0, 1, 1 << 30}) {
    expect_error(Errc::bad_argument,
                 [&] { models::collect_importance(file, text, {.chunk = chunk}); });
  }
  std::stop_source stop;
  stop.request_stop();
  expect_error(Errc::cancelled, [&] {
    models::collect_importance(file, text, {.interrupt = {.cancel = stop.get_token()}});
  });
}

}  // namespace tenon::testing
