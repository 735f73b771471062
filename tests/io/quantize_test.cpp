#include "support/expect_error.hpp"
#include "temp_folder.hpp"

#include <tenon/io/file.hpp>
#include <tenon/io/importance.hpp>
#include <tenon/io/quantize.hpp>
#include <tenon/io/save.hpp>
#include <tenon/quant.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace tenon::testing {
namespace {

constexpr int layers = 8;

HostBuffer waves(std::int64_t rows, std::int64_t columns) {
  HostBuffer matrix = HostBuffer::zeros(Shape({rows, columns}, f32));
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    matrix.view().as<float>()[i] = 0.1f * std::sin(0.37f * static_cast<float>(i * i % 1009));
  }
  return matrix;
}

std::vector<io::NamedTensor> model_tensors() {
  std::vector<io::NamedTensor> tensors = {{"token_embd.weight", waves(12, 256).to(f16)}};
  for (int i = 0; i < layers; ++i) {
    const auto named = [&](const char* part) { return fmt::format("blk.{}.{}.weight", i, part); };
    tensors.push_back({named("attn_norm"), HostBuffer::zeros(Shape({256}, f32))});
    tensors.push_back({named("attn_q"), waves(3, 256)});
    tensors.push_back({named("attn_v"), waves(3, 256)});
    tensors.push_back({named("attn_output"), waves(3, 96)});  // no multiple of 256
    tensors.push_back({named("ffn_down"), waves(5, 512)});
  }
  tensors.push_back({"odd.weight", waves(3, 7)});
  return tensors;
}

std::filesystem::path made_model(const TempFolder& folder,
                                 const std::vector<io::NamedTensor>& tensors = model_tensors()) {
  io::Metadata metadata;
  metadata.set("general.architecture", "llama");
  metadata.set("general.file_type", std::uint32_t{0});
  metadata.set("llama.block_count", std::uint32_t{layers});
  metadata.set("llama.attention.head_count", std::uint32_t{4});
  metadata.set("llama.attention.head_count_kv", std::uint32_t{4});
  metadata.set("split.count", std::uint16_t{0});
  const auto path = folder.path() / "model.gguf";
  io::save_gguf(path, metadata, tensors);
  return path;
}

io::ColumnSums sums_of_waves(std::int64_t matrices, std::int64_t columns) {
  io::ColumnSums sums = io::ColumnSums::zeros(matrices, columns);
  const HostBuffer rows = waves(matrices, columns);
  for (std::int64_t i = 0; i < matrices; ++i) {
    sums.add(i, rows.values<float>().subspan(static_cast<std::size_t>(i * columns),
                                             static_cast<std::size_t>(columns)));
  }
  return sums;
}

/// Of all weights of the layers.
io::ImportanceMatrix importance_of_model() {
  io::ImportanceMatrix importance;
  for (int i = 0; i < layers; ++i) {
    for (const auto& [part, columns] :
         {std::pair("attn_q", 256), {"attn_v", 256}, {"attn_output", 96}, {"ffn_down", 512}}) {
      importance.tensors[fmt::format("blk.{}.{}.weight", i, part)] = sums_of_waves(1, columns);
    }
  }
  return importance;
}

DType type_in(const io::File& file, const std::string& name) { return file.at(name).shape.dtype(); }

std::size_t files_in(const TempFolder& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder.path()),
                                                std::filesystem::directory_iterator()));
}

}  // namespace

