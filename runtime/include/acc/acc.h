#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * The C interface of the runtime library (libacc.so): process groups of a distributed program, for
 * C and for languages that call C. The C++ one is acc/process_group.hpp; what the operations mean
 * is the same.
 *
 * Training loops: acc/acc_training.h (sharding, mean gradients, optimizers, checkpoints).
 *
 * Every function that can fail returns an acc_status; acc_last_error() then says in words what
 * happened. After any status but ACC_INVALID_ARGUMENT and ACC_CORRUPT the communicator is broken
 * for good: each later call fails immediately with the first cause. (But not after ACC_TIMED_OUT of
 * acc_work_wait, whose call goes on, nor ACC_SYSTEM of acc_split and acc_sub_group, nor ACC_MISMATCH
 * of their names, nor what acc/acc_training.h says of checkpoints.) ACC_INVALID_ARGUMENT is about
 * this rank alone: the others, whose arguments were in order, are in the call and wait for this rank
 * to make it as well.
 *
 * Counts are elements, a count of 0 is legal. Pointers are host memory on the backend "cpu" and
 * device memory on "nccl". On "cpu" a call blocks until it is done; on "nccl" it is enqueued on
 * acc_call.stream and returns immediately. One thread at a time calls with a communicator (two at once
 * are reported as ACC_MISMATCH at best); acc_abort may come from any thread at any time. A process that
 * was forked after acc_init can't use its parent's. A thread in a call can't be cancelled: pthread_cancel
 * would end the process (acc_abort makes its call fail). All ranks call the same operations in the same
 * order with the same count, type, reduction and root.
 *
 * Handles (acc_comm, acc_work, acc_buffer, acc_objects) belong to the caller, who gives them back
 * with the function that ends in _free, or acc_finalize; NULL is legal there. What a handle shows
 * (pointers, texts) lives as long as the handle.
 *
 * A struct that the caller fills begins with its size: an older program goes on to work with a
 * newer library.
 */

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ACC_API __attribute__((visibility("default")))
#else
#define ACC_API
#endif

/* Of this header; of the library: acc_version(). MAJOR * 10000 + MINOR * 100 + PATCH. */
#define ACC_VERSION 100

typedef struct acc_comm acc_comm;       /* one rank's side of a group */
typedef struct acc_work acc_work;       /* a call that was started */
typedef struct acc_buffer acc_buffer;   /* memory that needs no copies */
typedef struct acc_objects acc_objects; /* received byte strings */

typedef int32_t acc_status;
enum {
  ACC_OK = 0,
  ACC_TIMED_OUT = 1,        /* a rank did not reach the call before its deadline */
  ACC_PEER_LOST = 2,        /* a process of the group ended */
  ACC_MISMATCH = 3,         /* the calls of the ranks differ */
  ACC_ABORTED = 4,          /* acc_abort was called, here or on another rank */
  ACC_INVALID_ARGUMENT = 5, /* this call was wrong and had no effect */
  ACC_SYSTEM = 6,           /* memory, files, sockets */
  ACC_CORRUPT = 7,          /* what was read isn't what it should be */
  ACC_CUDA = 8,
  ACC_NCCL = 9,
  ACC_INTERNAL = 10 /* a bug of the library; please report it with acc_last_error() */
};

/* Element types, numbered as NCCL numbers them. */
typedef int32_t acc_dtype;
enum {
  ACC_I8 = 0,
  ACC_U8 = 1,
  ACC_I32 = 2,
  ACC_U32 = 3,
  ACC_I64 = 4,
  ACC_U64 = 5,
  ACC_F16 = 6,
  ACC_F32 = 7,
  ACC_F64 = 8,
  ACC_BF16 = 9
};

/* Reductions, numbered as NCCL numbers them. ACC_AVG: the sum divided by the number of ranks. */
typedef int32_t acc_op;
enum { ACC_SUM = 0, ACC_PROD = 1, ACC_MAX = 2, ACC_MIN = 3, ACC_AVG = 4 };

typedef int32_t acc_backend_kind;
enum { ACC_BACKEND_AUTOMATIC = 0, ACC_BACKEND_CPU = 1, ACC_BACKEND_NCCL = 2 };

