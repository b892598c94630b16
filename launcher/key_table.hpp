#pragma once

#include "launcher/config_keys.hpp"

#include <array>

/// The rows. Order: as shown by --help.
namespace acc::launcher {

// clang-format off
inline constexpr KeyRow kKeyRows[] = {
  // ---- job
  {.name = "config_file", .group = Group::job, .place = Place::nowhere, .type = Type::text, .help = "config file; without it Accelerate's default_config.yaml, if there is one"},
  {.name = "script", .group = Group::job, .place = Place::top, .type = Type::text, .help = "what to run, if the command line names no script", .is_flag = false},
  {.name = "script_args", .group = Group::job, .place = Place::top, .type = Type::list, .help = "arguments of `script`: a list of words", .is_flag = false},
  {.name = "module", .group = Group::job, .place = Place::top, .type = Type::flag, .initial = "false", .help = "the script is a Python module: python -m SCRIPT", .letter = 'm'},
  {.name = "no_python", .group = Group::job, .place = Place::top, .type = Type::flag, .initial = "false", .help = "run the script itself, without Python"},
  {.name = "debug", .group = Group::job, .place = Place::top, .type = Type::flag, .initial = "false", .variable = "ACCELERATE_DEBUG_MODE", .help = "Accelerate checks each collective (slower)"},
  {.name = "quiet", .group = Group::job, .place = Place::top, .type = Type::flag, .initial = "false", .help = "no lines of our own but errors and the report", .letter = 'q'},
  {.name = "compute_environment", .group = Group::job, .place = Place::top, .type = Type::text, .initial = "LOCAL_MACHINE", .choices = "LOCAL_MACHINE AMAZON_SAGEMAKER", .help = "only LOCAL_MACHINE is supported", .is_flag = false},
  // ---- processes
  {.name = "num_processes", .group = Group::processes, .place = Place::top, .type = Type::integer, .help = "workers in the whole job, over all machines"},
  {.name = "distributed_type", .group = Group::processes, .place = Place::top, .type = Type::text, .choices = "NO MULTI_CPU MULTI_GPU MULTI_NPU MULTI_MLU MULTI_SDAA MULTI_MUSA MULTI_XPU MULTI_HPU MULTI_NEURON DEEPSPEED FSDP XLA MEGATRON_LM", .help = "mode; every config file must have it", .is_flag = false},
  {.name = "cpu", .group = Group::processes, .place = Place::nowhere, .type = Type::flag, .initial = "false", .variable = "ACCELERATE_USE_CPU", .help = "use the CPU, whatever the config file says (its key is use_cpu)"},
  {.name = "use_cpu", .group = Group::processes, .place = Place::top, .type = Type::flag, .initial = "false", .variable = "ACCELERATE_USE_CPU", .help = "use the CPU", .is_flag = false},
  {.name = "multi_gpu", .group = Group::processes, .place = Place::nowhere, .type = Type::flag, .initial = "false", .help = "one worker a GPU"},
  {.name = "use_deepspeed", .group = Group::processes, .place = Place::nowhere, .type = Type::flag, .initial = "false", .variable = "ACCELERATE_USE_DEEPSPEED", .help = "DeepSpeed (--help deepspeed)"},
  {.name = "use_fsdp", .group = Group::processes, .place = Place::nowhere, .type = Type::flag, .initial = "false", .variable = "ACCELERATE_USE_FSDP", .help = "fully sharded data parallel (--help fsdp)"},
  {.name = "use_megatron_lm", .group = Group::processes, .place = Place::nowhere, .type = Type::flag, .initial = "false", .variable = "ACCELERATE_USE_MEGATRON_LM", .help = "Megatron-LM (--help megatron)"},
  {.name = "use_parallelism_config", .group = Group::processes, .place = Place::nowhere, .type = Type::flag, .initial = "false", .variable = "ACCELERATE_USE_PARALLELISM_CONFIG", .help = "several kinds of parallelism (--help parallelism); needs --use_fsdp"},
  {.name = "gpu_ids", .group = Group::processes, .place = Place::top, .type = Type::text, .variable = "CUDA_VISIBLE_DEVICES", .help = "devices to use on this machine, as 0,1,4; all = all"},
  {.name = "num_cpu_threads_per_process", .group = Group::processes, .place = Place::top, .type = Type::integer, .variable = "OMP_NUM_THREADS", .help = "threads of a worker; default: OMP_NUM_THREADS, else 1, on the CPU the cores divided by the workers"},
  {.name = "enable_cpu_affinity", .group = Group::processes, .place = Place::top, .type = Type::flag, .initial = "false", .variable = "ACCELERATE_CPU_AFFINITY", .help = "Accelerate binds each worker to the cores near its GPU"},
  // ---- machines
  {.name = "num_machines", .group = Group::machines, .place = Place::top, .type = Type::integer, .help = "machines in the job"},
  {.name = "machine_rank", .group = Group::machines, .place = Place::top, .type = Type::integer, .help = "number of this machine, from 0", .aliases = "node_rank"},
  {.name = "main_process_ip", .group = Group::machines, .place = Place::top, .type = Type::text, .variable = "MASTER_ADDR", .help = "address of machine 0", .aliases = "master_addr"},
  {.name = "main_process_port", .group = Group::machines, .place = Place::top, .type = Type::integer, .variable = "MASTER_PORT", .help = "port there; default 29500, 0 = a free one", .aliases = "master_port"},
  {.name = "same_network", .group = Group::machines, .place = Place::top, .type = Type::flag, .initial = "false", .help = "all machines are on one local network"},
  {.name = "rdzv_backend", .group = Group::machines, .place = Place::top, .type = Type::text, .initial = "static", .help = "how machines meet: static, c10d, tcp, etcd"},
  {.name = "rdzv_conf", .group = Group::machines, .place = Place::top, .type = Type::text, .initial = "", .help = "options of the rendezvous: k=v,k=v"},
  {.name = "role", .group = Group::machines, .place = Place::top, .type = Type::text, .initial = "default", .variable = "ROLE_NAME", .help = "name of the workers, also in front of their lines"},
  // ---- precision
  {.name = "mixed_precision", .group = Group::precision, .place = Place::top, .type = Type::text, .choices = "no fp16 bf16 fp8", .variable = "ACCELERATE_MIXED_PRECISION", .help = "quote 'no' in a config file: YAML reads it as false"},
  {.name = "dynamo_backend", .group = Group::precision, .place = Place::dynamo_config, .type = Type::text, .choices = "no eager aot_eager inductor aot_ts_nvfuser nvprims_nvfuser cudagraphs ofi fx2trt onnxrt tensorrt aot_torchxla_trace_once torhchxla_trace_once tvm", .variable = "ACCELERATE_DYNAMO_BACKEND", .help = "torch.compile's backend"},
  {.name = "dynamo_mode", .group = Group::precision, .place = Place::dynamo_config, .type = Type::text, .initial = "default", .choices = "default reduce-overhead max-autotune", .variable = "ACCELERATE_DYNAMO_MODE", .help = "what to optimize for"},
  {.name = "dynamo_use_fullgraph", .group = Group::precision, .place = Place::dynamo_config, .type = Type::flag, .initial = "false", .variable = "ACCELERATE_DYNAMO_USE_FULLGRAPH", .help = "one graph or an error"},
  {.name = "dynamo_use_dynamic", .group = Group::precision, .place = Place::dynamo_config, .type = Type::flag, .initial = "false", .variable = "ACCELERATE_DYNAMO_USE_DYNAMIC", .help = "trace with dynamic shapes"},
  {.name = "dynamo_use_regional_compilation", .group = Group::precision, .place = Place::dynamo_config, .type = Type::flag, .initial = "false", .variable = "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", .help = "compile repeated blocks once"},
  // ---- restart
  {.name = "max_restarts", .group = Group::restart, .place = Place::top, .type = Type::integer, .initial = "0", .variable = "TORCHELASTIC_MAX_RESTARTS", .help = "restarts of the whole group after a failure"},
  {.name = "restart_delay", .group = Group::restart, .place = Place::top, .type = Type::duration, .initial = "1", .help = "base of the delays 0, 1, 2, 4 … times it; 0 = never wait"},
  {.name = "restart_delay_max", .group = Group::restart, .place = Place::top, .type = Type::duration, .initial = "60", .help = "longest delay before a restart"},
  {.name = "healthy_time", .group = Group::restart, .place = Place::top, .type = Type::duration, .initial = "60", .help = "a round that lived so long was healthy: the next delay is 0 again"},
  {.name = "restart_refill", .group = Group::restart, .place = Place::top, .type = Type::duration, .initial = "0", .help = "each healthy time of this length gives one restart back; 0 = never"},
  {.name = "max_no_progress", .group = Group::restart, .place = Place::top, .type = Type::integer, .initial = "0", .help = "stop after so many failed rounds in a row without progress; 0 = off"},
  {.name = "progress_file", .group = Group::restart, .place = Place::top, .type = Type::text, .initial = "", .help = "a change of this file is progress; without it a healthy round is"},
  {.name = "no_restart_codes", .group = Group::restart, .place = Place::top, .type = Type::codes, .initial = "", .help = "exit codes that end the job at once, as 2,64-78; a signal counts as 128 + its number"},
  {.name = "monitor_interval", .group = Group::restart, .place = Place::top, .type = Type::number, .initial = "0.1", .help = "accepted, without effect: workers are never polled"},
  // ---- stop
  {.name = "grace", .group = Group::stop, .place = Place::top, .type = Type::duration, .initial = "15", .help = "time from SIGTERM to SIGKILL", .aliases = "shutdown_timeout"},
  {.name = "preempt_signals", .group = Group::stop, .place = Place::top, .type = Type::signals, .initial = "", .help = "these signals end the job with code 75 (requeue), as TERM,USR1"},
  {.name = "preempt_grace", .group = Group::stop, .place = Place::top, .type = Type::duration, .initial = "30", .help = "grace after one of them"},
  {.name = "give_up", .group = Group::stop, .place = Place::top, .type = Type::duration, .initial = "10", .help = "a process that lives so long after SIGKILL counts as unkillable"},
  // ---- output
  {.name = "log_dir", .group = Group::output, .place = Place::top, .type = Type::text, .help = "base folder of log files: DIR/ID_RANDOM/attempt_K/LOCAL_RANK/{stdout,stderr}.log"},
  {.name = "tee", .group = Group::output, .place = Place::top, .type = Type::streams, .initial = "0", .help = "to a file and the terminal: 0 none, 1 stdout, 2 stderr, 3 both, or RANK:N,RANK:N", .letter = 't'},
  {.name = "redirects", .group = Group::output, .place = Place::top, .type = Type::streams, .initial = "0", .help = "to a file only; values as for --tee", .letter = 'r'},
  {.name = "local_ranks_filter", .group = Group::output, .place = Place::top, .type = Type::ranks, .initial = "", .help = "only these local ranks on the terminal, as 0,2"},
  {.name = "log_rotate_size", .group = Group::output, .place = Place::top, .type = Type::bytes, .initial = "0", .help = "a log file of this size is renamed to .1, .2 …; with K, M or G; 0 = never"},
  {.name = "log_rotate_keep", .group = Group::output, .place = Place::top, .type = Type::integer, .initial = "4", .help = "old log files kept"},
  {.name = "capture", .group = Group::output, .place = Place::top, .type = Type::text, .initial = "auto", .choices = "auto yes no", .help = "worker output comes through the launcher; auto: yes, but a single worker keeps the terminal"},
  {.name = "color", .group = Group::output, .place = Place::top, .type = Type::text, .initial = "auto", .choices = "auto always never", .help = "colours; auto: on a terminal, unless NO_COLOR is set"},
  {.name = "stdin", .group = Group::output, .place = Place::top, .type = Type::integer, .help = "local rank of the worker that gets our standard input"},
  {.name = "report", .group = Group::output, .place = Place::top, .type = Type::text, .initial = "", .help = "write the report as JSON to this file"},
  {.name = "log_level", .group = Group::output, .place = Place::top, .type = Type::text, .initial = "warn", .choices = "trace debug info warn error off", .help = "our own log on stderr"},
  // ---- inspect
  {.name = "help", .group = Group::inspect, .place = Place::nowhere, .type = Type::flag, .initial = "false", .help = "this; --help GROUP or --help all for more", .letter = 'h'},
  {.name = "version", .group = Group::inspect, .place = Place::nowhere, .type = Type::flag, .initial = "false", .help = "print the version"},
  {.name = "print_config", .group = Group::inspect, .place = Place::nowhere, .type = Type::flag, .initial = "false", .help = "show each setting and who set it; start nothing"},
  {.name = "print_plan", .group = Group::inspect, .place = Place::nowhere, .type = Type::flag, .initial = "false", .help = "show as JSON what would be started; start nothing"},
  {.name = "host_facts", .group = Group::inspect, .place = Place::nowhere, .type = Type::text, .help = "JSON file with the facts of a machine, instead of looking at this one"},
  // ---- torchrun
  {.name = "nproc_per_node", .group = Group::torchrun, .place = Place::top, .type = Type::text, .help = "workers on each machine: a number, cpu, gpu or auto"},
  {.name = "nnodes", .group = Group::torchrun, .place = Place::top, .type = Type::text, .help = "machines: N or MIN:MAX"},
  {.name = "standalone", .group = Group::torchrun, .place = Place::top, .type = Type::flag, .initial = "false", .help = "one machine, a free port, a random id"},
  {.name = "rdzv_endpoint", .group = Group::torchrun, .place = Place::top, .type = Type::text, .help = "where machines meet: HOST:PORT"},
  {.name = "rdzv_id", .group = Group::torchrun, .place = Place::top, .type = Type::text, .initial = "none", .variable = "TORCHELASTIC_RUN_ID", .help = "name of the job, also of its log folder"},
  {.name = "start_method", .group = Group::torchrun, .place = Place::top, .type = Type::text, .initial = "spawn", .choices = "spawn fork forkserver", .help = "accepted, without effect: workers are programs"},
  {.name = "run_path", .group = Group::torchrun, .place = Place::top, .type = Type::flag, .initial = "false", .help = "accepted, without effect: a script is always run by its path"},
  {.name = "local_addr", .group = Group::torchrun, .place = Place::top, .type = Type::text, .help = "accepted, without effect on one machine"},
  {.name = "logs_specs", .group = Group::torchrun, .place = Place::top, .type = Type::text, .help = "refused: a Python plug-in"},
  {.name = "event_log_handler", .group = Group::torchrun, .place = Place::top, .type = Type::text, .initial = "null", .help = "accepted, without effect: a Python plug-in"},
  {.name = "numa_binding", .group = Group::torchrun, .place = Place::top, .type = Type::text, .choices = "node socket exclusive core-complex", .help = "accepted, without effect yet"},
  {.name = "signals_to_handle", .group = Group::torchrun, .place = Place::top, .type = Type::text, .help = "accepted, without effect: TERM, INT, HUP, QUIT, USR1 and USR2 are always handled"},
  {.name = "virtual_local_rank", .group = Group::torchrun, .place = Place::top, .type = Type::flag, .initial = "false", .help = "refused: it would change what LOCAL_RANK means"},
  // ---- deepspeed
  {.name = "deepspeed_config_file", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::text, .variable = "ACCELERATE_DEEPSPEED_CONFIG_FILE", .help = "DeepSpeed's own config file"},
  {.name = "zero_stage", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::integer, .variable = "ACCELERATE_DEEPSPEED_ZERO_STAGE", .help = "what is sharded: 0 nothing … 3 parameters too"},
  {.name = "offload_optimizer_device", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::text, .variable = "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", .help = "none, cpu or nvme", .shown = Case::lower},
  {.name = "offload_param_device", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::text, .variable = "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", .help = "none, cpu or nvme", .shown = Case::lower},
  {.name = "offload_optimizer_nvme_path", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::text, .help = "listed in ACCELERATE_CONFIG_DS_FIELDS; the path itself is not passed on (as the original)"},
  {.name = "offload_param_nvme_path", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::text, .help = "as offload_optimizer_nvme_path"},
  {.name = "gradient_accumulation_steps", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::integer, .variable = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", .help = "batches before an optimizer step"},
  {.name = "gradient_clipping", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::number, .variable = "ACCELERATE_GRADIENT_CLIPPING", .help = "norm to clip to", .shown = Case::lower},
  {.name = "zero3_init_flag", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::text, .variable = "ACCELERATE_DEEPSPEED_ZERO3_INIT", .help = "true: build the model sharded", .shown = Case::lower},
  {.name = "zero3_save_16bit_model", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::text, .variable = "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", .help = "true: gather 16-bit weights when saving", .shown = Case::lower},
  {.name = "deepspeed_hostfile", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::text, .help = "machines for the deepspeed program"},
  {.name = "deepspeed_exclusion_filter", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::text, .help = "machines or devices to leave out"},
  {.name = "deepspeed_inclusion_filter", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::text, .help = "machines or devices to use"},
  {.name = "deepspeed_multinode_launcher", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::text, .help = "pdsh, standard, openmpi, mvapich, mpich, slurm or nossh; standard: no deepspeed program"},
  {.name = "deepspeed_moe_layer_cls_names", .group = Group::deepspeed, .place = Place::deepspeed_config, .type = Type::text, .variable = "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES", .help = "mixture-of-experts layers to wrap"},
  // ---- fsdp
  {.name = "fsdp_version", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .initial = "1", .choices = "1 2", .variable = "FSDP_VERSION", .help = "1 or 2"},
  {.name = "fsdp_offload_params", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .initial = "false", .variable = "FSDP_OFFLOAD_PARAMS", .help = "keep parameters in host memory", .shown = Case::lower},
  {.name = "fsdp_min_num_params", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::integer, .initial = "100000000", .variable = "FSDP_MIN_NUM_PARAMS", .help = "size-based wrapping: parameters a unit"},
  {.name = "fsdp_sharding_strategy", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .initial = "FULL_SHARD", .variable = "FSDP_SHARDING_STRATEGY", .help = "version 1: FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or a number"},
  {.name = "fsdp_reshard_after_forward", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .initial = "true", .variable = "FSDP_RESHARD_AFTER_FORWARD", .help = "version 2: true frees parameters after the forward pass", .shown = Case::lower},
  {.name = "fsdp_auto_wrap_policy", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .variable = "FSDP_AUTO_WRAP_POLICY", .help = "TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP"},
  {.name = "fsdp_transformer_layer_cls_to_wrap", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .variable = "FSDP_TRANSFORMER_CLS_TO_WRAP", .help = "layer classes, separated by commas"},
  {.name = "fsdp_backward_prefetch", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .variable = "FSDP_BACKWARD_PREFETCH", .help = "BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH"},
  {.name = "fsdp_state_dict_type", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .variable = "FSDP_STATE_DICT_TYPE", .help = "FULL_STATE_DICT, LOCAL_STATE_DICT or SHARDED_STATE_DICT"},
  {.name = "fsdp_forward_prefetch", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .initial = "false", .variable = "FSDP_FORWARD_PREFETCH", .help = "gather the next unit early", .shown = Case::lower},
  {.name = "fsdp_use_orig_params", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .initial = "true", .variable = "FSDP_USE_ORIG_PARAMS", .help = "allow frozen beside trained parameters", .shown = Case::lower},
  {.name = "fsdp_cpu_ram_efficient_loading", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .initial = "true", .variable = "FSDP_CPU_RAM_EFFICIENT_LOADING", .help = "only rank 0 loads the weights; needs fsdp_sync_module_states", .shown = Case::lower},
  {.name = "fsdp_sync_module_states", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .initial = "true", .variable = "FSDP_SYNC_MODULE_STATES", .help = "rank 0 sends its parameters to all", .shown = Case::lower},
  {.name = "fsdp_activation_checkpointing", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .initial = "false", .variable = "FSDP_ACTIVATION_CHECKPOINTING", .help = "recompute activations in the backward pass", .shown = Case::lower},
  {.name = "fsdp_ignored_modules", .group = Group::fsdp, .place = Place::fsdp_config, .type = Type::text, .variable = "FSDP_IGNORED_MODULES", .help = "modules that are not sharded", .is_flag = false},
  // ---- megatron
  {.name = "megatron_lm_tp_degree", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::integer, .initial = "1", .variable = "MEGATRON_LM_TP_DEGREE", .help = "tensor parallelism"},
  {.name = "megatron_lm_pp_degree", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::integer, .initial = "1", .variable = "MEGATRON_LM_PP_DEGREE", .help = "pipeline parallelism"},
  {.name = "megatron_lm_num_micro_batches", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::integer, .variable = "MEGATRON_LM_NUM_MICRO_BATCHES", .help = "micro batches of the pipeline"},
  {.name = "megatron_lm_sequence_parallelism", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::text, .variable = "MEGATRON_LM_SEQUENCE_PARALLELISM", .help = "true or false"},
  {.name = "megatron_lm_recompute_activations", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::text, .variable = "MEGATRON_LM_RECOMPUTE_ACTIVATIONS", .help = "true or false"},
  {.name = "megatron_lm_use_distributed_optimizer", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::text, .variable = "MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER", .help = "true: shard the optimizer's state"},
  {.name = "megatron_lm_gradient_clipping", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::number, .initial = "1.0", .variable = "MEGATRON_LM_GRADIENT_CLIPPING", .help = "norm to clip to"},
  {.name = "megatron_lm_use_custom_fsdp", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::any_text_is_true, .initial = "", .variable = "MEGATRON_LM_USE_CUSTOM_FSDP", .help = "any text but the empty one is true (as the original)"},
  {.name = "megatron_lm_no_load_optim", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::any_text_is_true, .initial = "", .variable = "MEGATRON_LM_NO_LOAD_OPTIM", .help = "don't load the optimizer's state"},
  {.name = "megatron_lm_no_save_optim", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::any_text_is_true, .initial = "", .variable = "MEGATRON_LM_NO_SAVE_OPTIM", .help = "don't save the optimizer's state"},
  {.name = "megatron_lm_eod_mask_loss", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::any_text_is_true, .initial = "", .variable = "MEGATRON_LM_EOD_MASK_LOSS", .help = "no loss for end-of-document tokens"},
  {.name = "megatron_lm_optimizer_cpu_offload", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::any_text_is_true, .initial = "", .variable = "MEGATRON_LM_OPTIMIZER_CPU_OFFLOAD", .help = "optimizer in host memory"},
  {.name = "megatron_lm_use_precision_aware_optimizer", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::any_text_is_true, .initial = "", .variable = "MEGATRON_LM_USE_PRECISION_AWARE_OPTIMIZER", .help = "precision-aware optimizer"},
  {.name = "megatron_lm_overlap_cpu_optimizer_d2h_h2d", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::any_text_is_true, .initial = "", .variable = "MEGATRON_LM_OVERLAP_CPU_OPTIMIZER_D2H_H2D", .help = "overlap copies of the offloaded optimizer"},
  {.name = "megatron_lm_decoder_last_pipeline_num_layers", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::integer, .variable = "MEGATRON_LM_DECODER_LAST_PIPELINE_NUM_LAYERS", .help = "layers of the last pipeline stage"},
  {.name = "megatron_lm_recompute_granularity", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::text, .variable = "MEGATRON_LM_RECOMPUTE_GRANULARITY", .help = "full or selective"},
  {.name = "megatron_lm_recompute_method", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::text, .variable = "MEGATRON_LM_RECOMPUTE_METHOD", .help = "uniform or block"},
  {.name = "megatron_lm_recompute_num_layers", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::integer, .variable = "MEGATRON_LM_RECOMPUTE_NUM_LAYERS", .help = "layers recomputed"},
  {.name = "megatron_lm_attention_backend", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::text, .variable = "MEGATRON_LM_ATTENTION_BACKEND", .help = "attention backend"},
  {.name = "megatron_lm_expert_model_parallel_size", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::integer, .variable = "MEGATRON_LM_EXPERT_MODEL_PARALLEL_SIZE", .help = "expert parallelism"},
  {.name = "megatron_lm_context_parallel_size", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::integer, .variable = "MEGATRON_LM_CONTEXT_PARALLEL_SIZE", .help = "context parallelism"},
  {.name = "megatron_lm_attention_dropout", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::number, .variable = "MEGATRON_LM_ATTENTION_DROPOUT", .help = "dropout in attention"},
  {.name = "megatron_lm_hidden_dropout", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::number, .variable = "MEGATRON_LM_HIDDEN_DROPOUT", .help = "dropout in hidden layers"},
  {.name = "megatron_lm_attention_softmax_in_fp32", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::text, .variable = "MEGATRON_LM_ATTENTION_SOFTMAX_IN_FP32", .help = "true or false"},
  {.name = "megatron_lm_expert_tensor_parallel_size", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::integer, .variable = "MEGATRON_LM_EXPERT_TENSOR_PARALLEL_SIZE", .help = "tensor parallelism of experts"},
  {.name = "megatron_lm_calculate_per_token_loss", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::text, .variable = "MEGATRON_LM_CALCULATE_PER_TOKEN_LOSS", .help = "true or false"},
  {.name = "megatron_lm_use_rotary_position_embeddings", .group = Group::megatron, .place = Place::megatron_lm_config, .type = Type::text, .variable = "MEGATRON_LM_USE_ROTARY_POSITION_EMBEDDINGS", .help = "true or false"},
  // ---- fp8
  {.name = "fp8_backend", .group = Group::fp8, .place = Place::fp8_config, .type = Type::text, .choices = "ao te msamp", .variable = "ACCELERATE_FP8_BACKEND", .help = "torchao, TransformerEngine or MS-AMP"},
  {.name = "fp8_use_autocast_during_eval", .group = Group::fp8, .place = Place::fp8_config, .type = Type::flag, .initial = "false", .variable = "ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL", .help = "fp8 also in evaluation"},
  {.name = "fp8_margin", .group = Group::fp8, .place = Place::fp8_config, .type = Type::integer, .initial = "0", .variable = "ACCELERATE_FP8_MARGIN", .help = "margin of the scaling factor"},
  {.name = "fp8_interval", .group = Group::fp8, .place = Place::fp8_config, .type = Type::integer, .initial = "1", .variable = "ACCELERATE_FP8_INTERVAL", .help = "steps between new scaling factors"},
  {.name = "fp8_format", .group = Group::fp8, .place = Place::fp8_config, .type = Type::text, .initial = "HYBRID", .choices = "HYBRID E4M3 E5M2", .variable = "ACCELERATE_FP8_FORMAT", .help = "number format"},
  {.name = "fp8_amax_history_len", .group = Group::fp8, .place = Place::fp8_config, .type = Type::integer, .initial = "1024", .variable = "ACCELERATE_FP8_AMAX_HISTORY_LEN", .help = "history of the scaling factor"},
  {.name = "fp8_amax_compute_algo", .group = Group::fp8, .place = Place::fp8_config, .type = Type::text, .initial = "most_recent", .choices = "max most_recent", .variable = "ACCELERATE_FP8_AMAX_COMPUTE_ALGO", .help = "how the history is used"},
  {.name = "fp8_override_linear_precision", .group = Group::fp8, .place = Place::fp8_config, .type = Type::truths, .initial = "", .variable = "ACCELERATE_FP8_OVERRIDE_FPROP, _DGRAD, _WGRAD", .help = "forward, dgrad, wgrad in higher precision: b,b,b"},
  {.name = "fp8_opt_level", .group = Group::fp8, .place = Place::fp8_config, .type = Type::text, .initial = "O2", .choices = "O1 O2", .variable = "ACCELERATE_FP8_OPT_LEVEL", .help = "MS-AMP's level"},
  {.name = "fp8_enable_fsdp_float8_all_gather", .group = Group::fp8, .place = Place::fp8_config, .type = Type::truth, .initial = "true", .variable = "ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER", .help = "gather FSDP2 shards in fp8"},
  {.name = "fp8_pad_inner_dim", .group = Group::fp8, .place = Place::fp8_config, .type = Type::truth, .initial = "true", .variable = "ACCELERATE_FP8_PAD_INNER_DIM", .help = "pad to multiples of 16"},
  // ---- parallelism
  {.name = "parallelism_config_dp_replicate_size", .group = Group::parallelism, .place = Place::parallelism_config, .type = Type::integer, .initial = "1", .variable = "PARALLELISM_CONFIG_DP_REPLICATE_SIZE", .help = "data parallel, replicated"},
  {.name = "parallelism_config_dp_shard_size", .group = Group::parallelism, .place = Place::parallelism_config, .type = Type::integer, .initial = "1", .variable = "PARALLELISM_CONFIG_DP_SHARD_SIZE", .help = "data parallel, sharded"},
  {.name = "parallelism_config_tp_size", .group = Group::parallelism, .place = Place::parallelism_config, .type = Type::integer, .initial = "1", .variable = "PARALLELISM_CONFIG_TP_SIZE", .help = "tensor parallel"},
  {.name = "parallelism_config_cp_size", .group = Group::parallelism, .place = Place::parallelism_config, .type = Type::integer, .initial = "1", .variable = "PARALLELISM_CONFIG_CP_SIZE", .help = "context parallel"},
  {.name = "parallelism_config_sp_size", .group = Group::parallelism, .place = Place::parallelism_config, .type = Type::integer, .initial = "1", .variable = "PARALLELISM_CONFIG_SP_SIZE", .help = "sequence parallel"},
  {.name = "parallelism_config_cp_backend", .group = Group::parallelism, .place = Place::parallelism_config, .type = Type::text, .initial = "torch", .choices = "torch", .variable = "PARALLELISM_CONFIG_CP_BACKEND", .help = "context parallel's backend"},
  {.name = "parallelism_config_cp_comm_strategy", .group = Group::parallelism, .place = Place::parallelism_config, .type = Type::text, .initial = "allgather", .variable = "PARALLELISM_CONFIG_CP_COMM_STRATEGY", .help = "allgather or alltoall; passed on if cp_size > 1"},
  {.name = "parallelism_config_sp_backend", .group = Group::parallelism, .place = Place::parallelism_config, .type = Type::text, .initial = "deepspeed", .choices = "deepspeed", .variable = "PARALLELISM_CONFIG_SP_BACKEND", .help = "sequence parallel's backend"},
  {.name = "parallelism_config_sp_seq_length", .group = Group::parallelism, .place = Place::parallelism_config, .type = Type::text, .variable = "PARALLELISM_CONFIG_SP_SEQ_LENGTH", .help = "passed on if sp_size > 1"},
  {.name = "parallelism_config_sp_seq_length_is_variable", .group = Group::parallelism, .place = Place::parallelism_config, .type = Type::text, .initial = "True", .variable = "PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE", .help = "passed on if sp_size > 1"},
  {.name = "parallelism_config_sp_attn_implementation", .group = Group::parallelism, .place = Place::parallelism_config, .type = Type::text, .initial = "sdpa", .variable = "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION", .help = "passed on if sp_size > 1"},
  // ---- mpi
  {.name = "mpirun_hostfile", .group = Group::mpi, .place = Place::mpirun_config, .type = Type::text, .help = "run mpirun with this host file around the script"},
  // ---- cloud
  {.name = "tpu", .group = Group::cloud, .place = Place::nowhere, .type = Type::flag, .initial = "false", .help = "refused: TPUs are not supported"},
  {.name = "tpu_use_cluster", .group = Group::cloud, .place = Place::top, .type = Type::flag, .initial = "false", .help = "TPU only", .aliases = "tpu_cluster"},
  {.name = "no_tpu_cluster", .group = Group::cloud, .place = Place::nowhere, .type = Type::flag, .initial = "false", .help = "TPU only"},
  {.name = "tpu_use_sudo", .group = Group::cloud, .place = Place::top, .type = Type::flag, .initial = "false", .help = "TPU only"},
  {.name = "vm", .group = Group::cloud, .place = Place::nowhere, .type = Type::text, .help = "TPU only"},
  {.name = "env", .group = Group::cloud, .place = Place::nowhere, .type = Type::text, .help = "TPU only"},
  {.name = "main_training_function", .group = Group::cloud, .place = Place::top, .type = Type::text, .help = "TPU only"},
  {.name = "downcast_bf16", .group = Group::cloud, .place = Place::top, .type = Type::flag, .initial = "false", .help = "TPU only"},
  {.name = "tpu_name", .group = Group::cloud, .place = Place::top, .type = Type::text, .help = "TPU only", .is_flag = false},
  {.name = "tpu_zone", .group = Group::cloud, .place = Place::top, .type = Type::text, .help = "TPU only", .is_flag = false},
  {.name = "tpu_vm", .group = Group::cloud, .place = Place::top, .type = Type::text, .help = "TPU only", .is_flag = false},
  {.name = "tpu_env", .group = Group::cloud, .place = Place::top, .type = Type::text, .help = "TPU only", .is_flag = false},
  {.name = "command_file", .group = Group::cloud, .place = Place::top, .type = Type::text, .help = "TPU only", .is_flag = false},
  {.name = "commands", .group = Group::cloud, .place = Place::top, .type = Type::text, .help = "TPU only", .is_flag = false},
  {.name = "aws_access_key_id", .group = Group::cloud, .place = Place::nowhere, .type = Type::text, .help = "SageMaker only"},
  {.name = "aws_secret_access_key", .group = Group::cloud, .place = Place::nowhere, .type = Type::text, .help = "SageMaker only"},
};
// clang-format on

inline constexpr std::size_t kKeyCount = std::size(kKeyRows);

namespace literals {
/// "num_processes"_key; a name that is not in the table does not compile.
consteval Key operator""_key(const char* name, std::size_t size) {
  for (std::size_t i = 0; i < kKeyCount; ++i) {
    if (kKeyRows[i].name == std::string_view{name, size}) return Key{i};
  }
  throw "no such key";
}
}  // namespace literals

}  // namespace acc::launcher
