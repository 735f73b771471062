#include "sim_random_program.hpp"
#include "sim_rig.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>

// tenon_npu_random_programs FILE COUNT SEED: runs random programs on the simulated device and
// writes what they read and what they left, for an independent check. Per program eight 64-bit
// sizes and numbers (see below), then the bytes of each part.

namespace {

using namespace tenon;
using namespace tenon::npu;

void put(std::ofstream& file, std::uint64_t value) {
  file.write(reinterpret_cast<const char*>(&value), sizeof value);
}
void put(std::ofstream& file, const std::vector<std::byte>& bytes) {
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

void write_programs(const char* name, std::uint64_t count, std::uint64_t seed) {
  std::ofstream file(name, std::ios::binary);
  npu::testing::Rig rig(npu::testing::random_params, 4 << 20);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto made = npu::testing::random_program(seed + i, i % 2 == 0);
    const auto program = isa::assemble(made.program);
    rig.fill(isa::Segment::weight, made.weight);
    rig.fill(isa::Segment::input, made.input);
    rig.fill(isa::Segment::output, std::vector<std::byte>(made.output_bytes));
    rig.fill(isa::Segment::ftmp, std::vector<std::byte>(made.ftmp_bytes));
    const auto outcome = rig.run(program);
    if (!outcome.finished()) {
      throw std::runtime_error("program " + std::to_string(seed + i) + " stopped with error " +
                               std::string(isa::name(outcome.error)));
    }
    auto output = rig.contents(isa::Segment::output);
    output.resize(made.output_bytes);
    auto ftmp = rig.contents(isa::Segment::ftmp);
    ftmp.resize(made.ftmp_bytes);
    for (const std::uint64_t number :
         {seed + i, std::uint64_t{program.size()}, std::uint64_t{made.weight.size()},
          std::uint64_t{made.input.size()}, std::uint64_t{output.size()},
          std::uint64_t{ftmp.size()}, std::uint64_t{rig.caps.ocm_bytes},
          std::uint64_t{rig.caps.acc_bytes}}) {
      put(file, number);
    }
    put(file, program);
    put(file, made.weight);
    put(file, made.input);
    put(file, output);
    put(file, ftmp);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fputs("usage: tenon_npu_random_programs FILE COUNT SEED\n", stderr);
    return 2;
  }
  try {
    write_programs(arguments[1], std::strtoull(arguments[2], nullptr, 10),
                   std::strtoull(arguments[3], nullptr, 10));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