#define ACC_DEFAULT (-1) /* of times and switches: as the environment says, else the built-in one \
                          */

/* How a communicator is made. Fill it by ACC_CONFIG_INIT or acc_config_init, then change fields. */
typedef struct acc_config {
  size_t size;              /* sizeof(acc_config) of the caller */
  acc_backend_kind backend; /* automatic: nccl where ACC_BACKEND says so or a CUDA device is this
                               rank's, else cpu */
  int32_t check;            /* do all ranks call the same thing? 0, 1, ACC_DEFAULT (cpu: 1) */
  int64_t init_timeout_ms;  /* for all ranks to come; 0: for ever; ACC_DEFAULT: 300 s */
  int64_t timeout_ms;       /* of an operation; 0: for ever; ACC_DEFAULT: 1800 s cpu, 600 s nccl */
  const char* name;         /* in messages; the same on all ranks; NULL: "world" */
} acc_config;
#define ACC_CONFIG_INIT \
  { sizeof(acc_config), ACC_BACKEND_AUTOMATIC, ACC_DEFAULT, ACC_DEFAULT, ACC_DEFAULT, NULL }

/* Of one call; NULL in its place: all defaults. */
typedef struct acc_call {
  size_t size;        /* sizeof(acc_call) of the caller */
  int64_t timeout_ms; /* 0: for ever; ACC_DEFAULT: the communicator's. (Of acc_work_wait 0 is: ask) */
  void* stream;       /* cuda: the stream the call is ordered with; NULL: the legacy stream */
} acc_call;
#define ACC_CALL_INIT \
  { sizeof(acc_call), ACC_DEFAULT, NULL }

/* For languages without the initializers: `size` is that of the struct as the caller knows it. */
ACC_API void acc_config_init(acc_config* config, size_t size);
ACC_API void acc_call_init(acc_call* call, size_t size);

/* ---- library and errors; these never fail ---- */

/* The library's MAJOR * 10000 + MINOR * 100 + PATCH. */
ACC_API int32_t acc_version(void);
/* "timed_out". */
ACC_API const char* acc_status_name(acc_status status);
/* What the last failed call of this thread failed with, in words; until the next one fails. Never
 * NULL. */
ACC_API const char* acc_last_error(void);
/* The operation of that call ("all_reduce"; "" if none) and its sequence number (0 if none). */
ACC_API const char* acc_last_error_operation(void);
ACC_API uint64_t acc_last_error_sequence(void);
/* The ranks to blame. Writes at most `capacity` of them and returns how many there are; 0: not
 * known, or no rank's fault. `ranks` may be NULL with capacity 0. */
ACC_API size_t acc_last_error_ranks(int32_t* ranks, size_t capacity);

/* ---- communicators ---- */

/* Joins all processes of the job, by RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT as acc-launch and
 * torchrun set them, or the variables of Open MPI, MPICH and Slurm; with none of them: alone.
 * Blocks until all have come. `config`: NULL for the defaults. *comm: NULL on failure.
 * Collective: all ranks form their communicators in the same order, not in two threads at once.
 * ACC_TIMED_OUT (who hasn't come), ACC_PEER_LOST, ACC_MISMATCH (of names or `check`),
 * ACC_INVALID_ARGUMENT, ACC_SYSTEM, ACC_NCCL. */
ACC_API acc_status acc_init(const acc_config* config, acc_comm** comm);
/* This process alone. */
ACC_API acc_status acc_init_single(const acc_config* config, acc_comm** comm);
/* `size` communicators for as many threads of this process; comms: an array of `size`. */
ACC_API acc_status acc_init_threads(int32_t size, const acc_config* config, acc_comm** comms);
/* Leaves the group, after what was begun is done (each call within its limit). */
ACC_API void acc_finalize(acc_comm* comm);

