#include <tenon/error.hpp>
#include <tenon/nn/objects.hpp>

#include <locale>
#include <sstream>
#include <string>

#include <fmt/format.h>

namespace tenon::nn {
namespace {

Shape checked(std::string_view op, std::span<const Shape> in, const IntList& dims, DType dtype) {
  if (in.size() != 1 || in[0].dtype() != object_type<Generator>()) {  // C1
    fail(Errc::bad_type, op, "the operand is no Generator");
  }
  for (const std::int64_t size : dims) {
    if (size < 0) fail(Errc::bad_shape, op, fmt::format("a size of {}", size));  // C2
  }
  if (dtype != f32 && dtype != f64) {  // C3
    fail(Errc::unsupported_dtype, op, fmt::format("draws f32 or f64, not {}", name(dtype)));
  }
  return Shape(std::span<const std::int64_t>(dims.begin(), dims.size()), dtype);
}

}  // namespace

double Generator::next_double() {
  const auto upper = static_cast<double>(engine_() >> 5),
             lower = static_cast<double>(engine_() >> 6);
  return (upper * 67108864.0 + lower) / 9007199254740992.0;
}

float Generator::next_float() { return static_cast<float>(engine_() & 0xFFFFFFu) * 0x1p-24f; }

// The standard's text of the state: its words, oldest first, and then, in libstdc++, the position.
std::string Generator::save() const {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << engine_ << '\n';
  return out.str();
}

Generator Generator::load(std::string_view bytes) {
  Generator result(0);
  std::istringstream in{std::string(bytes)};
  in.imbue(std::locale::classic());
  in >> result.engine_;
  if (in.fail() || in.get() != '\n' || in.peek() != std::istringstream::traits_type::eof()) {
    throw Error(Errc::corrupt, "Generator", "its bytes are no state of MT19937");
  }
  return result;
}

Shape GeneratorUniform::infer(std::span<const Shape> in) const {
  return checked(name, in, dims, dtype);
}

void GeneratorUniform::reference(std::span<const HostView> in, const HostView& out) const {
  Generator generator = object_at<Generator>(in[0]);
  const std::int64_t count = out.shape.elements();
  for (std::int64_t i = 0; i < count; ++i) {
    if (dtype == f64) {
      out.as<double>()[i] = generator.next_double();
    } else {
      out.as<float>()[i] = generator.next_float();
    }
  }
}

Shape GeneratorSkip::infer(std::span<const Shape> in) const {
  static_cast<void>(checked(name, in, dims, dtype));
  return in[0];
}

void GeneratorSkip::reference(std::span<const HostView> in, const HostView& out) const {
  const Shape numbers(std::span<const std::int64_t>(dims.begin(), dims.size()), dtype);
  const auto count = static_cast<std::uint64_t>(numbers.elements());
  update_object<Generator>(in[0], out).skip(dtype == f64 ? 2 * count : count);
}

Drawn draw_uniform(const Tensor& generator, std::span<const std::int64_t> dims, DType dtype,
                   const std::source_location& where) {
  const IntList sizes(dims);
  return {record(GeneratorUniform{sizes, dtype}, {generator}, where),
          record(GeneratorSkip{sizes, dtype}, {generator}, where)};
}

}  // namespace tenon::nn
