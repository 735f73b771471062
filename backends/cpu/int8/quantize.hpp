#pragma once

#include <tenon/calibration.hpp>
#include <tenon/lowered.hpp>

#include <span>
#include <string>
#include <vector>

namespace tenon::cpu {

/// Turns convolutions whose image has a range in `table`, and whose filter is a constant, into
/// QuantizedConv2d, and stores images between them as codes: those that have a range and that only
/// such convolutions, max pools between them and means over an image read. Codes take less memory
/// in the same place, so the memory plan stays. Linear layers of f32 rows that have a range become
/// convolutions of images of one pixel.
///
/// `steps` are those of a partition, merged (merge.hpp); `original` the same in `program`. `notes`
/// gains a line for each convolution: what it computes in, and why not in int8; and for each linear
/// layer in int8.
void quantize_convolutions(std::vector<Step>& steps, std::span<const Operand> leaves,
                           const Lowered& program, std::span<const Step> original,
                           const quant::CalibrationTable& table, std::vector<std::string>& notes);

}  // namespace tenon::cpu
