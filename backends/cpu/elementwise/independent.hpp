// For loops whose output may be one of the inputs, element for element, and overlaps none in another
// way.
#pragma once

#if defined(__clang__)
// A promise, not a wish: where a loop is not worth vectorising, or a sanitizer is in the way, so be
// it.
#pragma clang diagnostic ignored "-Wpass-failed"
#define TENON_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TENON_INDEPENDENT _Pragma("GCC ivdep")
#endif