TEST_CASE("quantize: q4_k_m, its types by hand and its bytes by quant.hpp") {
  const TempFolder folder;
  const auto in = made_model(folder);
  const auto out = folder.path() / "out.gguf";
  std::size_t reports = 0;
  const io::QuantizeResult result = io::quantize_gguf(
      in, out, "q4_k_m", {.threads = 3, .progress = [&](const io::QuantizeProgress& at) {
                            CHECK(at.done_bytes <= at.total_bytes);
                            ++reports;
                          }});
  const io::File source = io::open(in), file = io::open(out);
  CHECK(reports == source.tensors().size());
  CHECK(file.metadata().get<int>("general.file_type") == 15);
  CHECK(file.metadata().get<int>("general.quantization_version") == 2);
  CHECK(file.metadata().get<std::string>("general.architecture") == "llama");
  CHECK_FALSE(file.metadata().contains("split.count"));
  CHECK(type_in(file, "token_embd.weight") == DType::q6_k);  // there is no output.weight
  CHECK(type_in(file, "odd.weight") == f16);
  for (int i = 0; i < layers; ++i) {
    INFO("layer " << i);
    const auto type = [&](const char* part) {
      return type_in(file, fmt::format("blk.{}.{}.weight", i, part));
    };
    const bool more = i == 0 || i == 3 || i == 6 || i == 7;
    CHECK(type("attn_norm") == f32);
    CHECK(type("attn_q") == DType::q4_k);
    CHECK(type("attn_v") == (more ? DType::q6_k : DType::q4_k));
    CHECK(type("ffn_down") == (more ? DType::q6_k : DType::q4_k));
    CHECK(type("attn_output") == DType::q5_0);
  }
  CHECK(result.tensors == 2 + 5 * layers);
  CHECK(result.converted == 2 + 4 * layers);
  CHECK(result.fallbacks == 1 + layers);
  std::uint64_t bytes = 0;
  for (const io::TensorEntry& tensor : file.tensors()) {
    INFO(tensor.name);
    bytes += tensor.size_bytes;
    const HostBuffer wanted = source.at(tensor.name).data().to(f32).to(tensor.shape.dtype());
    const HostBuffer found = tensor.data();
    CHECK(std::equal(found.bytes(), found.bytes() + tensor.size_bytes, wanted.bytes()));
  }
  CHECK(result.bytes_after == bytes);
}

TEST_CASE("quantize: every type is written and read") {
  const TempFolder folder;
  const auto in = made_model(folder);
  const io::ImportanceMatrix importance = importance_of_model();
  for (const std::string_view type : io::quantize_types()) {
    INFO(type);
    const auto out = folder.path() / "out.gguf";
    const bool needs_one = type.starts_with("iq1") || (type.starts_with("iq2") && type != "iq2_m");
    io::quantize_gguf(in, out, type,
                      {.threads = 2, .importance = needs_one ? &importance : nullptr});
    const io::File file = io::open(out);
    for (const io::TensorEntry& tensor : file.tensors()) {
      const HostBuffer values = tensor.data().to(f32);
      CHECK(
          std::ranges::all_of(values.values<float>(), [](float x) { return std::fabs(x) < 0.2f; }));
    }
    if (!needs_one) io::quantize_gguf(in, out, type, {.pure = true});
  }
}

