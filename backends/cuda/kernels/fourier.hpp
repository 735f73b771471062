// Fourier transforms of any size: a pass for each prime factor, a thread per number. Before a pass,
// number k * (n / done) + b of a lane is frequency k of the `done` numbers b, b + n / done, ..
#pragma once

#include "kernels/values.hpp"

#include <cstdint>

namespace tenon::cuda {

struct ComplexNumber {
  float real, imaginary;
};

TENON_DEVICE ComplexNumber load_complex(const FourierArgs& args, std::int64_t lane,
                                        std::uint32_t i) {
  const bool is_mirrored = args.is_half && i > args.n / 2;
  const std::int64_t at = lane + (is_mirrored ? args.n - i : i) * args.x_step;
  ComplexNumber value{load_as(0.0f, args.x, at), 0};
  // The ends of half a spectrum are real.
  const bool is_end = args.is_half && (i == 0 || 2 * i == args.n);
  if (args.x_part != 0 && !is_end) value.imaginary = load_as(0.0f, args.x, at + args.x_part);
  if (is_mirrored) value.imaginary = -value.imaginary;
  return value;
}

TENON_DEVICE void transform_factor(const Thread& thread, const FourierArgs& args) {
  const std::uint32_t before = args.n / args.done;  // numbers between those of one transform
  const std::uint32_t after = before / args.radix;
  const auto* const roots = global<const float>(args.roots);
  const float sign = args.is_inverse ? -1.0f : 1.0f;
  const std::uint32_t count = args.lanes.count * args.stored;
  for (std::uint32_t item = first_of(thread); item < count; item += stride_of(thread)) {
    const Index at = index_of(args.lanes, item / args.stored);
    const std::int64_t from = offset_of(at, args.x.steps, args.lanes.rank);
    const std::uint32_t i = item % args.stored, k = i / after, b = i % after;
    ComplexNumber sum{0, 0};
    std::uint32_t turned = 0;  // q * k * after modulo n
    for (std::uint32_t q = 0; q < args.radix; ++q) {
      const ComplexNumber x = load_complex(args, from, k % args.done * before + b + after * q);
      const float cosine = roots[2 * turned], sine = sign * roots[2 * turned + 1];
      sum.real += x.real * cosine - x.imaginary * sine;
      sum.imaginary += x.real * sine + x.imaginary * cosine;
      turned =
          static_cast<std::uint32_t>((std::uint64_t{turned} + std::uint64_t{k} * after) % args.n);
    }
    const std::int64_t to = offset_of(at, args.y.steps, args.lanes.rank) + i * args.y_step;
    store_as(sum.real * args.scale, args.y, to);
    if (args.y_part != 0) store_as(sum.imaginary * args.scale, args.y, to + args.y_part);
  }
}

}  // namespace tenon::cuda