/* Facts; -1 (texts: "") where comm is NULL. */
ACC_API int32_t acc_rank(const acc_comm* comm);
ACC_API int32_t acc_size(const acc_comm* comm);
ACC_API int32_t acc_local_rank(const acc_comm* comm); /* among the ranks of this node */
ACC_API int32_t acc_local_size(const acc_comm* comm);
ACC_API const char* acc_name(const acc_comm* comm);
ACC_API const char* acc_backend(const acc_comm* comm); /* "cpu", "nccl" */
ACC_API int32_t acc_is_broken(const acc_comm* comm);

/* Groups of the ranks with the same color, in the order of (key, rank), as MPI_Comm_split.
 * Collective. color < 0: none, *part is NULL then. `name`: in messages; NULL: made up. */
ACC_API acc_status acc_split(acc_comm* comm, int32_t color, int32_t key, const char* name,
                             acc_comm** part);
/* The group of these ranks in this order; *part is NULL on the others. Collective over all. */
ACC_API acc_status acc_sub_group(acc_comm* comm, const int32_t* ranks, size_t count,
                                 const char* name, acc_comm** part);

/* Breaks the communicator here and tells the peers: every waiter wakes within 10 ms with
 * ACC_ABORTED. From any thread; more than once is as once. `why`: NULL or a word for the message.
 */
ACC_API void acc_abort(acc_comm* comm, const char* why);

/* ---- operations ----
 * ACC_TIMED_OUT, ACC_PEER_LOST, ACC_MISMATCH, ACC_ABORTED, ACC_INVALID_ARGUMENT, ACC_SYSTEM, on
 * nccl also ACC_CUDA and ACC_NCCL. In place: all_reduce, reduce with send == recv; all_gather with
 * send == recv + rank * count; reduce_scatter with recv == send + rank * count; any other overlap
 * is ACC_INVALID_ARGUMENT. `how`: NULL for the defaults. On cpu every rank gets the same bits, which
 * don't depend on the length of the message (but for the sign and payload of a NaN that comes of
 * several). ACC_MAX and ACC_MIN are NaN where any input is; sums and products of integers wrap
 * around, and ACC_AVG divides what wrapped. */

/* send, recv: count elements each. */
ACC_API acc_status acc_all_reduce(acc_comm* comm, const void* send, void* recv, size_t count,
                                  acc_dtype dtype, acc_op op, const acc_call* how);
/* recv: count elements, touched on root alone. */
ACC_API acc_status acc_reduce(acc_comm* comm, const void* send, void* recv, size_t count,
                              acc_dtype dtype, acc_op op, int32_t root, const acc_call* how);
/* data: count elements, read on root, written on the others. */
ACC_API acc_status acc_broadcast(acc_comm* comm, void* data, size_t count, acc_dtype dtype,
                                 int32_t root, const acc_call* how);
/* send: count elements; recv: size * count, by rank. */
ACC_API acc_status acc_all_gather(acc_comm* comm, const void* send, void* recv, size_t count,
                                  acc_dtype dtype, const acc_call* how);
/* counts: one for each rank, the same on all; send: counts[rank]; recv: all, one behind the other.
 */
ACC_API acc_status acc_all_gather_v(acc_comm* comm, const void* send, void* recv,
                                    const size_t* counts, acc_dtype dtype, const acc_call* how);
/* As all_gather, with recv touched on root alone (else it may be NULL). */
ACC_API acc_status acc_gather(acc_comm* comm, const void* send, void* recv, size_t count,
                              acc_dtype dtype, int32_t root, const acc_call* how);
ACC_API acc_status acc_gather_v(acc_comm* comm, const void* send, void* recv, const size_t* counts,
                                acc_dtype dtype, int32_t root, const acc_call* how);
/* send: size * count elements, read on root alone (else it may be NULL); recv: count. */
ACC_API acc_status acc_scatter(acc_comm* comm, const void* send, void* recv, size_t count,
                               acc_dtype dtype, int32_t root, const acc_call* how);
/* counts: one for each rank, the same on all; recv: counts[rank]. */
ACC_API acc_status acc_scatter_v(acc_comm* comm, const void* send, void* recv, const size_t* counts,
                                 acc_dtype dtype, int32_t root, const acc_call* how);
/* send: size * count elements; recv: count, this rank's part of the result. */
ACC_API acc_status acc_reduce_scatter(acc_comm* comm, const void* send, void* recv, size_t count,
                                      acc_dtype dtype, acc_op op, const acc_call* how);
