// tenon_fuzz_seeds FOLDER: writes what each fuzzer begins with to FOLDER/<target>/<number>.
#include "fuzz/targets.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tenon_fuzz_seeds FOLDER\n");
    return 2;
  }
  for (const tenon::testing::FuzzTarget& target : tenon::testing::fuzz_targets()) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / target.name;
    std::filesystem::create_directories(folder);
    for (std::size_t i = 0; i < target.seeds.size(); ++i) {
      std::ofstream(folder / std::to_string(i), std::ios::binary) << target.seeds[i];
    }
  }
  return 0;
}
