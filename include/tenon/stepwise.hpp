#pragma once

#include <tenon/backend.hpp>
#include <tenon/layout.hpp>
#include <tenon/quant_params.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

namespace tenon {

/// What a backend also is whose numbers depend on which steps it compiles together (int8: where a
/// value is rounded, and to what). With merging ended, a session asks it for each step of a run of
/// steps that would be one partition.
class StepCompiler {
 public:
  virtual ~StepCompiler() = default;
  /// Compiles `steps[index]` of `program`. The partitions of all of `steps`, bound to the same
  /// constants and run in order, leave the bytes of the one that Backend::compile() makes of them.
  /// Called for index 0 first, and in order.
  virtual std::unique_ptr<Partition> compile_step(const Lowered& program,
                                                  std::span<const Step> steps,
                                                  std::size_t index) const = 0;
};

/// How a backend holds a value that it shows as f32.
struct StoredForm {
  Layout software;    ///< of what it shows
  Layout hardware;    ///< of the integers, in blocks
  QuantParams quant;  ///< real = integer (i8) * factor
};

/// What a bound partition of one step also is when it holds the step's value as integers. They can
/// be found again from what it shows: round(real / factor).
class StoresIntegers {
 public:
  virtual ~StoresIntegers() = default;
  virtual std::optional<StoredForm> stored_form() const = 0;
};

}  // namespace tenon
