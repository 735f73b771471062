#include "kernels.hpp"

namespace tenon::cpu {
namespace {

// In the order of Isa. A level uses the lower level's file where its own instructions gain nothing.
constexpr MatmulKernels by_isa[isa_count] = {
    {portable::linear_blocks, portable::linear_dense, nullptr, portable::matmul, portable::quantize,
     4},
    {avx2::linear_blocks, avx2::linear_dense, nullptr, avx2::matmul, avx2::quantize, 4},
    {avx_vnni::linear_blocks, avx2::linear_dense, nullptr, avx2::matmul, avx2::quantize, 6},
    {avx512::linear_blocks, avx512::linear_dense, nullptr, avx512::matmul, avx2::quantize, 6},
    {avx512_vnni::linear_blocks, avx512::linear_dense, nullptr, avx512::matmul, avx2::quantize, 6},
    {avx512_vnni::linear_blocks, avx512::linear_dense, amx::linear_tiles, avx512::matmul,
     avx2::quantize, 6},
};

}  // namespace

const MatmulKernels& matmul_kernels(Isa isa) noexcept { return by_isa[static_cast<int>(isa)]; }

}  // namespace tenon::cpu
