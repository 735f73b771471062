// A partition on a device as bytes, and back: nothing is compiled.
#pragma once

#include "compile.hpp"

#include <tenon/lowered.hpp>
#include <tenon/npu/isa/caps.hpp>
#include <tenon/stepwise.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon::npu {

/// A value as the device stores it, an image or rows; its factors are to be filled in.
StoredForm stored_form(bool is_image);

struct SavedNetwork {
  DeviceCode code;
  std::optional<StoredForm> form;  ///< of a partition of one step
  std::string calibration;         ///< the ranges it was compiled with, as text
};

/// `constants` are those of the code.
std::vector<std::byte> save_network(const DeviceCode& code, std::span<const std::byte> constants,
                                    const std::optional<StoredForm>& form,
                                    const std::string& calibration, const isa::Caps& caps);

/// The network of these steps of `program`. Programs are decoded and their places compared with
/// what the program has; what they access is for the device to check, segment by segment.
/// Errc::incompatible naming a capability that differs, Errc::corrupt for bytes that are no saved
/// network.
SavedNetwork restore_network(std::span<const std::byte> saved, const Lowered& program,
                             std::span<const Step> steps, const isa::Caps& caps);

/// What programs depend on of a device, in words.
std::string describe(const isa::Caps& caps);

/// The calibration of a saved network, whatever its device. Errc::corrupt, and
/// CalibrationTable::from_text()'s.
CalibrationTable calibration_of(std::span<const std::byte> saved);

}  // namespace tenon::npu
