// The op of docs/adding-an-op.md, as a program outside of the library adds it.
#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/shown_code.hpp"
#include "support/valued_graph.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/program.hpp>
#include <tenon/session.hpp>

#include <source_location>

namespace tenon {

/// y = x^3, element by element.
///
/// Input     x: any rank; floating
/// Output    y: type and tags of x; may share x's buffer
/// Errors    C1 dtype of x not floating      Errc::unsupported_dtype
/// Numerics  reference in f64, rounded once
struct Cube {
  static constexpr std::string_view name = "cube";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.pointwise = true, .in_place_inputs = 1};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
  void reference(std::span<const HostView> in, const HostView& out) const;
};
TENON_DECLARE_OP(Cube);

Tensor cube(const Tensor& x, const std::source_location& where = std::source_location::current());

TENON_DEFINE_OP(cube, Cube);

Shape Cube::infer(std::span<const Shape> in) const {
  if (!is_floating(in[0].dtype()))
    fail(Errc::unsupported_dtype, name, "needs a floating type, got " + to_string(in[0]));  // C1
  return in[0];
}

void Cube::reference(std::span<const HostView> in, const HostView& out) const {
  const DType dtype = out.shape.dtype();
  for_each_index(out.shape, [&](std::span<const std::int64_t> i) {
    const double x = load_as_double(dtype, in[0].at(i));
    store_double(dtype, out.at(i), x * x * x);
  });
}

Tensor cube(const Tensor& x, const std::source_location& where) {
  return record(Cube{}, {x}, where);
}

namespace testing {
namespace {

TEST_CASE("docs/adding-an-op.md: its op runs") {
  expect_equal(apply(Cube{}, {floats({3}, {-2, 0, 1.5})}), {-8, 0, 3.375});
  expect_equal(apply(Cube{}, {floats({0}, {})}), {});
  expect_error(Errc::unsupported_dtype,
               [] { infer_op(OpInstance(Cube{}), std::vector{Shape({2}, i32)}); });

  Graph graph;
  const Tensor y = cube(graph.input("x", Shape({2}, f32)));
  Session session(graph.program({&y, 1}), {.backends = {make_reference_backend({})}});
  expect_equal(session.forward({floats({2}, {2, 3}).to_device(cpu_device())})[0].to_host(),
               {8, 27});
}

TEST_CASE("docs/adding-an-op.md: its op stands here") {
  check_shown_code("docs/adding-an-op.md", "tests/ops/adding_an_op_test.cpp", 1);
  const std::string page = without_spaces(read_bytes("docs/adding-an-op.md"));
  for (const char* part : {"TENON_DEFINE_OP(cube,Cube);", "returnrecord(Cube{},{x},where);",
                           "apply(Cube{},{x})", "TENON_OP(cube,cube,Cube)"}) {
    CHECK(page.find(part) != std::string::npos);
  }
}

}  // namespace
}  // namespace testing
}  // namespace tenon
