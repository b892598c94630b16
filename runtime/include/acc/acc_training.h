#pragma once

#include <acc/acc.h>

/*
 * What a training loop in C, or in a language that calls C, needs besides the calls of acc/acc.h: who
 * gets which sample, mean gradients, an optimizer, clipping, checkpoints. The C++ headers that stand
 * behind each part say more: acc/sharding.hpp, acc/gradient_reducer.hpp, acc/optimizer.hpp,
 * acc/clip.hpp, acc/checkpoint.hpp. Errors and handles are as in acc/acc.h; a communicator lives
 * longer than what was made with it, a reducer longer than its optimizer.
 */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct acc_batches acc_batches;           /* one rank's batches of an epoch */
typedef struct acc_reducer acc_reducer;           /* mean gradients */
typedef struct acc_optimizer acc_optimizer;       /* SGD or AdamW */
typedef struct acc_state acc_state;               /* what a checkpoint holds */
typedef struct acc_checkpointer acc_checkpointer; /* writes and reads them in a folder */

/* ---- who gets which sample ---- */

typedef struct acc_sharding {
  size_t size;           /* sizeof(acc_sharding) of the caller */
  uint64_t batch_size;   /* samples of each rank in a step; with split_batches of all together */
  int32_t drop_last;     /* 1: what doesn't fill a step is left out */
  int32_t split_batches; /* 1: batch_size is of all ranks together */
  int32_t even_batches;  /* 1: the last step is filled up with the first samples of the epoch;
                          * a single rank's stays short */
  int32_t shuffle;       /* 1: another order each epoch, from seed and epoch alone */
  uint64_t seed;         /* of the shuffle, the same on every rank */
} acc_sharding;
#define ACC_SHARDING_INIT \
  { sizeof(acc_sharding), 1, 0, 0, 1, 0, 0 }
ACC_API void acc_sharding_init(acc_sharding* sharding, size_t size);

/* This rank's batches of samples 0 .. samples - 1 in that epoch, as Accelerate's data loaders shard
 * them. Doesn't communicate. ACC_INVALID_ARGUMENT: also more than 2^40 samples. */
ACC_API acc_status acc_shard(const acc_comm* comm, uint64_t samples, const acc_sharding* sharding,
                             uint64_t epoch, acc_batches** batches);
ACC_API size_t acc_batches_count(const acc_batches* batches);
/* The samples of a batch, valid as long as the handle; *count: how many. NULL and 0 where there is
 * no such batch. */
ACC_API const uint64_t* acc_batches_get(const acc_batches* batches, size_t batch, size_t* count);
/* How many samples the last step has over all ranks, if it isn't full, else 0: what is behind them in
 * gathered results is there for the second time. */
ACC_API size_t acc_batches_remainder(const acc_batches* batches);
ACC_API void acc_batches_free(acc_batches* batches);

/* ---- parameters and gradients ---- */

/* A trained tensor. In an array of them each begins with its size. The memory is the caller's and
 * outlives the reducer. */
typedef struct acc_parameter {
  size_t size;          /* sizeof(acc_parameter) of the caller */
  const char* name;     /* the same on every rank, used once: for messages and checkpoints */
  void* values;         /* ACC_F16, ACC_BF16, ACC_F32 or ACC_F64 */
  void* gradient;       /* of the same type and shape; NULL: the reducer finds the place */
  acc_dtype dtype;      /* of both */
  int32_t device;       /* the number of the CUDA device whose memory it is; -1: host */
  const int64_t* shape; /* `dims` extents, outermost first */
  size_t dims;
} acc_parameter;

typedef struct acc_reducer_config {
  size_t size;         /* sizeof(acc_reducer_config) of the caller */
  size_t bucket_bytes; /* gradients travel in pieces of so many bytes; 0: 25 MiB */
  int32_t sharded;     /* 1: each rank keeps 1/n of the gradients and of the optimizer's state */
  int32_t compression; /* as what f32 and f64 travel: ACC_F16, ACC_BF16; ACC_DEFAULT: as they are */
  int32_t find_unused; /* 1: parameters without a gradient in a pass are no mistake */
} acc_reducer_config;
#define ACC_REDUCER_CONFIG_INIT \
  { sizeof(acc_reducer_config), 0, 0, ACC_DEFAULT, 0 }
