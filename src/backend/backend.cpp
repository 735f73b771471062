#include <tenon/backend.hpp>
#include <tenon/error.hpp>

namespace tenon {

void BoundPartition::run(HostFrame&) const {
  throw Error(Errc::internal, "BoundPartition::run", "this backend runs on a device");
}

void BoundPartition::run_on_device(DeviceFrame&) const {
  throw Error(Errc::internal, "BoundPartition::run_on_device", "this backend runs on CPU memory");
}

std::unique_ptr<BoundPartition> Partition::bind_saved(const BoundConstants& constants,
                                                      std::span<const std::byte>) const {
  return bind(constants);
}

}  // namespace tenon
