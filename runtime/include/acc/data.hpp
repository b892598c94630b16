#pragma once

/// Everything for data: sharding of samples over ranks, loaders with prefetch, and file readers.
#include <acc/gradient_state.hpp>
#include <acc/loader.hpp>
#include <acc/operations.hpp>
#include <acc/readers.hpp>
#include <acc/sampler.hpp>
#include <acc/sharding.hpp>
#include <acc/split.hpp>
