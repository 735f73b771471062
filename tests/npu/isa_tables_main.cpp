#include "npu/isa/tables.hpp"

#include <cstdio>
#include <exception>
#include <fstream>
#include <sstream>

// tenon_npu_isa_tables docs/npu-isa.md: makes the page's tables anew from isa.def.
int main(int count, char** arguments) {
  if (count != 2) {
    std::fputs("usage: tenon_npu_isa_tables PAGE\n", stderr);
    return 2;
  }
  try {
    std::ostringstream page;
    page << std::ifstream(arguments[1]).rdbuf();
    const std::string filled = tenon::npu::isa::fill_tables(page.str());
    std::ofstream(arguments[1]) << filled;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return 0;
}
