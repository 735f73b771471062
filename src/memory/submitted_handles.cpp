#include "memory/submitted_handles.hpp"

#include "memory/ledger.hpp"

#include <algorithm>
#include <utility>

namespace tenon {

SubmittedHandles::SubmittedHandles(std::vector<MemChunk> chunks) {
  counted_.reserve(chunks.size());
  for (MemChunk& chunk : chunks) {
    const auto known = std::ranges::find(counted_, chunk, &Counted::chunk);
    if (known != counted_.end()) {
      ++known->handles;
    } else {
      counted_.push_back({std::move(chunk), 2});  // the run's, and this one
    }
  }
  for (const Counted& counted : counted_) counted.chunk.node_->submitted += counted.handles;
}

void SubmittedHandles::release() noexcept {
  for (const Counted& counted : counted_) counted.chunk.node_->submitted -= counted.handles;
  counted_.clear();
}

bool MemChunk::is_last_handle() const noexcept {
  return node_ != nullptr && node_.use_count() - node_->submitted == 1;
}

}  // namespace tenon
