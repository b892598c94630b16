#pragma once

/// Everything about data: which samples go to which rank, loaders that read them ahead, and readers
/// of the files they come in.
#include <acc/gradient_state.hpp>
#include <acc/loader.hpp>
#include <acc/operations.hpp>
#include <acc/readers.hpp>
#include <acc/sampler.hpp>
#include <acc/sharding.hpp>
#include <acc/split.hpp>
