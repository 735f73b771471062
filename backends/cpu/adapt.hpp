// Steps that no kernel takes as they are, made of others that kernels take: operands are copied to
// dense memory, halves and block types widened to f32, a linear layer on a weight that is computed
// becomes a matmul. What that costs is said in notes.
#pragma once

#include <tenon/lowered.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::cpu {

/// Why no kernel runs this step, not even adapted; nothing when one does.
std::optional<std::string> why_not_run(const Step& step);

/// Replaces the steps that their kernels refuse, in loops too, by adapted ones; all others stay as
/// they are. Every step is one that why_not_run() lets pass. Takes shared scratch memory from byte
/// `first` on and returns where it ends. Adds a note `value: what` for each adapted step, with the
/// bytes that it copies in a run.
std::int64_t adapt_steps(std::vector<Step>& steps, std::int64_t first,
                         std::vector<std::string>& notes);

}  // namespace tenon::cpu
