#include "launcher/deviations.hpp"

namespace acc::launcher {

static constexpr Deviation kDeviations[] = {
    {"num_processes above 1 on the CPU starts one process; more need mpirun",
     "N processes asked for are N workers with ranks (not with distributed_type NO, nor where the "
     "number was only inferred from the devices)",
     "that is what was asked for; with mpirun_hostfile mpirun is still used"},
    {"TORCHELASTIC_USE_AGENT_STORE is True: torchrun serves the store",
     "False: the worker of rank 0 serves the store on MASTER_ADDR:MASTER_PORT",
     "the store's protocol changes between PyTorch versions; no worker waits for a server that "
     "speaks another one"},
    {"every variable of the caller is exported once more in upper case",
     "variables are passed on as they are", "http_proxy and HTTP_PROXY may differ on purpose"},
    {"rdzv_backend, same_network and enable_cpu_affinity in a config file have no effect",
     "they take effect",
     "`accelerate config` asks for them; unlike the original, the answer counts"},
    {"enable_cpu_affinity binds Python workers of NVIDIA GPUs that use Accelerate; numa_binding "
     "wraps the command in numactl",
     "both bind every kind of worker, by what /sys says; without GPUs they are dealt out to the "
     "NUMA nodes",
     "a C++ worker or one on the CPU wants its memory near, too"},
    {"any failure of a worker ends the launcher with 1",
     "the exit code of the first failed worker, 128 + N for a signal",
     "schedulers and scripts decide by it"},
    {"workers have 30 s from SIGTERM to SIGKILL, or TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
     "the same for a torchrun line; 15 s for one of accelerate (--grace 30), where that variable "
     "isn't set",
     "a failed job restarts that much sooner"},
    {"several machines: no address gives None:29500, fewer processes than machines 0 workers, an "
     "uneven count loses the rest",
     "the first two are refused with a message; of an uneven count the first machines take one "
     "more each",
     "a job that can't start should say so, and one that can should have the size asked for"},
    {"--redirects, --standalone, --nproc-per-node, --rdzv-id … are unknown to accelerate",
     "torchrun's flags are accepted. With --nproc_per_node or --nnodes the variables of Accelerate "
     "are set only for flags and keys that are given",
     "a torchrun line works with only the program's name changed"},
    {"SageMaker and TPU jobs are started", "refused with a message",
     "they need Python libraries of their clouds"},
    {"with --rdzv_backend=c10d and --same_network the machines look for each other on localhost",
     "they meet at main_process_ip:main_process_port", "a defect of the original"},
    {"an empty first script argument crashes in the modes with ranks", "it is passed on",
     "a defect of the original"},
    {"gpu_ids: 1 and gpu_ids: [0, 1] crash", "they mean what they say", "the meaning is plain"},
    {"an unquoted NO as distributed_type is silently a plain process where num_processes is given",
     "the same, and a line says that it should be quoted",
     "the next edit of the file would surprise"},
    {"torchrun passes each script argument through string.Template: ${local_rank} is replaced, $$ "
     "becomes $",
     "script arguments are passed on byte for byte",
     "shell fragments survive; LOCAL_RANK is in the environment"},
    {"torchrun reads many PET_ variables",
     "PET_RDZV_ID, PET_START_METHOD and PET_REDIRECTS only, as accelerate; where PET_NNODES says "
     "more than one machine (a PyTorchJob), also PET_NPROC_PER_NODE, PET_NODE_RANK, "
     "PET_MASTER_ADDR, PET_MASTER_PORT, PET_RDZV_BACKEND, PET_RDZV_ENDPOINT, PET_RDZV_CONF and "
     "PET_MAX_RESTARTS; PET_NPROC_PER_NODE also where a torchrun line (--standalone, "
     "--rdzv_endpoint) names no number of workers",
     "a flag that one can see is safer"},
    {"a scheduler's variables mean nothing, addresses and ranks are for the user",
     "a task of Slurm, Open MPI or an indexed Kubernetes job finds them by itself, and a line says "
     "so; flags and the config file win",
     "the same command line serves all tasks"},
    {"the default config file counts for every command line",
     "not for a torchrun line: one that counts workers as torchrun does (--nproc_per_node, "
     "--nnodes), or has --standalone or --rdzv_endpoint and no number, which is one worker as "
     "there",
     "torchrun knows no such file, so its lines mean the same here as there"},
    {"several machines, static: a node restarts its own workers and never tells the others",
     "a failure anywhere stops and restarts all workers, with one count for the job; the machines "
     "talk on main_process_port + 1 (--control_port)",
     "half a job on a new attempt would wait for ever"},
    {"several machines: any host that reaches the port of the store can join and run code",
     "beyond loopback a secret is needed (--make_secret), unless --insecure is given",
     "a launcher starts programs"},
    {"c10d: SIGTERM to one machine's agent takes that machine out, the others go on without it",
     "a signal to any machine asks the whole job to end, so that all get their grace for a "
     "checkpoint; SIGKILL takes one machine out",
     "schedulers signal some or all machines of a job when they want it to end"},
    {"workers are started again at once, each time",
     "the first time at once, then after 1, 2, 4 … s while attempts fail soon (--restart_delay)",
     "a machine that is short of something gets time to recover"},
    {"processes that a script leaves behind (nohup upload &) live on after the job",
     "they end with it, also after a success, and a line names them",
     "what nobody knows of holds a GPU or a port"},
    {"a reader that goes away (| head) ends the launcher, and the job with it",
     "the workers go on, and a line says that their output is lost",
     "a closed pager should not cost a job of days"},
    {"c10d and etcd: --node_rank and machine_rank have no effect",
     "they are a wish for the order of the nodes. Nodes may give one rank, with one warning for "
     "the "
     "job; a scheduler's number counts before one in a config file",
     "who knows the order of the machines may say it, and one line for all machines works"},
    {"c10d with an endpoint: --master_addr and --master_port have no effect",
     "the workers' store has that port on rank 0's machine, unless it is the endpoint's own: then "
     "a "
     "free one, and a warning says so",
     "a firewall may let one port through"},
    {"c10d: a node that comes late restarts everybody at once",
     "it waits for the next restart, or with --scale_up=now it causes one",
     "a restart costs all machines the time since the last checkpoint"},
    {"c10d: the last call waits 30 s for further nodes, at every start",
     "1 s, and 30 s only while nodes are missing that were in the job (--last_call)",
     "nobody waits for nodes that were never there"},
    {"c10d: the store lives in one agent, and all fail when it dies",
     "from three machines on another one takes over, and workers keep running",
     "no machine is worth the whole job"},
    {"etcd: the v2 API", "the v3 API, through its HTTP gateway", "etcd has no v2 API any more"},
    {"--fsdp_version is checked, other values of fsdp_config and deepspeed_config fail in each "
     "worker",
     "values that the library would refuse are refused before the start, in the mode that uses "
     "them",
     "the launcher knows them, and says where they stand"},
    {"ipex_config, which earlier versions wrote, is an unknown key", "a note, and no effect",
     "one old file in the home folder would break every command line"},
    {"--num_processes -2 starts one plain process", "negative counts are refused",
     "nobody means it"},
    {"torchrun takes every unambiguous beginning of a flag, accelerate none",
     "a beginning of one of torchrun's own flags (--nproc_per 2), but for --local_rank and "
     "--signal, "
     "which are others' flags",
     "a line of either works, and what accelerate refuses is refused"},
    {"the deepspeed launcher prints each variable that .deepspeed_env can't hold, with its value",
     "one line with their names", "a value may be a secret"},
    {"config errors appear one at a time, as a Python exception, with exit code 1",
     "all at once, each with file and line, with exit code 2", "five typos are mended in one go"},
    {"any script is given to Python unless --no_python says otherwise",
     "a program, or a script whose #! line names something else than a Python, is run by itself; "
     "without its execute bit it is refused. A file that is named *.py is Python's, whatever its "
     "first line says. A #! line doesn't choose the Python, as with torchrun; a note says where it "
     "names that of another virtual environment",
     "Python could only report a syntax error; the name .py is the user's word that it is "
     "Python's"},
    {"workers inherit the launcher's stdin, stdout and stderr",
     "one worker on a terminal does; of several each has /dev/null as stdin (--stdin RANK gives "
     "one "
     "of them ours, for pdb or input()), and what they write comes through us (--capture no leaves "
     "them our stdout and stderr)",
     "lines don't tear each other, and the report has the last ones; keys have one reader"},
    {"--log_dir has files only of the ranks and streams that --redirects or --tee name",
     "with any of the three each rank and stream has a file",
     "the output of a rank that nobody named is missed after a failure"},
    {"--tee, --redirects and --local_ranks_filter ignore local ranks that don't exist",
     "refused, with the ranks that there are", "the output that was meant would be missing"},
    {"a log folder that can't be made ends in a Python exception",
     "refused before the start; on a file system that is full or read-only the job starts with a "
     "warning",
     "a typo shows at once, and no disk stops a worker"},
    {"flags like max_restarts, tee or log_dir are no config keys",
     "every flag but the mode switches is; so are script and script_args",
     "a config file can be a whole job, for instance a service"},
    {"accelerate config asks again without a word, and overwrites a file unseen",
     "acc-config says what is valid, goes back, and at a terminal shows the file and what changes "
     "in it; the answers mean the same",
     "a slip at the tenth question costs one key"},
    {"accelerate config ends at DeepSpeed, fp8 or zero3_init_flag where their library is missing",
     "the file is written; acc-launch checks where the job runs",
     "the file may be for another machine"},
    {"accelerate to-fsdp2 keeps a sharding strategy that is a number or in lower case, which FSDP "
     "2 "
     "can't read",
     "it becomes true or false, as by its name", "each worker would raise"},
    {"accelerate config creates an IAM role for SageMaker",
     "acc-config writes its name, and a note says to create it",
     "the launcher holds no AWS credentials"},
    {"accelerate config update refuses a file with max_restarts or ipex_config",
     "keys of acc-launch stay, ipex_config is dropped", "acc-launch reads such files"},
};

std::span<const Deviation> deviations() { return kDeviations; }

}  // namespace acc::launcher
