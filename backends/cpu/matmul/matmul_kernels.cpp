#include "matmul_kernels.hpp"

#include "../built_kernels.hpp"
#include "tile_kernels.hpp"

namespace tenon::cpu {
namespace {

// In the order of Isa. A level uses the lower level's file where its own instructions gain nothing.
constexpr MatmulKernels matmul_by_isa[isa_count] = {
    {portable::linear_blocks, nullptr, portable::quantize, 4},
    {avx2::linear_blocks, nullptr, avx2::quantize, 4},
    {built::avx_vnni::linear_blocks, nullptr, avx2::quantize, 6},
    {built::avx512::linear_blocks, nullptr, avx2::quantize, 6},
    {built::avx512_vnni::linear_blocks, nullptr, avx2::quantize, 6},
    {built::avx512_vnni::linear_blocks, amx::linear_tiles, avx2::quantize, 6},
};

}  // namespace

const MatmulKernels& matmul_kernels(Isa isa) noexcept {
  return matmul_by_isa[static_cast<int>(isa)];
}

}  // namespace tenon::cpu
