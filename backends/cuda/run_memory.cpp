#include "run_memory.hpp"

#include <utility>

namespace tenon::cuda {

RunMemory::RunMemory(std::shared_ptr<CudaDevice> device, const RunBytes& bytes)
    : device_(std::move(device)) {
  MemRegion& region = device_->default_mem_region();
  status_ = region.malloc(sizeof(Status) + static_cast<std::uint64_t>(bytes.tickets));
  if (bytes.scratch > 0) scratch_ = region.malloc(static_cast<std::uint64_t>(bytes.scratch));
  stream_ = device_->driver()->create_stream();
  try {
    clear();
  } catch (...) {
    device_->driver()->destroy(stream_);
    throw;
  }
}
RunMemory::~RunMemory() {
  device_->driver()->destroy(stream_);  // waits for the graph's launches
}

void RunMemory::clear() { device_->driver()->fill(stream_, status(), 0, status_.size_bytes()); }

RunMemories::RunMemories(std::shared_ptr<CudaDevice> device, const RunBytes& bytes)
    : device_(std::move(device)), bytes_(bytes) {
  free_.push_back(make());
}

std::unique_ptr<RunMemory> RunMemories::take() {
  {
    const std::scoped_lock lock(mutex_);
    if (!free_.empty()) {
      auto memory = std::move(free_.back());
      free_.pop_back();
      return memory;
    }
  }
  return make();
}

void RunMemories::give_back(std::unique_ptr<RunMemory> memory) {
  const std::scoped_lock lock(mutex_);
  free_.push_back(std::move(memory));
}

std::unique_ptr<RunMemory> RunMemories::make() const {
  return std::make_unique<RunMemory>(device_, bytes_);
}

}  // namespace tenon::cuda