/* counts: one for each rank, the same on all; send: all of them; recv: counts[rank]. */
ACC_API acc_status acc_reduce_scatter_v(acc_comm* comm, const void* send, void* recv,
                                        const size_t* counts, acc_dtype dtype, acc_op op,
                                        const acc_call* how);
/* send, recv: size * count elements; part r of send goes to rank r. */
ACC_API acc_status acc_all_to_all(acc_comm* comm, const void* send, void* recv, size_t count,
                                  acc_dtype dtype, const acc_call* how);
/* send_counts[r] elements go to rank r, recv_counts[r] come from it; the parts stand in the order of
 * the ranks. On cpu ACC_MISMATCH where two ranks say different things of each other. */
ACC_API acc_status acc_all_to_all_v(acc_comm* comm, const void* send, const size_t* send_counts,
                                    void* recv, const size_t* recv_counts, acc_dtype dtype,
                                    const acc_call* how);
/* Returns on no rank before every rank has entered. */
ACC_API acc_status acc_barrier(acc_comm* comm, const acc_call* how);
/* Between two ranks; the others don't take part. Messages of a pair keep their order. A send of more
 * than 15 KiB may wait until it is received: a ring of ranks that all send before they receive works
 * with less and may time out with more; acc_sendrecv has no such limit. */
ACC_API acc_status acc_send(acc_comm* comm, const void* data, size_t count, acc_dtype dtype,
                            int32_t to, const acc_call* how);
ACC_API acc_status acc_recv(acc_comm* comm, void* data, size_t count, acc_dtype dtype, int32_t from,
                            const acc_call* how);

/* Both at the same time. send and recv must not overlap: ACC_INVALID_ARGUMENT. */
ACC_API acc_status acc_sendrecv(acc_comm* comm, const void* send, size_t send_count, int32_t to,
                                void* recv, size_t recv_count, int32_t from, acc_dtype dtype,
                                const acc_call* how);

/* ---- asynchronous forms: they return immediately ----
 * On cpu a thread of the communicator carries them out in their order. The buffers belong to the
 * communicator until the work is done. *work: NULL on failure. */
ACC_API acc_status acc_all_reduce_async(acc_comm* comm, const void* send, void* recv, size_t count,
                                        acc_dtype dtype, acc_op op, const acc_call* how,
                                        acc_work** work);
ACC_API acc_status acc_reduce_async(acc_comm* comm, const void* send, void* recv, size_t count,
                                    acc_dtype dtype, acc_op op, int32_t root, const acc_call* how,
                                    acc_work** work);
ACC_API acc_status acc_broadcast_async(acc_comm* comm, void* data, size_t count, acc_dtype dtype,
                                       int32_t root, const acc_call* how, acc_work** work);
ACC_API acc_status acc_all_gather_async(acc_comm* comm, const void* send, void* recv, size_t count,
                                        acc_dtype dtype, const acc_call* how, acc_work** work);
ACC_API acc_status acc_gather_async(acc_comm* comm, const void* send, void* recv, size_t count,
                                    acc_dtype dtype, int32_t root, const acc_call* how,
                                    acc_work** work);
ACC_API acc_status acc_scatter_async(acc_comm* comm, const void* send, void* recv, size_t count,
                                     acc_dtype dtype, int32_t root, const acc_call* how,
                                     acc_work** work);
ACC_API acc_status acc_reduce_scatter_async(acc_comm* comm, const void* send, void* recv,
                                            size_t count, acc_dtype dtype, acc_op op,
                                            const acc_call* how, acc_work** work);
ACC_API acc_status acc_all_to_all_async(acc_comm* comm, const void* send, void* recv, size_t count,
                                        acc_dtype dtype, const acc_call* how, acc_work** work);
ACC_API acc_status acc_barrier_async(acc_comm* comm, const acc_call* how, acc_work** work);
ACC_API acc_status acc_send_async(acc_comm* comm, const void* data, size_t count, acc_dtype dtype,
                                  int32_t to, const acc_call* how, acc_work** work);
