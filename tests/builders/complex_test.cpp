// Arithmetic in c64 and u64, and transforms of c64.
#include "builder_cases.hpp"
#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/valued_graph.hpp"

#include <tenon/grad.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/ops/operators.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

using Unary = Tensor (*)(const Tensor& x, const std::source_location& where);
using Binary = Tensor (*)(const Tensor& a, const Tensor& b, const std::source_location& where);

std::function<Tensor(Operands, const Json&)> of(Unary function) {
  return [function](Operands x, const Json&) {
    return function(x[0], std::source_location::current());
  };
}
std::function<Tensor(Operands, const Json&)> of(Binary function) {
  return [function](Operands x, const Json&) {
    return function(x[0], x[1], std::source_location::current());
  };
}
/// The error is of this code, and names the op.
template <class Call>
void refused(Errc code, std::string_view op, Call&& call) {
  const std::string text = expect_error(code, call);
  INFO(text);
  CHECK(text.find(std::string(op) + ":") != std::string::npos);
}

const BuilderTable complex_table = {
    {"view_as_real", of(view_as_real)},
    {"view_as_complex",
     [](Operands x, const Json& a) {
       // Of what concat made, and of a view that is not dense.
       return a.contains("transposed") ? view_as_complex(permute(x[0], {1, 0, 2}))
                                       : view_as_complex(x[0]);
     }},
    {"make_complex", of(make_complex)},
    {"polar", of(polar)},
    {"cast", [](Operands x, const Json&) { return cast(x[0], c64); }},
    {"real", of(real)},
    {"imag", of(imag)},
    {"abs", of(abs)},
    {"angle", of(angle)},
    {"conj", of(conj)},
    {"neg", of(neg)},
    {"square", of(square)},
    {"reciprocal", of(reciprocal)},
    {"sqrt", of(sqrt)},
    {"rsqrt", of(rsqrt)},
    {"exp", of(exp)},
    {"log", of(log)},
    {"sin", of(sin)},
    {"cos", of(cos)},
    {"sign", of(sign)},
    {"is_nan", of(is_nan)},
    {"is_inf", of(is_inf)},
    {"is_finite", of(is_finite)},
    {"add", [](Operands x, const Json&) { return x[0] + x[1]; }},
    {"sub", [](Operands x, const Json&) { return x[0] - x[1]; }},
    {"mul", [](Operands x, const Json&) { return x[0] * x[1]; }},
    {"div", [](Operands x, const Json&) { return x[0] / x[1]; }},
    {"pow", of(pow)},
    {"eq", of(eq)},
    {"ne", of(ne)},
    {"sum", [](Operands x, const Json& a) { return sum(x[0], axis_in(a)); }},
    {"mean", [](Operands x, const Json& a) { return mean(x[0], axis_in(a)); }},
    {"cumsum", [](Operands x, const Json& a) { return cumsum(x[0], axis_in(a)); }},
    {"linear", [](Operands x, const Json&) { return linear(x[0], x[1], x[2]); }},
    {"matmul", of(matmul)},
    {"einsum",
     [](Operands x, const Json& a) { return einsum(a.at("equation").get<std::string>(), x); }},
    {"scatter",
     [](Operands x, const Json& a) {
       return scatter(x[0], x[1], x[2], 0, Name(a.at("mode").get<std::string>()));
     }},
    {"fft", [](Operands x,
               const Json& a) { return a.contains("axis") ? fft(x[0], axis_in(a)) : fft(x[0]); }},
    {"ifft", [](Operands x, const Json& a) { return ifft(x[0], axis_in(a)); }},
    {"rfft", [](Operands x, const Json& a) { return rfft(x[0], axis_in(a), c64); }},
    {"irfft", [](Operands x, const Json& a) { return irfft(x[0], a.at("size"), axis_in(a)); }},
    {"fft2", of(fft2)},
    {"ifft2", of(ifft2)},
    {"where", [](Operands x, const Json&) { return where(x[0], x[1], x[2]); }},
    {"gather", [](Operands x, const Json&) { return gather(x[0], x[1], 0); }},
    {"pad", [](Operands x, const Json&) { return pad(x[0], {1, 0}, {0, 2}, 1.5); }},
    {"concat", [](Operands x, const Json&) { return concat({x[0], x[1]}, 1); }},
    {"slice", [](Operands x, const Json&) { return permute(slice(x[0], 1, 3, 0, -2), {1, 0}); }},
    {"minimum", of(minimum)},
    {"maximum", of(maximum)},
    {"bitwise_and", of(bitwise_and)},
    {"bitwise_or", of(bitwise_or)},
    {"bitwise_xor", of(bitwise_xor)},
    {"bitwise_not", of(bitwise_not)},
    {"lt", of(lt)},
    {"le", of(le)},
    {"gt", of(gt)},
    {"ge", of(ge)},
    {"remainder", of(remainder)},
    {"fmod", of(fmod)},
    {"shift_left", of(shift_left)},
    {"shift_right", of(shift_right)},
    {"prod", [](Operands x, const Json& a) { return prod(x[0], axis_in(a)); }},
    {"max", [](Operands x, const Json& a) { return max(x[0], axis_in(a)); }},
    {"min", [](Operands x, const Json& a) { return min(x[0], axis_in(a)); }},
    {"cumprod", [](Operands x, const Json& a) { return cumprod(x[0], axis_in(a)); }},
    {"cummax", [](Operands x, const Json& a) { return cummax(x[0], axis_in(a)); }},
    {"cummin", [](Operands x, const Json& a) { return cummin(x[0], axis_in(a)); }},
    {"sort", [](Operands x, const Json& a) { return sort(x[0], axis_in(a)); }},
    {"argsort", [](Operands x, const Json& a) { return argsort(x[0], axis_in(a)); }},
    {"argmax", [](Operands x, const Json& a) { return argmax(x[0], axis_in(a), false, i64); }},
    {"argmin", [](Operands x, const Json& a) { return argmin(x[0], axis_in(a), false, i64); }},
    {"topk", [](Operands x, const Json& a) { return topk(x[0], a.at("k")).values; }},
    {"searchsorted", [](Operands x, const Json&) { return searchsorted(x[0], x[1]); }},
};