TEST_CASE("quantize: by importance, each row as quant.hpp does it, and the types of llama.cpp") {
  const TempFolder folder;
  auto tensors = model_tensors();
  tensors.push_back({"blk.0.ffn_down_exps.weight", waves(6, 256).reshape({3, 2, 256})});
  const auto in = made_model(folder, tensors);
  const auto out = folder.path() / "out.gguf";
  io::ImportanceMatrix importance = importance_of_model();
  io::ColumnSums& experts = importance.tensors["blk.0.ffn_down_exps.weight"];
  experts = sums_of_waves(3, 256);
  const auto run = [&](std::string_view type) {
    return io::quantize_gguf(
        in, out, type, {.threads = 3, .importance = &importance, .importance_file = "i.gguf"});
  };
  // Where llama.cpp gives other types with an importance matrix.
  run("iq3_xxs");
  CHECK(type_in(io::open(out), "blk.0.attn_v.weight") == DType::iq3_xxs);
  CHECK(type_in(io::open(out), "blk.0.ffn_down.weight") == DType::iq3_xxs);
  run("q4_0");
  CHECK(type_in(io::open(out), "blk.0.ffn_down.weight") == DType::q4_1);
  CHECK(type_in(io::open(out), "blk.1.ffn_down.weight") == DType::q4_0);
  run("iq1_m");
  CHECK(type_in(io::open(out), "blk.7.attn_q.weight") == DType::iq1_m);
  CHECK(type_in(io::open(out), "blk.0.ffn_down.weight") == DType::q2_k);
  CHECK(type_in(io::open(out), "token_embd.weight") == DType::q5_k);
  const io::QuantizeResult result = run("q4_k_s");
  // Norms and the embedding have no importance.
  CHECK(result.weighed == 4 * layers + 1);
  const io::File source = io::open(in), file = io::open(out);
  CHECK(file.metadata().get<std::string>("quantize.imatrix.file") == "i.gguf");
  CHECK(file.metadata().get<int>("quantize.imatrix.entries_count") == 4 * layers + 1);
  for (const auto& [name, sums] : importance.tensors) {
    INFO(name);
    const io::TensorEntry& made = file.at(name);
    const HostBuffer values = source.at(name).data().to(f32), found = made.data();
    const std::int64_t columns = sums.columns, rows = values.shape().elements() / columns;
    const std::vector<float> means = sums.means();
    std::vector<std::byte> wanted(made.size_bytes);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t matrix = row / (rows / sums.matrices());
      quantize(made.shape.dtype(), values.values<float>().data() + row * columns,
               wanted.data() + row * std::ssize(wanted) / rows, columns,
               std::span(means).subspan(static_cast<std::size_t>(matrix * columns),
                                        static_cast<std::size_t>(columns)));
    }
    CHECK(std::equal(wanted.begin(), wanted.end(), found.bytes()));
  }

  experts = sums_of_waves(3, 128);
  CHECK(contains(expect_error(Errc::shape_mismatch, [&] { run("q4_k_s"); }), "ffn_down_exps"));
  importance.tensors.erase("blk.7.attn_q.weight");
  experts = sums_of_waves(3, 256);
  CHECK(contains(expect_error(Errc::unsupported_dtype, [&] { run("iq1_m"); }), "blk.7.attn_q"));
}

