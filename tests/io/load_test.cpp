// Weights on their way from a file to a device: progress, cancelling, tied and missing tensors.
#include "support/catch_chunk.hpp"  // before any comparison of chunks
#include "support/expect_error.hpp"
#include "support/fake_device.hpp"
#include "temp_folder.hpp"

#include <tenon/io/convert.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/load.hpp>
#include <tenon/io/save.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

template <class T = Tensor>
struct Layer {
  T weight;
  std::optional<T> bias;
  TENON_FIELDS(weight, bias)
};

template <class T = Tensor>
struct Model {
  T embedding;
  std::vector<Layer<T>> layers;
  T head;    ///< the embedding again
  T absent;  ///< of another kind of file
  TENON_FIELDS(embedding, layers, head, absent)
};

HostBuffer numbered(float first, std::initializer_list<Axis> dims) {
  HostBuffer array = HostBuffer::zeros(Shape(dims, f32));
  float next = first;
  for (float& value : array.mutable_values<float>()) value = next++;
  return array;
}

/// A file of one embedding and three layers, the second without a bias.
struct Fixture {
  TempFolder folder;
  std::filesystem::path path = folder / "model.safetensors";
  Fixture() {
    std::vector<io::NamedTensor> tensors{{"embedding", numbered(0, {6, 4})}};
    for (int i = 0; i < 3; ++i) {
      const std::string prefix = "layers." + std::to_string(i) + ".";
      tensors.push_back({prefix + "weight", numbered(100.0F * static_cast<float>(i + 1), {4, 4})});
      if (i != 1) tensors.push_back({prefix + "bias", numbered(1000, {4})});
    }
    io::save_safetensors(path, tensors);
  }

  static Model<> model(const io::File& file) {
    const WeightsView view = file.view();
    Model<> model;
    model.embedding = view.tensor("embedding");
    model.head = view.tensor("embedding");
    for (int i = 0; i < 3; ++i) {
      const WeightsView layer = view["layers"][i];
      Layer<> made{layer.tensor("weight"), {}};
      if (layer.contains("bias")) made.bias = layer.tensor("bias");
      model.layers.push_back(made);
    }
    return model;
  }
};

template <class T = Tensor>
struct Matrices {
  T blocks, odd, row, kept, absent;
  TENON_FIELDS(blocks, odd, row, kept, absent)
};

constexpr std::uint64_t all_bytes = (6 * 4 + 3 * 16 + 2 * 4) * 4;

}  // namespace

TEST_CASE("load_async: the model's form, filled from the file") {
  const Fixture fixture;
  std::future<Bufferized<Model<>>> loading;
  {
    // Neither the file's handle nor the model has to outlive the call.
    const io::File file = io::open(fixture.path);
    const Model<> model = Fixture::model(file);
    loading = io::load_async(model, file, cpu_device());
  }
  const Bufferized<Model<>> weights = loading.get();
  REQUIRE(weights.layers.size() == 3);
  CHECK(weights.embedding.to_host().at({5, 3}) == 23);
  CHECK(weights.layers[2].weight.to_host().at({0, 0}) == 300);
  REQUIRE(weights.layers[0].bias.has_value());
  CHECK(weights.layers[0].bias->to_host().at({3}) == 1003);
  CHECK_FALSE(weights.layers[1].bias.has_value());
  CHECK(weights.head.chunk() == weights.embedding.chunk());  // tied: loaded once
  CHECK_FALSE(weights.absent.has_data());
}

TEST_CASE("load_async: onto a device that the CPU cannot address") {
  const Fixture fixture;
  const io::File file = io::open(fixture.path);
  const auto device = std::make_shared<FakeDevice>();
  const auto weights = io::load(Fixture::model(file), file, device);
  CHECK(weights.layers[1].weight.is_on(device->dram()));
  CHECK(weights.layers[1].weight.to_host().at({3, 3}) == 215);
}