ACC_API void acc_reducer_config_init(acc_reducer_config* config, size_t size);

/* Compares names, types and shapes over the ranks, and gives all ranks rank 0's values. Collective.
 * `config`: NULL for the defaults. ACC_MISMATCH, ACC_INVALID_ARGUMENT and those of broadcasts. */
ACC_API acc_status acc_reducer_create(acc_comm* comm, const acc_parameter* parameters, size_t count,
                                      const acc_reducer_config* config, acc_reducer** reducer);
/* Where the gradient of a parameter is. It may move once, in the first acc_reducer_finish: ask again
 * for each pass. NULL where there is no such parameter. */
ACC_API void* acc_reducer_gradient(const acc_reducer* reducer, size_t parameter);
/* Ends the step, so on all ranks alike: with a sharded reducer a rank that calls it alone makes the
 * next pass a mismatch, or without ACC_CHECK a hang. So does acc_optimizer_zero_grad. */
ACC_API acc_status acc_reducer_zero(acc_reducer* reducer);
/* A backward pass: the gradient of each parameter is added to, then marked ready, upon which it
 * begins to travel; after finish the gradients are the means over all ranks. */
ACC_API acc_status acc_reducer_ready(acc_reducer* reducer, size_t parameter);
ACC_API acc_status acc_reducer_finish(acc_reducer* reducer);
/* Several passes may come before a step; each adds to the means of the one before. With a sharded
 * reducer the first step tells how many: before the gradients of a pass more than in any step before
 * are added to, this makes the means whole on every rank. Without it acc_reducer_ready refuses,
 * ACC_INVALID_ARGUMENT. A step ends with acc_optimizer_step or acc_reducer_zero. Collective if the
 * means are scattered, else without effect. */
ACC_API acc_status acc_reducer_gather_means(acc_reducer* reducer);
/* 0: the passes that follow only add up, on every rank, until it is 1 again. */
ACC_API acc_status acc_reducer_sync(acc_reducer* reducer, int32_t on);
ACC_API void acc_reducer_free(acc_reducer* reducer);

/* ---- optimizers ---- */

typedef struct acc_sgd { /* as torch.optim.SGD */
  size_t size;           /* sizeof(acc_sgd) of the caller */
  double learning_rate, momentum, dampening, weight_decay;
  int32_t nesterov;
} acc_sgd;
#define ACC_SGD_INIT \
  { sizeof(acc_sgd), 1e-3, 0, 0, 0, 0 }
ACC_API void acc_sgd_init(acc_sgd* options, size_t size);

typedef struct acc_adamw { /* as torch.optim.AdamW */
  size_t size;             /* sizeof(acc_adamw) of the caller */
  double learning_rate, beta1, beta2, epsilon, weight_decay;
} acc_adamw;
#define ACC_ADAMW_INIT \
  { sizeof(acc_adamw), 1e-3, 0.9, 0.999, 1e-8, 1e-2 }
ACC_API void acc_adamw_init(acc_adamw* options, size_t size);

/* Of all parameters of the reducer, which outlives it. */
ACC_API acc_status acc_sgd_create(acc_reducer* reducer, const acc_sgd* options,
                                  acc_optimizer** optimizer);
ACC_API acc_status acc_adamw_create(acc_reducer* reducer, const acc_adamw* options,
                                    acc_optimizer** optimizer);
/* Collective with a sharded reducer. Parameters that no rank used since the gradients were zeroed
 * (find_unused) stay as they are. */
ACC_API acc_status acc_optimizer_step(acc_optimizer* optimizer);
ACC_API acc_status acc_optimizer_zero_grad(acc_optimizer* optimizer);
ACC_API double acc_optimizer_learning_rate(const acc_optimizer* optimizer);
ACC_API acc_status acc_optimizer_set_learning_rate(acc_optimizer* optimizer, double rate);
ACC_API uint64_t acc_optimizer_steps(const acc_optimizer* optimizer);
ACC_API void acc_optimizer_free(acc_optimizer* optimizer);

