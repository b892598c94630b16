#pragma once

/// Included first by the headers that an older standard can't read: its hundred errors follow this
/// one. 201709: g++ 10 with -std=c++20.
#if !defined(__cplusplus) || __cplusplus < 201709L
#error "the headers acc/*.hpp need C++20: compile with -std=c++20 (CMake: target_compile_features(NAME PRIVATE cxx_std_20))"
#endif
