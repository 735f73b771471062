#include "prepared_rows.hpp"

#include "../thread_pool.hpp"
#include "kernels.hpp"

#include <algorithm>

namespace tenon::cpu {
namespace {

constexpr std::size_t line = 64;
std::size_t round_to_line(std::size_t bytes) { return (bytes + line - 1) / line * line; }

// Hands out consecutive 64-byte aligned arrays; with no memory behind it, it measures.
struct Carver {
  std::byte* memory;
  std::size_t used = 0;

  template <class T>
  T* take(std::int64_t count) {
    T* result = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + used);
    used += round_to_line(static_cast<std::size_t>(count) * sizeof(T));
    return result;
  }
};

}  // namespace

PreparedRows::PreparedRows(RowForm form, std::int64_t rows, std::int64_t inputs,
                           std::byte* memory) noexcept
    : form_(form), rows_(rows), inputs_(inputs) {
  Carver carver{memory};
  carve(carver);
}

template <class C>
void PreparedRows::carve(C& carver) noexcept {
  if (form_ == RowForm::bf16) {
    bf16_ = carver.template take<std::uint16_t>((rows_ + 31) / 32 * 32 * inputs_);
    return;
  }
  const std::int64_t groups = rows_ * (inputs_ / 32);
  codes_ = carver.template take<std::int8_t>(rows_ * inputs_);
  scales_ = carver.template take<float>(groups);
  sums_ = carver.template take<float>(groups);
  negative_sums_ = carver.template take<std::int32_t>(groups);
  half_sums_ = carver.template take<float>(2 * groups);
  negative_half_sums_ = carver.template take<std::int32_t>(2 * groups);
}

std::size_t PreparedRows::size_bytes(RowForm form, std::int64_t rows,
                                     std::int64_t inputs) noexcept {
  Carver carver{nullptr};
  PreparedRows measure;
  measure.form_ = form;
  measure.rows_ = rows;
  measure.inputs_ = inputs;
  measure.carve(carver);
  return carver.used;
}

RowForm PreparedRows::preferred_form(std::int64_t rows, Isa isa) noexcept {
  return rows >= 16 && matmul_kernels(isa).tiles != nullptr ? RowForm::bf16 : RowForm::int8;
}

void prepare_rows(const float* x, std::int64_t stride, const PreparedRows& out, int thread,
                  int threads, Isa isa) noexcept {
  const std::int64_t inputs = out.inputs();
  if (out.form() == RowForm::bf16) {
    const Range blocks = split((out.rows() + 31) / 32, thread, threads);
    for (std::int64_t b = blocks.begin; b < blocks.end; ++b) {
      const std::int64_t row = 32 * b;
      amx::round_rows(x + row * stride, stride, std::min<std::int64_t>(32, out.rows() - row),
                      inputs, out.tile(2 * b, 0));
    }
    return;
  }
  const Range rows = split(out.rows(), thread, threads);
  matmul_kernels(isa).quantize({x + rows.begin * stride, stride, rows.end - rows.begin, inputs,
                                out.codes(rows.begin), out.scales(rows.begin), out.sums(rows.begin),
                                out.negative_sums(rows.begin), out.half_sums(rows.begin),
                                out.negative_half_sums(rows.begin)});
}

}  // namespace tenon::cpu
