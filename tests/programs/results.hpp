// What runs of a program gave, and how they compare.
#pragma once

#include <tenon/backend.hpp>
#include <tenon/buffer.hpp>
#include <tenon/error.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/session.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tenon::testing {

using Results = std::vector<HostBuffer>;

/// A wrong result, in words.
struct Failure {
  std::string what;
};

/// The CPU backend and the reference. Pools of threads are made once.
std::vector<BackendPtr> cpu_backends(int threads, bool exact);

/// The largest error, in units of what is allowed: `allowed` times the largest magnitude of a
/// result, or 1 where that is less. A Failure where one is larger; `way` says of which run.
double largest_error(const std::string& way, const Results& got, const Results& wanted,
                     double allowed);

/// A Failure naming the first byte that differs.
void compare_bits(const std::string& way, const Results& got, const Results& wanted);

/// Whether no result holds an infinity or a NaN.
bool is_finite(const Results& results);

std::map<std::string, Buffer> on_cpu(const std::map<std::string, HostBuffer>& values);
std::vector<Buffer> on_cpu(const Results& values);
/// Copies in memory of their own, which a call may overwrite when it gets their last handles.
std::vector<Buffer> to_give_up(const Results& values, MemRegion& region);
Results on_host(const std::vector<Buffer>& outputs);
std::vector<Shape> shapes_of(const Results& values);

/// The code of the error that `buffer` is poisoned with.
std::optional<Errc> poison_of(const Buffer& buffer);

/// What a call that threw must have done: nothing that its caller sees but in the states, and in
/// inputs that were given up, which are poisoned with its error where their memory was reused.
class Untouched {
 public:
  explicit Untouched(const std::vector<Buffer>& given);

  /// A Failure where `given` is not what it was. `states`: inputs that may be half updated;
  /// `error`: what inputs may be poisoned with, nothing where the caller has other handles.
  void check(const std::string& way, const std::vector<Buffer>& given,
             const std::set<std::size_t>& states, std::optional<Errc> error = {}) const;

 private:
  std::vector<MemPtr> begins_;
  Results values_;
};

/// The session of a snapshot file, which is removed before this returns.
Session reloaded(const Session& session, const std::vector<BackendPtr>& backends,
                 const Session::SaveOptions& options = {});

/// The program as it is, on the reference alone.
Results run_reference(const Program& program, const std::shared_ptr<const WeightSet>& weights,
                      const Results& inputs);

/// How far the results of a program move, in units of their largest magnitude or 1, when each float that it is
/// given moves by a rounding to bf16. `wanted` are its results on the reference.
double sensitivity(const Program& program, const std::map<std::string, HostBuffer>& weights,
                   const Results& inputs, const Results& wanted, std::uint64_t seed);

/// run(0), run(1), ... each on a thread of its own. A Failure where one throws.
std::vector<Results> at_once(std::size_t count, const std::function<Results(std::size_t)>& run);

}  // namespace tenon::testing