ACC_API acc_status acc_recv_async(acc_comm* comm, void* data, size_t count, acc_dtype dtype,
                                  int32_t from, const acc_call* how, acc_work** work);

/* Waits for the call and returns what came of it; after timeout_ms (0: immediately; ACC_DEFAULT: never,
 * as the call has a limit of its own) ACC_TIMED_OUT, upon which the call goes on and the communicator
 * is as before. Any thread. */
ACC_API acc_status acc_work_wait(acc_work* work, int64_t timeout_ms);
/* *done: 1 when the call has ended, successfully or not. */
ACC_API acc_status acc_work_done(acc_work* work, int32_t* done);
/* Neither waits nor cancels. */
ACC_API void acc_work_free(acc_work* work);

/* ---- objects: byte strings of any length ---- */

/* *objects: one for each rank, in their order. */
ACC_API acc_status acc_all_gather_object(acc_comm* comm, const void* mine, size_t bytes,
                                         acc_objects** objects);
/* None on all ranks but root. */
ACC_API acc_status acc_gather_object(acc_comm* comm, const void* mine, size_t bytes, int32_t root,
                                     acc_objects** objects);
/* One, root's; what the others pass is not looked at. */
ACC_API acc_status acc_broadcast_object(acc_comm* comm, const void* roots, size_t bytes,
                                        int32_t root, acc_objects** objects);
/* One, this rank's; roots, bytes: arrays of one for each rank, read on root alone. */
ACC_API acc_status acc_scatter_object(acc_comm* comm, const void* const* roots, const size_t* bytes,
                                      int32_t root, acc_objects** objects);
ACC_API size_t acc_objects_count(const acc_objects* objects);
/* NULL and 0 where there is no such index. A zero byte, which isn't counted, follows each object.
 */
ACC_API const void* acc_objects_data(const acc_objects* objects, size_t index);
ACC_API size_t acc_objects_size(const acc_objects* objects, size_t index);
ACC_API void acc_objects_free(acc_objects* objects);

/* ---- shared memory ---- */

/* Memory, zeroed, that the other processes of this node can reach (nccl: registered): reductions of
 * it need no copies. Collective, the same size on every rank. To be freed before acc_finalize. */
ACC_API acc_status acc_allocate_shared(acc_comm* comm, size_t bytes, acc_buffer** buffer);
ACC_API void* acc_buffer_data(const acc_buffer* buffer);
ACC_API size_t acc_buffer_size(const acc_buffer* buffer); /* bytes */
ACC_API void acc_buffer_free(acc_buffer* buffer);

/* ---- for bug reports ---- */

/* One object: the last 2,048 calls of this rank as JSON lines, oldest first. Any thread. */
ACC_API acc_status acc_flight_record(const acc_comm* comm, acc_objects** lines);

/* ---- what a worker tells the agent that supervises it ----
 * Without an agent these do nothing. Any thread; they return immediately. */

/* 1: an agent started this process and accepts reports. */
ACC_API int32_t acc_agent_present(void);
ACC_API void acc_agent_heartbeat(uint64_t step);    /* alive, at this step */
ACC_API void acc_agent_checkpoint(uint64_t step);   /* a checkpoint of this step is complete */
/* A part that may take longer than a step: until its end no missing heartbeat counts as a hang, unless it
 * takes longer than limit_ms (0, ACC_DEFAULT: any time). Sections may be nested. */
ACC_API void acc_agent_section_begin(const char* name, int64_t limit_ms);
ACC_API void acc_agent_section_end(void);
ACC_API void acc_agent_no_restart(const char* why); /* starting again would not help */

/* May this process still make something valid for its job? Ask right before a written checkpoint is
 * renamed to its place; blocks for some milliseconds, timeout_ms at most (ACC_DEFAULT: 60 s).
 * 1: yes, or no acc-launch started this process; 0: no, a later attempt has begun without this
 * machine; -1: no answer in time (acc_last_error), which means no. acc/agent.hpp says more.
 */
ACC_API int32_t acc_agent_is_current(int64_t timeout_ms);

#ifdef __cplusplus
}
#endif
