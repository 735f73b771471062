#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

// Random numbers without hidden state: every number is a function of a key, which is a value of the
// program, and of its place in the result. A program that is to give other numbers at each run
// takes the key, or the number of the run, as an input:
//
//   const Tensor key = fold_in(random_key(seed), graph.input("run", Shape({}, i64)));
//   const auto keys = split_key(key, 2);  // one for each use: a key used twice gives equal numbers
//   const Tensor noise = random_normal(keys[0], Shape({8, 64}, f32));
//
// or carries it from run to run as an output that becomes the next input.

/// Random bits: word i of the result is word i mod 4 of Philox4x32-10 of the key and of the counter
/// first + i / 4 (its lower 64 bits) and `stream` (its upper 64 bits).
///
/// Inputs    key: u32[2]
///           first, optional: one number; i32, i64 or u32, by default 0
///           like, the last when like_last: any, of which only the sizes count, which may be
///           symbolic
/// Output    y: `dims`, or the sizes of `like`; u32
/// Attributes like_last: whether there is a `like`
///           stream: numbers of different streams are independent. 0 is for data; fold_in and
///           split_key take 1 and 2
/// Errors    C1 key not u32[2]                        Errc::shape_mismatch
///           C2 first not one number of such a type   Errc::shape_mismatch
///           C3 a negative size                       Errc::bad_shape
///           C4 wrong number of inputs for the flag   Errc::bad_argument
/// Numerics  the same bits on every backend, for every number of threads
/// Source    Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011)
struct RandomBits {
  static constexpr std::string_view name = "random_bits";
  static constexpr int min_inputs = 1, max_inputs = 3;
  static constexpr OpTraits traits{};
  IntList dims{};
  std::int64_t stream = 0;
  bool like_last = false;
  static constexpr auto fields =
      FieldList{field("dims", &RandomBits::dims), field("stream", &RandomBits::stream),
                field("like_last", &RandomBits::like_last)};

  /// Whether one of so many inputs is `first`.
  bool has_first(std::size_t inputs) const noexcept { return inputs > (like_last ? 2u : 1u); }

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(RandomBits);

/// Uniform bits, u32.
Tensor random_bits(const Tensor& key, std::span<const std::int64_t> dims,
                   const std::source_location& where = std::source_location::current());

/// A key that is part of the program: the same numbers at each run. Recorded in the graph of the
/// active Graph::Recording. The key's words are the lower and the upper half of the seed.
Tensor random_key(std::uint64_t seed,
                  const std::source_location& where = std::source_location::current());
/// Another key for each `number`: one integer (i32, i64, u32), of the program or fixed.
Tensor fold_in(const Tensor& key, const Tensor& number,
               const std::source_location& where = std::source_location::current());
Tensor fold_in(const Tensor& key, std::int64_t number,
               const std::source_location& where = std::source_location::current());
/// `count` keys, of which each gives numbers of its own. Errc::bad_argument for a negative count.
std::vector<Tensor> split_key(const Tensor& key, std::int64_t count,
                              const std::source_location& where = std::source_location::current());

// Distributions; composed. `shape` gives sizes, tags and dtype of the result. A symbol among its sizes
// is that of an input or constant of the graph, and numbers are those of the sizes themselves.
// Floating types are made where nothing else is said; Errc::bad_argument otherwise, and for a size
// that nothing has.

/// Uniform in [low, high): multiples of 2^-24 of the range for f32, of 2^-53 for f64, 2^-11 for
/// f16, 2^-8 for bf16. Rounding may give `high` where that is not a power of two above `low`.
Tensor random_uniform(const Tensor& key, const Shape& shape, double low = 0, double high = 1,
                      const std::source_location& where = std::source_location::current());

/// Normally distributed, by the method of Box and Muller (1958): from uniform numbers of 24 bits,
/// so that f32 stays within 5.77 deviations of the mean; of 53 bits for f64.
Tensor random_normal(const Tensor& key, const Shape& shape, double mean = 0, double deviation = 1,
                     const std::source_location& where = std::source_location::current());

/// Exponentially distributed with this rate.
Tensor random_exponential(const Tensor& key, const Shape& shape, double rate = 1,
                          const std::source_location& where = std::source_location::current());

/// -log(-log(u)): Gumbel's distribution.
Tensor random_gumbel(const Tensor& key, const Shape& shape,
                     const std::source_location& where = std::source_location::current());

/// Whole numbers in [low, high), of shape's integer dtype; high - low in [1, 2^31]. A number's
/// probability is off by at most 2^-32.
Tensor random_integers(const Tensor& key, const Shape& shape, std::int64_t low, std::int64_t high,
                       const std::source_location& where = std::source_location::current());

/// true with probability `p`, to 2^-24; bool of `shape`'s sizes, whose dtype does not count. A
/// tensor p is f32 and broadcasts to them.
Tensor random_bernoulli(const Tensor& key, const Shape& shape, double p,
                        const std::source_location& where = std::source_location::current());
Tensor random_bernoulli(const Tensor& key, const Shape& shape, const Tensor& p,
                        const std::source_location& where = std::source_location::current());

/// One index along `axis` (i32) for each distribution with these logarithms of probabilities, which
/// need not be normalised: the largest sum with a Gumbel number.
Tensor random_categorical(const Tensor& key, const Tensor& logits, const AxisRef& axis = -1,
                          const std::source_location& where = std::source_location::current());

/// `samples` indices (i32 [.., samples]) for each distribution along the last axis of `weights`
/// (>= 0, not normalised). Without replacement they differ, most likely ones first on average, and
/// are as many as weights at most, whose number is known then (Kool et al., arXiv:1903.06059).
Tensor random_multinomial(const Tensor& key, const Tensor& weights, std::int64_t samples,
                          bool replacement = false,
                          const std::source_location& where = std::source_location::current());

/// 0 .. size - 1 in random order, i32; equal bits of two places (of 2^32) keep their order.
Tensor random_permutation(const Tensor& key, std::int64_t size,
                          const std::source_location& where = std::source_location::current());

/// x with elements set to 0 with probability `rate` in [0, 1), others times 1 / (1 - rate). For
/// training: leave it out of programs for inference.
Tensor dropout(const Tensor& key, const Tensor& x, double rate = 0.5,
               const std::source_location& where = std::source_location::current());

}  // namespace tenon