TEST_CASE("builders: complex") { check_builders("complex", complex_table); }
TEST_CASE("builders: complex, fresh", "[oracle]") {
  check_fresh_builders("complex", complex_table);
}

TEST_CASE("complex: refusals name the op, and sizes are checked as of real numbers") {
  Graph graph;
  const Tensor z = graph.input("z", Shape({2, 3}, c64)), x = graph.input("x", Shape({2, 3}, f32));
  const Tensor d = graph.input("d", Shape({2, 3}, f64)), w = graph.input("w", Shape({4, 3}, c64));
  refused(Errc::unsupported_dtype, "softmax", [&] { softmax(z); });
  refused(Errc::unsupported_dtype, "maximum", [&] { maximum(z, z); });
  refused(Errc::unsupported_dtype, "lt", [&] { lt(z, z); });
  refused(Errc::unsupported_dtype, "sort", [&] { sort(z); });
  refused(Errc::unsupported_dtype, "conv2d", [&] {
    const Tensor image = graph.input("image", Shape({1, 1, 4, 4}, c64));
    conv2d(image, image);
  });
  refused(Errc::unsupported_dtype, "cast", [&] { cast(z, f32); });
  refused(Errc::unsupported_dtype, "imag", [&] { imag(x); });
  refused(Errc::unsupported_dtype, "rfft", [&] { rfft(z, 1); });
  refused(Errc::shape_mismatch, "add", [&] { z + d; });
  refused(Errc::shape_mismatch, "mul", [&] { z* w; });
  refused(Errc::shape_mismatch, "matmul", [&] { matmul(z, w); });
  refused(Errc::axis_out_of_range, "sum", [&] { sum(z, 2); });
  refused(Errc::axis_out_of_range, "fft", [&] { fft(z, 2); });
  const Tensor u = graph.input("u", Shape({3}, u64)), i = graph.input("i", Shape({3}, i64));
  refused(Errc::shape_mismatch, "add", [&] { u + i; });
  refused(Errc::unsupported_dtype, "mean", [&] { mean(u); });
  const Tensor f8 = graph.input("f8", Shape({3}, f8_e4m3));
  refused(Errc::unsupported_dtype, "mul", [&] { f8* f8; });
  refused(Errc::unsupported_dtype, "sum", [&] { sum(f8); });
}

