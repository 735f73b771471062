#pragma once

#include <tenon/attributes.hpp>
#include <tenon/dtype.hpp>
#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <random>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

namespace tenon::nn {

/// A generator of random numbers as an object of a program (tenon/object.hpp), "Generator" in texts:
/// linear, so that a number is drawn once. Gives the numbers that other libraries give for a seed;
/// random_bits and what is made of it (tenon/ops/random.hpp) have no state and are faster.
///
/// Source: Matsumoto and Nishimura, Mersenne Twister (1998): MT19937.
class Generator {
 public:
  /// The state after `init_genrand(seed)`, as of numpy's RandomState(seed) and PyTorch's
  /// torch.manual_seed(seed) for seeds below 2^32.
  explicit Generator(std::uint32_t seed) : engine_(seed) {}

  /// The next number of [0, 1): 53 bits of two words, as numpy's RandomState.random_sample().
  double next_double();
  /// The next one of 24 bits, of one word, as torch.rand() on the CPU.
  float next_float();
  void skip(std::uint64_t words) { engine_.discard(words); }

  /// The 624 words of the state and the position in them, as text; and back. Errc::corrupt.
  std::string save() const;
  static Generator load(std::string_view bytes);

  friend bool operator==(const Generator&, const Generator&) = default;

 private:
  std::mt19937 engine_;
};

/// Numbers of [0, 1) that a generator gives next, row-major; it stays as it is.
///
/// Input     generator: Generator
/// Output    y: `dims`; `dtype`
/// Attribute dtype: f32 or f64, of Generator::next_float() or next_double()
/// Errors    C1 no Generator                         Errc::bad_type
///           C2 a negative size                      Errc::bad_shape
///           C3 another dtype                        Errc::unsupported_dtype
struct GeneratorUniform {
  static constexpr std::string_view name = "generator_uniform";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.takes_objects = true};
  IntList dims{};
  DType dtype = f32;
  static constexpr auto fields =
      FieldList{field("dims", &GeneratorUniform::dims), field("dtype", &GeneratorUniform::dtype)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};

/// The generator behind the numbers that generator_uniform gives for the same attributes.
///
/// Input     generator: Generator, updated
/// Output    y: Generator
/// Errors    as GeneratorUniform
struct GeneratorSkip {
  static constexpr std::string_view name = "generator_skip";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.updates_input = 0, .takes_objects = true};
  IntList dims{};
  DType dtype = f32;
  static constexpr auto fields =
      FieldList{field("dims", &GeneratorSkip::dims), field("dtype", &GeneratorSkip::dtype)};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};

/// Draws numbers: they and the generator behind them, which takes the place of `generator`.
struct Drawn {
  Tensor numbers;
  Tensor generator;
};
Drawn draw_uniform(const Tensor& generator, std::span<const std::int64_t> dims, DType dtype = f32,
                   const std::source_location& where = std::source_location::current());

}  // namespace tenon::nn
