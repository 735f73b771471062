// Files that the packages `gguf`, `safetensors` and `numpy` wrote, against what they read in them,
// and files of ours that they read. See python/tests/io_oracle.py.
#include "listing.hpp"
#include "temp_folder.hpp"

#include <tenon/io/file.hpp>
#include <tenon/io/npy.hpp>
#include <tenon/io/save.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> model_files(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".listing") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

fs::path listing_of(fs::path path) { return path += ".listing"; }

std::string found_in(const fs::path& path) {
  return path.extension() == ".npy" ? listing(io::read_npy(path)) : listing(io::open(path));
}

std::vector<io::NamedTensor> tensors_of(const io::File& file) {
  std::vector<io::NamedTensor> tensors;
  for (const io::TensorEntry& entry : file.tensors()) tensors.push_back({entry.name, entry.data()});
  return tensors;
}

/// Writes what the file holds to a file of the same name in `folder`.
void rewrite(const fs::path& path, const fs::path& folder) {
  const fs::path copy = folder / path.filename();
  if (path.extension() == ".npy") {
    io::write_npy(copy, io::read_npy(path));
  } else if (path.extension() == ".gguf") {
    const io::File file = io::open(path);
    io::save_gguf(copy, file.metadata(), tensors_of(file));
  } else {
    const io::File file = io::open(path);
    std::map<std::string, std::string> metadata;
    for (const io::Metadata::Entry& entry : file.metadata().entries()) {
      metadata[std::string(entry.key)] = file.metadata().get<std::string>(entry.key);
    }
    io::save_safetensors(copy, tensors_of(file), metadata);
  }
}

void check_folder(const fs::path& folder) {
  const TempFolder copies;
  for (const fs::path& path : model_files(folder)) {
    INFO(path.filename().string());
    const std::string expected = read_bytes(listing_of(path));
    CHECK(found_in(path) == expected);
    rewrite(path, copies.path());
    CHECK(found_in(copies / path.filename().string()) == expected);
    if (path.extension() == ".safetensors") {
      CHECK((read_bytes(copies / path.filename().string()) == read_bytes(path)));
    }
  }
}

void run(const std::string& command) {
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
}

}  // namespace

TEST_CASE("oracle: recorded files of other writers") {
  CHECK(model_files("tests/io/data").size() >= 18);
  check_folder("tests/io/data");
}

TEST_CASE("oracle: fresh random files, both ways", "[oracle]") {
  const char* const python = std::getenv("TENON_ORACLE_PYTHON");
  if (python == nullptr) {
    WARN("SKIPPED: TENON_ORACLE_PYTHON names no Python with gguf, safetensors and numpy");
    return;
  }
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  const std::string script = std::string(python) + " python/tests/io_oracle.py ";
  const TempFolder folder;
  run(script + "make " + folder.path().string() + " --count 100 --seed " + std::to_string(seed));
  check_folder(folder.path());

  // Ours, read by theirs.
  const TempFolder copies;
  std::string names;
  for (const fs::path& path : model_files(folder.path())) {
    rewrite(path, copies.path());
    names += " " + (copies / path.filename().string()).string();
  }
  run(script + "list" + names);
  for (const fs::path& path : model_files(folder.path())) {
    INFO(path.filename().string());
    CHECK(read_bytes(listing_of(copies / path.filename().string())) ==
          read_bytes(listing_of(path)));
  }
}

}  // namespace tenon::testing
