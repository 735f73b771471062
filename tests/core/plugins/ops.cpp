// A plugin without a backend: an op, and a kernel for it that gives twice what the op means, so that
// a test sees which one ran. With FAULT_THROWS it throws when both have been added.
#include <tenon/backend.hpp>
#include <tenon/error.hpp>
#include <tenon/kernel.hpp>

namespace {

using namespace tenon;

#ifdef FAULT_THROWS
#define NAME "thrown_cube"
#else
#define NAME "plugin_cube"
#endif

struct Cube {
  static constexpr std::string_view name = NAME;
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.pointwise = true};
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const { return in[0]; }
  void reference(std::span<const HostView> in, const HostView& out) const {
    for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
      const double x = load_as_double(out.shape.dtype(), in[0].at(index));
      store_double(out.shape.dtype(), out.at(index), x * x * x);
    });
  }
};

void add(const PluginRegistry& registry) {
  registry.add_op(op_def<Cube>());
  KernelDef kernel;
  kernel.op = &op_def<Cube>();
  kernel.run = [](const OpInstance& op, const KernelCall& call) {
    if (call.thread != 0) return;
    op.def()->reference(op.attributes(), call.inputs, call.output);
    for_each_index(call.output.shape, [&](std::span<const std::int64_t> index) {
      const DType dtype = call.output.shape.dtype();
      store_double(dtype, call.output.at(index), 2 * load_as_double(dtype, call.output.at(index)));
    });
  };
  registry.add_kernel("cpu", kernel);
#ifdef FAULT_THROWS
  throw Error(Errc::bad_input, NAME, "and no further");
#endif
}

const PluginDescriptor descriptor{.name = NAME, .add = add};

}  // namespace

extern "C" const tenon::PluginDescriptor* tenon_plugin() noexcept { return &descriptor; }