/* Scales all gradients so that their norm over all parameters (the square root of the sum of the
 * squares) is at most max_norm; infinite or NaN ones are left. *norm (or NULL): what it was. */
ACC_API acc_status acc_clip_grad_norm(acc_optimizer* optimizer, double max_norm, double* norm);
/* Each element into [-limit, limit]. */
ACC_API acc_status acc_clip_grad_value(acc_optimizer* optimizer, double limit);

/* ---- checkpoints ---- */

/* What is to be saved or filled: tensors, an optimizer with its reducer's parameters, and texts. It
 * holds pointers; what they point to lives longer. */
ACC_API acc_status acc_state_create(acc_state** state);
/* The parameters of the optimizer and its own state. `name`: NULL, or one for each of several. */
ACC_API acc_status acc_state_add_optimizer(acc_state* state, acc_optimizer* optimizer,
                                           const char* name);
/* A tensor of any type (`gradient` isn't looked at). `sharded` 1: each rank holds a piece along the
 * first dimension; 0: all hold the same, and rank 0 writes it. */
ACC_API acc_status acc_state_add_tensor(acc_state* state, const acc_parameter* tensor,
                                        int32_t sharded);
/* A text in UTF-8, which needn't end with a zero. `per_rank` 1: each rank's own; 0: rank 0's. For the next
 * save; one of the same name is replaced. An optimizer of the state has the text "optimizer", or
 * "optimizer_NAME", of rank 0: ACC_INVALID_ARGUMENT from the later one of both calls. */
ACC_API acc_status acc_state_set_text(acc_state* state, const char* name, const void* text,
                                      size_t bytes, int32_t per_rank);
/* Of what was loaded, or set. NULL and 0 where there is none of this name. */
ACC_API const void* acc_state_text(const acc_state* state, const char* name, int32_t per_rank,
                                   size_t* bytes);
ACC_API void acc_state_free(acc_state* state);

typedef struct acc_checkpointer_config {
  size_t size;        /* sizeof(acc_checkpointer_config) of the caller */
  const char* folder; /* for checkpoint_<number>, seen by all ranks; NULL: "checkpoints" */
  int32_t keep_last;  /* older ones are removed once a new one is complete; 0: all stay */
  int32_t async;      /* 1: save copies and returns, a thread writes */
} acc_checkpointer_config;
#define ACC_CHECKPOINTER_CONFIG_INIT \
  { sizeof(acc_checkpointer_config), NULL, 0, 0 }
ACC_API void acc_checkpointer_config_init(acc_checkpointer_config* config, size_t size);

/* All of these are collective, and have the status of every rank's part: ACC_SYSTEM (with the path),
 * ACC_CORRUPT, ACC_INVALID_ARGUMENT; the communicator stays usable after them. */
ACC_API acc_status acc_checkpointer_create(acc_comm* comm, const acc_checkpointer_config* config,
                                           acc_checkpointer** checkpointer);
/* As checkpoint_<number>, whole or not at all, whatever dies meanwhile. A number above INT64_MAX is
 * ACC_INVALID_ARGUMENT, and so is any after another run has written to the folder since acc_load.
 */
ACC_API acc_status acc_save(acc_checkpointer* checkpointer, uint64_t number, acc_state* state);
/* Fills the tensors and texts of `state` from the newest checkpoint that is whole. *found: 0 where
 * there is none yet, and nothing was changed; *number: of what was loaded. */
ACC_API acc_status acc_load(acc_checkpointer* checkpointer, acc_state* state, int32_t* found,
                            uint64_t* number);
/* Until a save with `async` is complete. */
ACC_API acc_status acc_checkpointer_wait(acc_checkpointer* checkpointer);
ACC_API void acc_checkpointer_free(acc_checkpointer* checkpointer);

#ifdef __cplusplus
}
#endif
