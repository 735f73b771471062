#include <tenon/backend.hpp>
#include <tenon/error.hpp>

namespace tenon {

void BoundPartition::run(HostFrame&) const {
  throw Error(Errc::internal, "BoundPartition::run", "this backend runs on a device");
}

void BoundPartition::run_on_device(DeviceFrame&) const {
  throw Error(Errc::internal, "BoundPartition::run_on_device", "this backend runs on CPU memory");
}

std::unique_ptr<Partition> Backend::load(const Lowered& program, std::span<const Step> steps,
                                         std::span<const std::byte>) const {
  return compile(program, steps);
}

}  // namespace tenon
