#include "kernels/entries.hpp"

#include "kernels/args.hpp"

namespace tenon::cuda {
namespace {

enum class Kind { plain, barriers };

constexpr KernelFacts all_facts[] = {
#define TENON_CUDA_KERNEL(id, Args, kind, call) {#id, sizeof(Args), Kind::kind == Kind::barriers},
#include "kernels/entries.def"
#undef TENON_CUDA_KERNEL
};

}  // namespace

const KernelFacts& facts_of(Kernel kernel) noexcept {
  return all_facts[static_cast<std::size_t>(kernel)];
}

}  // namespace tenon::cuda
