// The kernels of each instruction set, as this build has them: tables name `built::avx512::vision`.
#pragma once

namespace tenon::cpu {

namespace avx2 {}
namespace avx_vnni {}
namespace avx512 {}
namespace avx512_vnni {}

namespace built {
#ifdef TENON_CPU_AVX2_ONLY  // nothing above AVX2 is compiled, nor is it supported()
namespace avx_vnni = cpu::avx2;
namespace avx512 = cpu::avx2;
namespace avx512_vnni = cpu::avx2;
#else
namespace avx_vnni = cpu::avx_vnni;
namespace avx512 = cpu::avx512;
namespace avx512_vnni = cpu::avx512_vnni;
#endif
}  // namespace built

}  // namespace tenon::cpu