TEST_CASE("quantize: importances whose means are no numbers are refused") {
  const TempFolder folder;
  const auto in = made_model(folder), out = folder.path() / "out.gguf";
  io::ImportanceMatrix importance = importance_of_model();
  io::ColumnSums& sums = importance.tensors["blk.3.attn_q.weight"];
  const auto refused = [&](double sum, double count) {
    sums.sums[7] = sum;
    sums.counts[0] = count;
    return expect_error(Errc::bad_input, [&] {
      io::quantize_gguf(in, out, "q4_k_m", {.threads = 2, .importance = &importance});
    });
  };
  CHECK(contains(refused(1e30, 1e-20), "blk.3.attn_q.weight"));
  CHECK(contains(refused(-1, 1), "column 7"));
  CHECK(contains(refused(std::numeric_limits<double>::quiet_NaN(), 1), "nan"));
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("quantize: numbers that are too large for a type") {
  const TempFolder folder;
  const auto out = folder.path() / "out.gguf";
  const auto in_with = [&](float number, std::int64_t columns) {
    auto tensors = model_tensors();
    tensors.push_back({"large.weight", waves(3, columns)});
    tensors.back().data.view().as<float>()[5] = number;
    return made_model(folder, tensors);
  };
  const auto refused = [&](float number, std::string_view type) {
    const auto message =
        expect_error(Errc::bad_input, [&] { io::quantize_gguf(in_with(number, 256), out, type); });
    CHECK(contains(message, "large.weight"));
    CHECK_FALSE(std::filesystem::exists(out));
  };
  refused(65520, "f16");
  refused(-1e5F, "f16");
  refused(1.65e7F, "q8_0");
  refused(1.65e7F, "q4_0");
  for (const char* type : {"q5_1", "q2_k", "q3_k", "q4_k", "q6_k", "iq4_xs", "iq3_s", "tq2_0"}) {
    INFO(type);
    refused(1e12F, type);
  }
  io::quantize_gguf(in_with(65519, 256), out, "f16");
  CHECK(io::open(out).at("large.weight").data().to(f32).values<float>()[5] == 65504);

  // Rows of 20 suit no block: f16, where that holds the numbers.
  io::QuantizeResult result = io::quantize_gguf(in_with(65519, 20), out, "q8_0");
  CHECK(type_in(io::open(out), "large.weight") == f16);
  CHECK(result.wide_fallbacks == 0);
  result = io::quantize_gguf(in_with(7e4F, 20), out, "q8_0");
  CHECK(type_in(io::open(out), "large.weight") == bf16);
  CHECK(result.wide_fallbacks == 1);
  CHECK(result.fallbacks == 2);  // the other one is odd.weight
  CHECK(io::open(out).at("large.weight").data().to(f32).values<float>()[5] ==
        Approx(7e4).epsilon(0.004));
}

TEST_CASE("quantize: an output of its own leaves the embedding to the mix") {
  const TempFolder folder;
  auto tensors = model_tensors();
  tensors.push_back({"output.weight", waves(12, 256)});
  const auto in = made_model(folder, tensors);
  const auto out = folder.path() / "out.gguf";
  io::quantize_gguf(in, out, "q3_k_m");
  const io::File file = io::open(out);
  CHECK(type_in(file, "output.weight") == DType::q6_k);
  CHECK(type_in(file, "token_embd.weight") == DType::q3_k);
  CHECK(type_in(file, "blk.1.attn_v.weight") == DType::q5_k);
  CHECK(type_in(file, "blk.2.attn_v.weight") == DType::q4_k);
}

TEST_CASE("quantize: what is quantised already is rounded again only if asked for") {
  const TempFolder folder;
  const auto in = made_model(folder);
  const auto once = folder.path() / "once.gguf", twice = folder.path() / "twice.gguf";
  io::quantize_gguf(in, once, "q8_0");
  expect_error(Errc::unsupported, [&] { io::quantize_gguf(once, twice, "q4_0"); });
  CHECK_FALSE(std::filesystem::exists(twice));
  io::quantize_gguf(once, twice, "q4_0", {.allow_requantize = true});
  CHECK(type_in(io::open(twice), "blk.0.attn_q.weight") == DType::q4_0);
  CHECK(io::quantize_gguf(once, twice, "q8_0").converted == 0);
}

TEST_CASE("quantize: refused calls leave no file") {
  const TempFolder folder;
  const auto in = made_model(folder);
  const auto out = folder.path() / "out.gguf";
  const auto refused = [&](Errc code, const std::filesystem::path& from, std::string_view type,
                           const std::filesystem::path& to) {
    const std::size_t files = files_in(folder);
    expect_error(code, [&] { io::quantize_gguf(from, to, type); });
    CHECK(files_in(folder) == files);
  };
  refused(Errc::bad_argument, in, "q4_k_m", in);
  refused(Errc::bad_argument, in, "q9_k", out);
  refused(Errc::bad_argument, in, "", out);
  expect_error(Errc::bad_argument, [&] { io::quantize_gguf(in, out, "q4_k_m", {.threads = -3}); });
  refused(Errc::unsupported_dtype, in, "iq2_xxs", out);
  refused(Errc::not_found, folder.path() / "none.gguf", "q4_k_m", out);
  std::filesystem::create_symlink(in, folder.path() / "link.gguf");
  refused(Errc::bad_argument, in, "q4_k_m", folder.path() / "link.gguf");

  const auto cut = folder.path() / "cut.gguf";
  std::filesystem::copy_file(in, cut);
  std::filesystem::resize_file(cut, std::filesystem::file_size(in) - 100);
  refused(Errc::truncated, cut, "q4_k_m", out);

  const auto other = folder.path() / "model.safetensors";
  io::save_safetensors(other, model_tensors());
  refused(Errc::unsupported, other, "q4_k_m", out);

  auto tensors = model_tensors();
  tensors[2].data.view().as<float>()[5] = std::numeric_limits<float>::infinity();
  refused(Errc::bad_input, made_model(folder, tensors), "q4_k_m", out);

  std::stop_source stop;
  stop.request_stop();
  expect_error(Errc::cancelled, [&] {
    io::quantize_gguf(made_model(folder), out, "q4_k_m",
                      {.interrupt = {.cancel = stop.get_token()}});
  });
  CHECK_FALSE(std::filesystem::exists(out));
}

}  // namespace tenon::testing
