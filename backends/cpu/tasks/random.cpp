// Random bits: eight counters at a time, word by word, in loops that compilers turn into vector
// code of any instruction set.
#include "../integer_math.hpp"
#include "../task.hpp"
#include "ops/philox.hpp"

#include <tenon/host_view.hpp>
#include <tenon/ops/random.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace tenon::cpu {
namespace {

constexpr std::int64_t counters_at_once = 8, words_at_once = 4 * counters_at_once;

/// The words of `counters_at_once` counters from (low, high) on.
void philox_group(std::uint64_t low, std::uint64_t high, std::uint32_t key0, std::uint32_t key1,
                  std::uint32_t* y) noexcept {
  constexpr int n = counters_at_once;
  std::uint32_t c0[n], c1[n], c2[n], c3[n];
  for (int i = 0; i < n; ++i) {
    const philox::Block counter = philox::counter(low + static_cast<std::uint64_t>(i), high);
    c0[i] = counter[0];
    c1[i] = counter[1];
    c2[i] = counter[2];
    c3[i] = counter[3];
  }
  for (int round = 0; round < philox::rounds; ++round) {
    for (int i = 0; i < n; ++i) {
      const std::uint64_t p = std::uint64_t{philox::multipliers[0]} * c0[i];
      const std::uint64_t q = std::uint64_t{philox::multipliers[1]} * c2[i];
      c0[i] = static_cast<std::uint32_t>(q >> 32) ^ c1[i] ^ key0;
      c1[i] = static_cast<std::uint32_t>(q);
      c2[i] = static_cast<std::uint32_t>(p >> 32) ^ c3[i] ^ key1;
      c3[i] = static_cast<std::uint32_t>(p);
    }
    key0 += philox::key_steps[0];
    key1 += philox::key_steps[1];
  }
  for (int i = 0; i < n; ++i) {
    y[4 * i] = c0[i];
    y[4 * i + 1] = c1[i];
    y[4 * i + 2] = c2[i];
    y[4 * i + 3] = c3[i];
  }
}

class RandomBitsTask final : public PartwiseTask {
 public:
  explicit RandomBitsTask(const Step& step)
      : key_(step.inputs[0]),
        y_(step.output),
        stream_(static_cast<std::uint64_t>(step.op.as<RandomBits>()->stream)) {
    if (step.op.as<RandomBits>()->has_first(step.inputs.size())) {
      first_ = step.inputs[1];
      has_first_ = true;
    }
  }

  void run(const TaskContext& context) const noexcept override {
    const auto* key = context.pointer<const std::byte>(key_);
    const auto word = [&](std::int64_t i) {
      return static_cast<std::uint32_t>(load_as_int64(DType::u32, key + i * key_.strides[0]));
    };
    const std::uint32_t key0 = word(0), key1 = word(1);
    const auto first = has_first_
                           ? static_cast<std::uint64_t>(load_as_int64(
                                 first_.shape.dtype(), context.pointer<const std::byte>(first_)))
                           : std::uint64_t{0};
    auto* y = context.pointer<std::uint32_t>(y_);
    const std::int64_t count = y_.shape.elements();
    const Range groups = context.share(ceil_div(count, words_at_once));
    for (std::int64_t g = groups.begin; g < groups.end; ++g) {
      const auto low = first + static_cast<std::uint64_t>(g * counters_at_once);
      const std::int64_t left = count - g * words_at_once;
      if (left >= words_at_once) {
        philox_group(low, stream_, key0, key1, y + g * words_at_once);
      } else {
        std::uint32_t last[words_at_once];
        philox_group(low, stream_, key0, key1, last);
        std::memcpy(y + g * words_at_once, last, static_cast<std::size_t>(left) * sizeof *last);
      }
    }
  }

 private:
  Operand key_, first_, y_;
  std::uint64_t stream_;
  bool has_first_ = false;
};

}  // namespace

extern const Kernel random_bits_kernel;
constinit const Kernel random_bits_kernel{op_def<RandomBits>, takes_everything,
                                          make_task<RandomBitsTask>};

}  // namespace tenon::cpu
