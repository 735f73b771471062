// Valid files with changed bytes: opening them gives a file or a typed error.
#include "expect_refused.hpp"
#include "gguf_maker.hpp"
#include "safetensors_maker.hpp"

#include <tenon/io/npy.hpp>

#include <random>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

constexpr std::uint64_t seed = 20260917;

std::string valid_safetensors() {
  return safetensors("{\"__metadata__\":{\"k\":\"v\"}," + declare("a", "F32", "[2]", "[0,8]") +
                         "," + declare("b", "I8", "[2,2]", "[8,12]") + "}",
                     12);
}

std::string valid_npy() {
  // Not one expression: GCC 12 sees writes past its temporaries (bug 105651).
  std::string file("\x93NUMPY\x01\x00\x46\x00", 10);
  file += "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }          \n";
  file += std::string(8, 'x');
  return file;
}

/// Reads everything that a reader of the file could read.
void use(const io::File& file) {
  std::size_t sum = 0;
  for (const io::TensorEntry& tensor : file.tensors()) {
    const HostBuffer data = tensor.data();
    for (std::int64_t i = 0; i < data.shape().bytes(); ++i) {
      sum += static_cast<std::size_t>(data.bytes()[i]);
    }
  }
  for (const io::Metadata::Entry& entry : file.metadata().entries()) {
    sum += io::type_text(entry.value).size();
    if (const auto* array = std::get_if<io::MetaArray>(&entry.value)) {
      for (const std::byte value : array->bytes()) sum += static_cast<std::size_t>(value);
      for (const std::string_view text : array->strings()) sum += text.size();
    }
  }
  CHECK(sum < ~std::size_t{0});
}

/// Whether the bytes were accepted; anything but a file or an Error fails the test.
bool survives(const TempFolder& folder, const std::string& bytes, std::string_view name) {
  const auto path = folder.write(name, bytes);
  try {
    if (name.ends_with(".npy")) {
      io::read_npy(path);
    } else {
      for (const io::Access access : every_access) use(io::open(path, {.access = access}));
    }
    return true;
  } catch (const Error& error) {
    CHECK(error.code() != Errc::internal);
    CHECK_FALSE(error.where().empty());
    return false;
  }
}

struct Sample {
  const char* name;
  std::string bytes;
};

std::vector<Sample> samples() {
  return {{"model.gguf", two_tensors().bytes()},
          {"model.safetensors", valid_safetensors()},
          {"array.npy", valid_npy()}};
}

}  // namespace

TEST_CASE("files: every bit flipped once") {
  const TempFolder folder;
  for (const Sample& sample : samples()) {
    INFO(sample.name);
    REQUIRE(survives(folder, sample.bytes, sample.name));
    std::size_t refused = 0;
    for (std::size_t bit = 0; bit < 8 * sample.bytes.size(); ++bit) {
      std::string bytes = sample.bytes;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      if (!survives(folder, bytes, sample.name)) ++refused;
    }
    CHECK(refused > sample.bytes.size());  // most bits of a header matter
  }
}

TEST_CASE("files: bytes replaced, inserted, removed and repeated at random") {
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const TempFolder folder;
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  for (const Sample& sample : samples()) {
    for (int round = 0; round < 2000; ++round) {
      std::string bytes = sample.bytes;
      for (std::size_t change = 0; change <= below(4); ++change) {
        const std::size_t at = below(bytes.size());
        const std::size_t length = std::min(1 + below(9), bytes.size() - at);
        switch (below(4)) {
          case 0:
            for (std::size_t i = 0; i < length; ++i) bytes[at + i] = static_cast<char>(random());
            break;
          case 1:
            bytes.insert(at, std::string(length, static_cast<char>(random())));
            break;
          case 2:
            bytes.erase(at, length);
            break;
          default:
            bytes.insert(at, bytes.substr(below(bytes.size()), length));
            break;
        }
        if (bytes.empty()) bytes = "x";
      }
      survives(folder, bytes, sample.name);
    }
  }
}

TEST_CASE("A03: memory runs out at every allocation of opening") {
  const TempFolder folder;
  for (const Sample& sample : samples()) {
    INFO(sample.name);
    const auto path = folder.write(sample.name, sample.bytes);
    const std::string_view name = sample.name;
    const auto open_once = [&] {
      if (name.ends_with(".npy")) {
        io::read_npy(path);
      } else {
        io::open(path);
      }
    };
    open_once();
    const std::size_t descriptors = open_descriptors();
    for (const bool for_ever : {false, true}) {
      bool succeeded = false;
      std::size_t failures = 0;
      for (std::size_t k = 0; !succeeded; ++k) {
        bool typed = false;
        std::ptrdiff_t live = 0;
        {
          MemoryWatch watch;
          watch.fail_at(k, for_ever);
          try {
            open_once();
            succeeded = true;
          } catch (const Error& error) {
            typed = error.code() == Errc::out_of_memory;
          } catch (const std::bad_alloc&) {
            typed = for_ever;  // no memory for the error itself either
          }
          watch.fail_never();
          live = watch.live_bytes();
        }
        if (!succeeded) ++failures;
        CHECK((succeeded || typed));
        CHECK(live == 0);
      }
      CHECK(failures > 5);
      CHECK(open_descriptors() == descriptors);
    }
    open_once();
  }
}

}  // namespace tenon::testing
