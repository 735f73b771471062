// A03: memory runs out at every allocation between a file and a model's weights.
#include "support/failing_memory.hpp"
#include "temp_folder.hpp"

#include <tenon/fields.hpp>
#include <tenon/io/load.hpp>
#include <tenon/io/save.hpp>

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

constexpr std::size_t most_failures = 300;

template <class T = Tensor>
struct Pair {
  T a, b;
  TENON_FIELDS(a, b)
};

struct Rig {
  Rig() {
    const io::NamedTensor arrays[] = {{"blk.0.a", HostBuffer::zeros(Shape({4, 2}, f32))},
                                      {"blk.0.b", HostBuffer::zeros(Shape({3}, f32))}};
    io::save_safetensors(path, arrays);
  }
  io::File open() const { return io::open(path); }

  TempFolder folder;
  const std::filesystem::path path = folder / "pair.safetensors";
};

}  // namespace

TEST_CASE("A03: memory runs out while a file is viewed") {
  const Rig rig;
  const auto view = [&] {
    const WeightsView weights = rig.open().view();
    static_cast<void>(weights["blk"][0].tensor("a"));
    static_cast<void>(weights["blk"][0].find("c"));
    static_cast<void>(weights["blk"].contains("0.b"));
  };
  fail_allocations(most_failures, view, [&] { view(); });
}

TEST_CASE("A03: memory runs out while a folder's model is looked for") {
  const Rig rig;
  for (const char* const name : {"a", "b.txt", "tokenizer.json"}) rig.folder.write(name, "");
  const auto look = [&] { static_cast<void>(io::open(rig.folder.path())); };
  fail_allocations(most_failures, look,
                   [&] { CHECK(io::open(rig.folder.path()).path() == rig.path); });
}

TEST_CASE("A03: memory runs out while weights are loaded") {
  const Rig rig;
  const io::File file = rig.open();
  const WeightsView weights = file.view();
  const Pair<> model{weights["blk"][0].tensor("a"), weights["blk"][0].tensor("b")};
  const std::vector<std::string> names{"blk.0.a", "blk.0.b"};
  fail_allocations(
      most_failures,
      [&] {
        static_cast<void>(io::load_buffers(file, names, cpu_device()));
        static_cast<void>(io::load(model, file, cpu_device()));
      },
      [&] { CHECK(io::load(model, file, cpu_device()).a.has_data()); });
}

}  // namespace tenon::testing
