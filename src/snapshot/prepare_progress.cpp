#include <tenon/prepare_progress.hpp>

#include <utility>

namespace tenon {
namespace {

PrepareProgress*& listener() {
  thread_local PrepareProgress* current = nullptr;
  return current;
}

}  // namespace

PrepareProgress::PrepareProgress(Report report)
    : report_(std::move(report)), outer_(std::exchange(listener(), this)) {}

PrepareProgress::~PrepareProgress() { listener() = outer_; }

void PrepareProgress::advance(std::string_view weight, std::uint64_t bytes) {
  PrepareProgress* const current = listener();
  if (current != nullptr && current->report_) current->report_(weight, bytes);
}

}  // namespace tenon