/// A gradient with respect to z is that of the parts, found here by differences.
void check_gradient(std::string_view what, const std::function<Tensor(const Tensor&)>& function) {
  INFO(what);
  Random random(11);
  const HostBuffer parts = random.uniform(Shape({3, 4, 2}, f32), 0.4, 1.6);
  const HostBuffer direction = random.uniform(parts.shape(), -1, 1);
  const auto loss_of = [&](ValuedGraph& graph, const Tensor& z) {
    Tensor y = function(z);
    if (is_complex(y.dtype())) y = view_as_real(y);
    return sum(y * graph.input(Random(5).uniform(y.shape(), -1, 1)));
  };
  const auto loss_at = [&](const HostBuffer& x) {
    ValuedGraph graph;
    return elements(graph.value(loss_of(graph, view_as_complex(graph.input(x))))).at(0);
  };
  ValuedGraph graph;
  const Tensor x = graph.input(parts), z = view_as_complex(x);
  const Tensor loss = loss_of(graph, z);
  const HostBuffer of_parts = graph.value(grad(loss, x));
  const HostBuffer of_numbers = graph.value(grad(loss, z));
  CHECK(of_numbers.shape() == Shape({3, 4}, c64));
  CHECK(elements(of_numbers) == elements(of_parts));
  constexpr double step = 1.0 / 128;
  const double difference =
      (loss_at(moved(parts, direction, step)) - loss_at(moved(parts, direction, -step))) /
      (2 * step);
  CHECK(dot(of_parts, direction) == Approx(difference).epsilon(2e-2).margin(2e-2));
}

TEST_CASE("complex: gradients") {
  const std::pair<std::string_view, std::function<Tensor(const Tensor&)>> functions[] = {
      {"add", [](const Tensor& z) { return z + real(z); }},
      {"mul", [](const Tensor& z) { return z * conj(z) * z; }},
      {"div", [](const Tensor& z) { return (z + 1.0) / z + real(z) / z; }},
      {"abs", [](const Tensor& z) { return abs(z); }},
      {"angle", [](const Tensor& z) { return angle(z); }},
      {"exp", [](const Tensor& z) { return exp(z); }},
      {"log", [](const Tensor& z) { return log(z); }},
      {"sqrt", [](const Tensor& z) { return sqrt(z); }},
      {"sign", [](const Tensor& z) { return sign(z); }},
      {"pow", [](const Tensor& z) { return pow(z, z); }},
      {"sin", [](const Tensor& z) { return sin(z) + cos(z); }},
      {"matmul", [](const Tensor& z) { return matmul(z, transpose(conj(z))); }},
      {"fft", [](const Tensor& z) { return ifft(fft(z) * fft(z)); }},
      {"irfft", [](const Tensor& z) { return irfft(z, 6); }},
      {"rfft", [](const Tensor& z) { return rfft(abs(z), -1, c64); }},
      {"gather",
       [](const Tensor& z) { return gather(z, cast(real(z).slice(1, 0, 2), i32)) * 2.0; }},
      {"moves",
       [](const Tensor& z) {
         return pad(concat({slice(z, 1, 3, 0, -1), broadcast_to(sum(z, 1, true), {3, 2})}, 1), 0, 1,
                    0);
       }},
      {"where", [](const Tensor& z) { return where(gt(real(z), imag(z)), z, z * z); }},
  };
  for (const auto& [what, function] : functions) check_gradient(what, function);
}

TEST_CASE("complex: gradients at zero are zero, as PyTorch's") {
  ValuedGraph graph;
  const Tensor z = graph.input(HostBuffer::zeros(Shape({2}, c64)));
  for (const Tensor& loss : {sum(abs(z)), sum(angle(z))}) {
    CHECK(elements(graph.value(grad(loss, z))) == std::vector<double>(4, 0.0));
  }
}

}  // namespace
}  // namespace tenon::testing
