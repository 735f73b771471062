#pragma once

#include "device.hpp"
#include "kernels/args.hpp"
#include "run_graph.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace tenon::cuda {

/// How much memory a plan's runs need, each.
struct RunBytes {
  std::int64_t scratch = 0, tickets = 0;
};

/// What one run needs for itself: a stream, the Status of kernels, scratch memory, tickets.
class RunMemory {
 public:
  RunMemory(std::shared_ptr<CudaDevice> device, const RunBytes& bytes);
  ~RunMemory();
  RunMemory(const RunMemory&) = delete;
  RunMemory& operator=(const RunMemory&) = delete;

  StreamId stream() const noexcept { return stream_; }
  Address status() const { return status_.begin().addr(); }
  Address scratch() const { return scratch_ ? scratch_.begin().addr() : 0; }
  Address tickets() const { return status() + sizeof(Status); }
  void clear();  ///< status and tickets

  int runs = 0;  ///< that began
  std::unique_ptr<RunGraph> graph;

 private:
  std::shared_ptr<CudaDevice> device_;
  MemChunk status_, scratch_;  ///< behind the Status are the tickets
  StreamId stream_{};
};

/// Memory of runs that ended, for the next ones: sessions that share a partition may run at once.
class RunMemories {
 public:
  RunMemories(std::shared_ptr<CudaDevice> device, const RunBytes& bytes);
  std::unique_ptr<RunMemory> take();
  void give_back(std::unique_ptr<RunMemory> memory);

 private:
  std::unique_ptr<RunMemory> make() const;

  std::shared_ptr<CudaDevice> device_;
  RunBytes bytes_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<RunMemory>> free_;
};

}  // namespace tenon::cuda
