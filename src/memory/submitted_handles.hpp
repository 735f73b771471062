// Handles of runs that have been submitted.
#pragma once

#include <tenon/memory.hpp>

#include <vector>

namespace tenon {

/// What a submitted run holds of the chunks that it is to fill. Until release(), these handles do
/// not count for MemChunk::is_last_handle(): whoever gets such a result waits for the run before
/// using it, so the run's own handles keep nobody from overwriting it afterwards.
class SubmittedHandles {
 public:
  SubmittedHandles() = default;
  /// `chunks`: one copy of each handle that the run has of what it is to fill.
  explicit SubmittedHandles(std::vector<MemChunk> chunks);
  ~SubmittedHandles() { release(); }
  SubmittedHandles(const SubmittedHandles&) = delete;
  SubmittedHandles& operator=(const SubmittedHandles&) = delete;

  void release() noexcept;

 private:
  struct Counted {
    MemChunk chunk;
    long handles;
  };
  std::vector<Counted> counted_;
};

}  // namespace tenon
