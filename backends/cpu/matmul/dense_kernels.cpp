#include "dense_kernels.hpp"

#include "../built_kernels.hpp"

namespace tenon::cpu {
namespace {

// In the order of Isa. A level uses the lower level's file where its own instructions gain nothing.
constexpr DenseKernels dense_by_isa[isa_count] = {
    {portable::dense_packed, portable::dense_strided},
    {avx2::dense_packed, avx2::dense_strided},
    {avx2::dense_packed, avx2::dense_strided},
    {built::avx512::dense_packed, built::avx512::dense_strided},
    {built::avx512::dense_packed, built::avx512::dense_strided},
    {built::avx512::dense_packed, built::avx512::dense_strided},
};

}  // namespace

const DenseKernels& dense_kernels(Isa isa) noexcept { return dense_by_isa[static_cast<int>(isa)]; }

}  // namespace tenon::cpu
