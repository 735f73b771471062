#include <tenon/backend.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon {

void require_accepted(const Backend& backend, std::span<const Step> steps) {
  for (const Step& step : steps) {
    if (step.kind == Step::Kind::loop) {
      require_accepted(backend, step.body);
    } else if (const auto why = backend.refuses(step)) {
      throw Error(Errc::unsupported, step.value, fmt::format("{}: {}", backend.name(), *why));
    }
  }
}

void BoundPartition::run(HostFrame&) const {
  throw Error(Errc::internal, "BoundPartition::run", "this backend runs on a device");
}

void BoundPartition::run_on_device(DeviceFrame&) const {
  throw Error(Errc::internal, "BoundPartition::run_on_device", "this backend runs on CPU memory");
}

std::unique_ptr<Partition> Backend::restore(const Lowered&, std::span<const Step>,
                                            std::span<const std::byte>) const {
  throw Error(Errc::incompatible, std::string(name()), "this backend saves nothing");
}

std::unique_ptr<Partition> Backend::recompile(const Lowered& program, std::span<const Step> steps,
                                              std::span<const std::byte>) const {
  require_accepted(*this, steps);
  return compile(program, steps);
}

}  // namespace tenon
