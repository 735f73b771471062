// Tiny vision encoders and what tests of images have in common.
#pragma once

#include "io/temp_folder.hpp"
#include "support/expect_error.hpp"

#include <tenon/error.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/npy.hpp>
#include <tenon/io/save.hpp>
#include <tenon/models/vision.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace vision_tests {  // whose names are other tests', too

using namespace tenon;
using namespace tenon::testing;
using models::Conversation;
using models::LanguageModel;
using models::PromptPart;
using models::RowAttention;
using models::VisionEncoder;

using Ids = std::vector<std::int32_t>;
using Logits = std::vector<float>;

inline const std::filesystem::path folder = "tests/models/data/vision";

/// The picture that the script wrote: a header that is known, and pixels.
inline HostBuffer picture() {
  std::ifstream file(folder / "picture.ppm", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const std::string header = "P6\n23 37\n255\n";
  REQUIRE(bytes.starts_with(header));
  const std::vector<std::uint8_t> pixels(bytes.begin() + std::ssize(header), bytes.end());
  return HostBuffer::of(Shape({37, 23, 3}, u8), std::span<const std::uint8_t>(pixels));
}

inline HostBuffer expected(const std::string& name) {
  return io::read_npy(folder / (name + ".npy"));
}

inline models::EncoderOptions exact_encoder() {
  models::EncoderOptions options;
  options.backend = {.threads = 1, .exact = true};
  return options;
}

inline VisionEncoder tiny_encoder(const std::string& projector) {
  return VisionEncoder::load(folder / (projector + ".gguf"), exact_encoder());
}

inline LanguageModel tiny_model(const std::string& architecture, std::int64_t chunk = 512) {
  models::LanguageModelOptions options;
  options.context = 64;
  options.chunk = chunk;
  options.backend = {.threads = 1, .exact = true};
  return LanguageModel::load("tests/models/data/tiny_" + architecture + ".gguf", options);
}

inline double greatest_difference(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    // A NaN is as far as can be.
    worst =
        difference <= std::numeric_limits<double>::max() ? std::max(worst, difference) : difference;
    if (std::isnan(worst)) return std::numeric_limits<double>::infinity();
  }
  return worst;
}

inline Ids ids(std::int32_t count, std::int32_t first = 0) {
  Ids tokens;
  for (std::int32_t i = first; i < first + count; ++i) tokens.push_back(7 * i % 272);
  return tokens;
}

inline Logits after(Conversation& conversation, const Ids& tokens) {
  const auto logits = conversation.read(tokens);
  return {logits.begin(), logits.end()};
}

/// Random rows, of about the size of embeddings.
inline std::vector<float> rows_of(std::int64_t count, std::int64_t width, unsigned seed = 1) {
  std::vector<float> rows;
  for (std::int64_t i = 0; i < count * width; ++i) {
    seed = seed * 1664525U + 1013904223U;
    rows.push_back(static_cast<float>(seed >> 8) / (1 << 23) - 1);
  }
  return rows;
}

/// What the table has for these tokens, as the first layer reads it.
inline std::vector<float> embedded(const LanguageModel& model, const Ids& tokens) {
  const HostBuffer table = model.file().find("token_embd.weight")->data().to(f32);
  const auto width = model.config().width;
  std::vector<float> rows;
  for (const std::int32_t token : tokens) {
    const auto row = table.values<float>().subspan(static_cast<std::size_t>(token * width),
                                                   static_cast<std::size_t>(width));
    for (const float x : row) {
      rows.push_back(x * static_cast<float>(model.config().embedding_scale));
    }
  }
  return rows;
}

/// A tiny encoder's file in memory, to be changed.
struct TinyEncoder {
  explicit TinyEncoder(const std::string& projector)
      : file(io::open(folder / (projector + ".gguf"))), metadata(file.metadata()) {
    for (const io::TensorEntry& entry : file.tensors())
      tensors.push_back({entry.name, entry.data()});
  }
  void remove(std::string_view key) {
    std::vector<io::Metadata::Entry> kept;
    std::ranges::copy_if(metadata.entries(), std::back_inserter(kept),
                         [&](const auto& entry) { return entry.key != key; });
    metadata = io::Metadata(kept, std::make_shared<io::Metadata>(metadata), "changed");
  }
  /// What loading it says, which names the file.
  std::string refused(Errc code) const {
    const TempFolder place;
    io::save_gguf(place / "changed.gguf", metadata, tensors);
    const std::string what =
        expect_error(code, [&] { VisionEncoder::load(place / "changed.gguf", exact_encoder()); });
    CHECK(contains(what, "changed.gguf"));
    return what;
  }

  io::File file;
  io::Metadata metadata;
  std::vector<io::NamedTensor> tensors;
};

}  // namespace vision_tests
