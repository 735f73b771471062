// A library of somebody else's that has all of Tenon in it, and an op of its own: OP_FACTOR times x. The
// struct is called the same in all of them.
#include <tenon/tenon.hpp>

#include <cstddef>
#include <source_location>
#include <vector>

struct OwnCopyScale {
  static constexpr std::string_view name = "own_copy_scale";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr tenon::FieldList<> fields{};

  tenon::Shape infer(std::span<const tenon::Shape> in) const { return in[0]; }
  void reference(std::span<const tenon::HostView> in, const tenon::HostView& out) const {
    *out.as<float>() = OP_FACTOR * *in[0].as<float>();
  }
};

extern "C" std::size_t backend_count() { return tenon::default_backends().size(); }

extern "C" float scaled(float value) {
  using namespace tenon;
  const Shape scalar({}, f32);
  Graph graph;
  const Tensor y =
      record(OwnCopyScale(), {graph.input("x", scalar)}, std::source_location::current());
  Session session(graph.program({&y, 1}));
  const Buffer x = HostBuffer::of<float>(scalar, {value}).to_device(cpu_device());
  return session.forward(std::vector{x})[0].to_host().values<float>()[0];
}
