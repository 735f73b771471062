#include "kernels/entries.hpp"

#include "driver/driver.hpp"
#include "kernels/args.hpp"

namespace tenon::cuda {
namespace {

enum class Kind { plain, barriers, crowded, large, waiting, late };

constexpr KernelFacts all_facts[] = {
#define TENON_CUDA_KERNEL(id, Args, kind, call) {#id, sizeof(Args), Kind::kind != Kind::plain},
#include "kernels/entries.def"
#undef TENON_CUDA_KERNEL
};

}  // namespace

const KernelFacts& facts_of(Kernel kernel) noexcept {
  return all_facts[static_cast<std::size_t>(kernel)];
}

std::size_t args_bytes(Routine routine) noexcept {
  if (routine == Routine::none) return 0;
  return routine == Routine::gemm ? sizeof(GemmCall) : sizeof(ConvolutionCall);
}
const char* name_of(Routine routine) noexcept {
  if (routine == Routine::none) return "nothing";
  return routine == Routine::gemm ? "gemm" : "convolution";
}

const char* name_of(const Work& work) noexcept {
  if (work.generated != nullptr) return "a generated kernel";
  return work.routine == Routine::none ? facts_of(work.kernel).name : name_of(work.routine);
}
std::size_t args_bytes(const Work& work) noexcept {
  if (work.generated != nullptr) return work.generated->args_bytes();
  return work.routine == Routine::none ? facts_of(work.kernel).args_bytes
                                       : args_bytes(work.routine);
}

}  // namespace tenon::cuda