TEST_CASE("load_async: progress counts up to the whole, each tensor once") {
  const Fixture fixture;
  const io::File file = io::open(fixture.path);
  std::vector<std::string> tensors;
  std::uint64_t last = 0;
  io::LoadOptions options;
  options.progress = [&](const io::LoadProgress& progress) {
    CHECK(progress.total_bytes == all_bytes);
    CHECK(progress.done_bytes > last);
    last = progress.done_bytes;
    tensors.emplace_back(progress.tensor);
  };
  io::load(Fixture::model(file), file, cpu_device(), options);
  CHECK(last == all_bytes);
  CHECK(tensors.size() == 6);
}

TEST_CASE("load_async: cancelled before and on the way") {
  const Fixture fixture;
  const io::File file = io::open(fixture.path);
  const Model<> model = Fixture::model(file);
  for (int after = 0; after < 6; ++after) {
    std::stop_source stop;
    int loaded = 0;
    io::LoadOptions options;
    options.stop = stop.get_token();
    options.progress = [&](const io::LoadProgress&) {
      if (++loaded == after) stop.request_stop();
    };
    if (after == 0) stop.request_stop();
    auto loading = io::load_async(model, file, cpu_device(), options);
    expect_error(Errc::cancelled, [&] { loading.get(); });
    CHECK(loaded == after);
  }
  CHECK(io::load(model, file, cpu_device()).layers.size() == 3);  // and again, undisturbed
}

TEST_CASE("load_async: what goes wrong arrives with the future") {
  const Fixture fixture;
  const io::File file = io::open(fixture.path);
  const std::string names[] = {"embedding", "nothing"};
  CHECK(expect_error(Errc::bad_reference, [&] {
          io::load_buffers(file, names, cpu_device());
        }).find("nothing") != std::string::npos);

  io::LoadOptions options;
  options.progress = [](const io::LoadProgress&) { throw std::runtime_error("the caller's own"); };
  auto loading = io::load_async(Fixture::model(file), file, cpu_device(), options);
  CHECK_THROWS_AS(loading.get(), std::runtime_error);

  // A device with too little room.
  std::vector<io::NamedTensor> large{
      {"embedding", HostBuffer::zeros(Shape({FakeDevice::region_bytes + 1}, u8))}};
  io::save_safetensors(fixture.folder / "large.safetensors", large);
  const io::File big = io::open(fixture.folder / "large.safetensors");
  Model<> model;
  model.embedding = big.view().tensor("embedding");
  expect_error(Errc::out_of_device_memory,
               [&] { io::load(model, big, std::make_shared<FakeDevice>()); });
}

TEST_CASE("load_as: matrices whose rows are whole blocks become blocks, others stay") {
  const TempFolder folder;
  const std::filesystem::path path = folder / "model.safetensors";
  const std::vector<io::NamedTensor> tensors{{"blocks", numbered(-32, {2, 32})},
                                             {"odd", numbered(0, {2, 33})},
                                             {"row", numbered(0, {32})},
                                             {"kept", numbered(0, {2, 32})}};
  io::save_safetensors(path, tensors);
  const io::File file = io::open(path);
  const WeightsView view = io::declare_as(
      file, DType::q8_0, [](const io::TensorEntry& entry) { return entry.name != "kept"; });
  const Matrices<> model{
      view.tensor("blocks"), view.tensor("odd"), view.tensor("row"), view.tensor("kept"), {}};
  CHECK(model.blocks.shape() == Shape({2, 32}, DType::q8_0));
  const auto loaded = io::load_as(model, file, cpu_device());
  CHECK(loaded.blocks.shape().dtype() == DType::q8_0);
  for (const Buffer* other : {&loaded.odd, &loaded.row, &loaded.kept}) {
    CHECK(other->shape().dtype() == f32);
  }
  CHECK(!loaded.absent.has_data());
  // Half a step, 32 / 127 for the row of largest magnitude, and the scale's own rounding.
  const HostBuffer values = loaded.blocks.to_host().to(f32);
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK(values.values<float>()[i] == Approx(static_cast<double>(i) - 32).margin(0.15));
  }
  CHECK(io::convert(loaded.row, f16, cpu_device()).shape() == Shape({32}, f16));
  const Buffer halves = io::convert(loaded.kept, f16, cpu_device());
  CHECK(io::convert(halves, DType::q8_0, cpu_device()).shape().dtype() == DType::q8_0);
}

}  // namespace tenon::testing
