// An op of one's own, with a kernel for AVX2: outside Tenon, and without building it again.
#include <tenon/kernel.hpp>
#include <tenon/tenon.hpp>
#include <tenon/testkit.hpp>

#include <cmath>
#include <cstdio>

#include <immintrin.h>

using namespace tenon;

/// y = x / (1 + |x|), element by element: softsign (Turian et al., 2009).
///
/// Input x: f32 of any shape. Output y: type of x; may share x's memory.
/// Errors C1 dtype of x not f32   Errc::unsupported_dtype
struct Softsign {
  static constexpr std::string_view name = "my_softsign";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 1};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const {
    if (in[0].dtype() != f32) fail(Errc::unsupported_dtype, name, "x is not f32");
    return in[0];
  }
  void reference(std::span<const HostView> in, const HostView& out) const {
    for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
      const double x = load_as_double(f32, in[0].at(index));
      store_double(f32, out.at(index), x / (1 + std::abs(x)));
    });
  }
};

[[gnu::target("avx2")]] void softsign_avx2(const float* x, float* y, std::int64_t count) {
  const __m256 one = _mm256_set1_ps(1), sign = _mm256_set1_ps(-0.0f);
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 v = _mm256_loadu_ps(x + i);
    const __m256 magnitude = _mm256_andnot_ps(sign, v);
    _mm256_storeu_ps(y + i, _mm256_div_ps(v, _mm256_add_ps(one, magnitude)));
  }
  for (; i < count; ++i) y[i] = x[i] / (1 + std::abs(x[i]));
}

int main() try {
  register_op<Softsign>();
  register_kernel<Softsign>(
      "cpu", {.constraint = [](const Softsign&, const Step& step) -> std::optional<std::string> {
                if (!__builtin_cpu_supports("avx2")) return "no AVX2";
                if (!step.inputs[0].is_contiguous()) return "x is strided";
                return std::nullopt;
              },
              .run =
                  [](const Softsign&, const KernelCall& call) {
                    const auto [begin, end] = call.share(call.output.shape.elements());
                    softsign_avx2(call.inputs[0].as<float>() + begin,
                                  call.output.as<float>() + begin, end - begin);
                  }});
  const auto findings =
      testkit::check_op(Softsign(), {Shape({7, 1001}, f32)}, {.backends = {make_backend("cpu")}});
  for (const std::string& finding : findings) std::printf("%s\n", finding.c_str());

  const Shape shape({2, 3}, f32);
  Graph graph;
  const Tensor recorded =
      record(Softsign(), {graph.input("x", shape)}, std::source_location::current());
  const Program program = parse(print(graph.program(std::vector{recorded})));
  Session session(program, {.backends = default_backends(), .forbid_fallback = true});
  const HostBuffer x = HostBuffer::of<float>(shape, {-3, -1, 0, 1, 3, 9});
  const HostBuffer y = session.forward(std::vector{x.to_device(cpu_device())})[0].to_host();
  for (const float value : y.values<float>()) std::printf("%.2f ", static_cast<double>(value));
  std::printf("on %s, %zu findings\n",
              session.report(std::span(&shape, 1)).parts[0].backend.c_str(), findings.size());
  return findings.empty() ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
}
