// A pass over the steps of a partition: values between linear layers that are stored only as bf16
// tiles.
#pragma once

#include "prepared_rows.hpp"

#include <tenon/lowered.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tenon::cpu {

/// Where only linear layers on AMX tiles read a value, the task that computes it writes the bf16
/// tiles itself (Kernel::writes_tiles), in place of f32 that another task would read and round.
/// Results are the same to the bit.
///
/// Such a value is an operand of bf16 [ceil(M / 16), K / 32, 16, 32], PreparedRows in bf16 form,
/// where the step's op makes f32 [.., M, K]; padding rows at the end are undefined. It moves to
/// memory of the partition (Place::Kind::shared_scratch), from byte `first` on; the result is where
/// that memory ends.
///
/// `own` are the steps to change; see for_each_body.
std::int64_t keep_values_tiled(const Lowered& program, std::span<const Step> steps,
                               std::vector<Step>& own, std::int64_t first);

/// Whether an operand of f32 in the program has become such a value.
bool is_tiled(const Operand& operand) noexcept;

/// Rows that a tiled operand has room for, and elements of a row.
std::int64_t tiled_rows(const Operand& operand) noexcept;
std::int64_t tiled_row_size(const Operand& operand) noexcept;

/// A tiled operand's rows, at `memory`.
PreparedRows tiles_of(const Operand& operand, std::byte* memory) noexcept;

}  // namespace tenon::cpu
