#include "harness/cli/command.h"

#include "common/base/array.h"
#include "common/base/config.h"
#include "common/base/units.h"
#include "harness/cli/help.h"

#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum value { VALUE_TEXT, VALUE_BYTES, VALUE_RATE, VALUE_COUNT, VALUE_REAL, VALUE_LIST, VALUE_FLAG };

struct row {
    const char *name, *arg, *help;
    unsigned groups;
    enum value value;
    size_t offset;
    double min, max; /* VALUE_COUNT, VALUE_REAL; VALUE_LIST: at most max, whose number is the field after them */
};

#define AT(field) offsetof(struct ht_options, field)
/* The last fields of a row. */
#define TEXT(field)               VALUE_TEXT, AT(field), 0, 0
#define FLAG(field)               VALUE_FLAG, AT(field), 0, 0
#define BYTES(field)              VALUE_BYTES, AT(field), 0, 0
#define RATE(field)               VALUE_RATE, AT(field), 0, 0
#define COUNT(field, least, most) VALUE_COUNT, AT(field), least, most
#define REAL(field, least, most)  VALUE_REAL, AT(field), least, most
#define LIST(field, most)         VALUE_LIST, AT(field), 0, most
#define ANY                       HT_OPT_ANY
#define SHAPE                     (HT_OPT_SCENARIO | HT_OPT_SHAPE)

static const struct row rows[] = {
    {"model", "NAME|FILE",
     "model that is trained: built in (hetbench list models), a YAML file, or a config.json of transformers or its "
     "folder",
     HT_OPT_MODEL, TEXT(request.model)},
    {"cluster", "NAME|FILE",
     "cluster to train on: built in (hetbench list clusters), 'local' for this machine, or a YAML file",
     HT_OPT_SCENARIO | HT_OPT_RESHARD, TEXT(request.cluster)},
    {"gpus", "KIND:N,..",
     "cluster from its parts, in place of --cluster: GPUs of a node (hetbench list gpus); '/' separates nodes, "
     "a100-80gb:8x4 is four nodes of eight",
     HT_OPT_SCENARIO | HT_OPT_PARTS, TEXT(parts.gpus)},
    {"ram", "SIZE", "with --gpus: main memory of each node, such as 128GB", HT_OPT_SCENARIO | HT_OPT_PARTS,
     TEXT(parts.ram)},
    {"cpu", "KIND[:SOCKETS]", "with --gpus: processor of each node [ryzen-7950x; epyc-7713 with more than 2 GPUs]",
     HT_OPT_SCENARIO | HT_OPT_PARTS, TEXT(parts.cpu)},
    {"link", "KIND", "with --gpus: slot of each GPU, such as pcie4-x8 [the card's]", HT_OPT_SCENARIO | HT_OPT_PARTS,
     TEXT(parts.link)},
    {"nvlink", "KIND|none", "with --gpus: link between the GPUs of a node [that of the card's boards]",
     HT_OPT_SCENARIO | HT_OPT_PARTS, TEXT(parts.nvlink)},
    {"nic", "KIND", "with --gpus: network of each node [ethernet-25g]", HT_OPT_SCENARIO | HT_OPT_PARTS,
     TEXT(parts.nic)},
    {"ssd", "KIND:N", "with --gpus: disks of each node, such as 990-pro-2tb:2 [none]", HT_OPT_SCENARIO | HT_OPT_PARTS,
     TEXT(parts.ssd)},
    {"only", "KIND[:N],..", "use only these GPUs of the cluster [all]", HT_OPT_SCENARIO, TEXT(request.only)},
    {"ranks", "N",
     "processes, one for each device: those of the first N; cluster 'local' then has N emulated devices [the "
     "cluster's devices]",
     HT_OPT_SCENARIO, COUNT(request.ranks, 1, 64)},
    {"nodes", "N",
     "cluster 'local': nodes among which its devices are divided, with node stores of their own [1; elastic: 4]",
     HT_OPT_SCENARIO, COUNT(request.nodes, 1, 64)},
    {"only-nodes", "N,..", "use only these nodes of the cluster, counted from 0; node stores keep these numbers [all]",
     HT_OPT_SCENARIO, TEXT(request.only_nodes)},
    {"batch", "N", "sequences per iteration, over all devices [8]", SHAPE, COUNT(request.batch, 1, 1 << 20)},
    {"micro-batch", "N", "sequences per forward pass of one device [batch / devices; 1 if that is not whole]", SHAPE,
     COUNT(request.micro_batch, 1, 1 << 20)},
    {"seq", "N", "tokens per sequence [the model's longest, at most 4096]", SHAPE, COUNT(request.seq, 1, 1 << 24)},
    {"numerics", "fp32|fp16|bf16", "type of the compute copy [fp16 on GPUs, fp32 on emulated devices]", SHAPE,
     TEXT(request.numerics)},
    {"accumulate", "fp32|16", "type of the sums of 16-bit gradients over micro-batches; 16: the gradients' own [fp32]",
     SHAPE, TEXT(request.accumulate)},
    {"control", "none|gate|rollback",
     "optimizer steps wait for the final check (gate), or are undone after an overflow (rollback) [none; train: gate "
     "in fp16 and with --clip]",
     SHAPE, TEXT(request.control)},
    {"clip", "X", "scale gradients down to this global norm at most; needs --control [off]", SHAPE,
     REAL(request.clip, 1e-30, 1e30)},
    {"loss-scale", "dynamic|X",
     "scale of the loss for 16-bit gradients; dynamic needs --control [dynamic where fp16 has a control, else 1]",
     SHAPE, TEXT(request.loss_scale)},
    {"initial-scale", "X", "first scale of a dynamic loss scale [65536]", SHAPE,
     REAL(request.initial_scale, 0x1p-24, 0x1p64)},
    {"growth-interval", "N", "iterations in a row without overflow after which a dynamic loss scale doubles [2000]",
     SHAPE, COUNT(request.growth_interval, 1, 1000000000)},
    {"device-memory", "SIZE", "budget of every device, such as '40 GB' or 512MiB [the device's own]", SHAPE,
     BYTES(request.device_memory_bytes)},
    {"host-memory", "SIZE", "budget of every node's main memory, such as '1 GB' [the node's own]", SHAPE,
     BYTES(request.host_memory_bytes)},
    {"ssds", "N", "disks of every node that has some, striped; 0: no node has any [the node's own]", HT_OPT_SCENARIO,
     COUNT(request.ssds, 0, 64)},
    {"through-host", "RATE",
     "what each GPU sends in a ring where it has no peer access, such as '8 GB/s' (busbw of nccl-tests) [the "
     "cluster's, else another machine's]",
     HT_OPT_SCENARIO, RATE(request.through_host_bytes_per_s)},
    {"disk", "DIR[,DIR..]",
     "directories over which the disk tier's files are striped; on cluster 'local' a disk each [no disk]", SHAPE,
     TEXT(platform.disk)},
    {"disk-io", "auto|uring|threads", "way to the disk: io_uring, or threads of pread and pwrite [io_uring if allowed]",
     HT_OPT_TRAIN | HT_OPT_PROFILE, TEXT(platform.disk_io)},
    {"disk-checksums", "on|off", "hold every block read from the disk against the checksum of what was written [on]",
     HT_OPT_TRAIN | HT_OPT_PROFILE, TEXT(platform.disk_checksums)},
    {"device-cores", "N", "cluster 'local': cores of the emulated device [all but one]", SHAPE,
     COUNT(request.device_cores, 1, 4096)},
    {"software", "NAME|FILE",
     "what the programs' kernels launch and hold (hetbench list software); train takes fused alone [fused]",
     HT_OPT_SCENARIO, TEXT(request.software)},
    {"software", "NAME|FILE", "software profile of all scenarios that are simulated [the ledgers' choice]",
     HT_OPT_REPRODUCE, TEXT(request.software)},
    {"set", "NAME=VALUE",
     "force a plan variable by the paper's name (hetbench list systems): a number, c=3, or a vector, m=4,2,1; may be "
     "repeated [the planner decides]",
     HT_OPT_SCENARIO, LIST(plan.set, HT_MAX_SET)},
    {"profile", "FILE",
     "costs from a file of hetbench profile; may be repeated, for other kinds of devices [modelled from the hardware "
     "catalogue]",
     HT_OPT_SCENARIO, LIST(plan.profiles, HT_MAX_PROFILES)},
    {"load", "FILE", "a graph file instead of SYSTEM and scenario", HT_OPT_LOAD, TEXT(plan.load)},
    {"dump", "FILE", "write the op graph, which --load reads", HT_OPT_DUMP, TEXT(plan.dump)},
    {"iterations", "N", "iterations to simulate [8]", HT_OPT_SIM, COUNT(sim.iterations, 1, 1000000)},
    {"warmup", "N", "first iterations that the steady state leaves out [2]", HT_OPT_SIM, COUNT(sim.warmup, 0, 1000000)},
    {"issue-ahead", "K", "ops that a lane issues behind the running one [2 on GPUs, 0 on emulated devices]", HT_OPT_SIM,
     COUNT(sim.issue_ahead, 0, 64)},
    {"jitter", "PERCENT", "spread every duration by up to this much [0]", HT_OPT_SIM, COUNT(sim.jitter_percent, 0, 99)},
    {"seed", "N", "seed of --jitter [1]", HT_OPT_SIM, COUNT(sim.seed, 0, 0x1p62)},
    {"runs", "N", "with --jitter: N runs, of seeds one after the other, and how far their times spread [none]",
     HT_OPT_VARY, COUNT(sim.runs, 1, 100000)},
    {"what-if", NULL,
     "also the iteration time if one rate were half or twice as high: GPU compute, links, network, disks, CPU Adam "
     "[off]",
     HT_OPT_VARY, FLAG(sim.what_if)},
    {"break-even", NULL, "also the rates of PCIe and CPU Adam that would suffice [off]", HT_OPT_VARY,
     FLAG(sim.break_even)},
    {"bad", "N",
     "iteration whose gradients overflow, counted from 1; may be repeated; needs a schedule with a final check [none]",
     HT_OPT_SIM, LIST(sim.bad, HT_MAX_BAD)},
    {"every-iteration", NULL,
     "simulate each iteration, also once they repeat themselves exactly; the results are the same [off]", HT_OPT_SIM,
     FLAG(sim.every)},
    {"every-replica", NULL,
     "simulate each replica and tensor-parallel part, also those equal to others; the results are the same [off]",
     HT_OPT_SIM, FLAG(sim.every_replica)},
    {"replay", "FILE", "report on a trace of this graph, of sim or train, instead of simulating", HT_OPT_REPLAY,
     TEXT(sim.replay)},
    {"price", "X", "price of the machine, in any currency: tokens per unit of it [the catalogue's, in USD]",
     HT_OPT_ADVISE, REAL(price, 1e-9, 1e15)},
    {"systems", "A,B,...", "systems to choose from [all but ablations]", HT_OPT_ADVISE, TEXT(compare.systems)},
    {"systems", "A,B,...", "systems to compare [all but ablations]", HT_OPT_COMPARE, TEXT(compare.systems)},
    {"systems", "A,B,...", "systems to measure [all]", HT_OPT_PROFILE, TEXT(compare.systems)},
    {"models", "A,B,...", "models to compare them on; patterns such as 'lohan-*' too", HT_OPT_COMPARE,
     TEXT(compare.models)},
    {"clusters", "A,B,...", "several clusters, in place of --cluster", HT_OPT_COMPARE, TEXT(compare.clusters)},
    {"of", "model|batch|seq", "size that is looked for [model]", HT_OPT_MAXSIZE, TEXT(compare.of)},
    {"models", "A,B,...", "family of models, or models of the batch and the sequence; patterns such as 'lohan-*' too",
     HT_OPT_MAXSIZE, TEXT(compare.models)},
    {"out", "DIR", "write maxsize.json and maxsize.csv there", HT_OPT_MAXSIZE, TEXT(out)},
    {"out", "DIR", "write compare.json and compare.csv there", HT_OPT_COMPARE, TEXT(out)},
    {"out", "FILE", "write the file that --profile takes", HT_OPT_PROFILE, TEXT(out)},
    {"for-device", "NAME", "device whose costs these are, by the cluster file's name [any device]", HT_OPT_PROFILE,
     TEXT(measure.for_device)},
    {"for-host", "NAME", "CPU of the nodes whose costs these are, by the cluster file's name [any CPU]", HT_OPT_PROFILE,
     TEXT(measure.for_host)},
    {"repeat", "N", "measured iterations of every system [9]", HT_OPT_PROFILE, COUNT(measure.repeat, 1, 1000000)},
    {"data", "FILE", "training data: a text, whose bytes are the tokens, token ids, or of a ViT labelled images",
     HT_OPT_TRAIN, TEXT(training.data)},
    {"data-format", "FORMAT",
     "format of --data: text, u16 or u32 (little-endian ids), images [by extension: .u16, .u32, .bin; else text; of a "
     "ViT images]",
     HT_OPT_TRAIN, TEXT(training.data_format)},
    {"backend", "cpu|cuda", "backend that runs the ops [cpu]", HT_OPT_TRAIN | HT_OPT_PROFILE, TEXT(platform.backend)},
    {"device", "N", "GPU of --backend cuda, among those that CUDA shows [0]", HT_OPT_TRAIN | HT_OPT_PROFILE,
     COUNT(platform.device, 0, 1023)},
    {"transport", "nccl|host",
     "between the ranks of --backend cuda: NCCL, or pinned host memory [NCCL if each has a GPU of its own]",
     HT_OPT_TRAIN, TEXT(platform.transport)},
    {"deterministic", NULL, "add up over ranks of --backend cuda in their order, whatever the transport", HT_OPT_TRAIN,
     FLAG(platform.deterministic)},
    {"hosts", "NAME:N,..", "hosts of the ranks, N on each; started by mpirun over ssh [this machine]", HT_OPT_LAUNCH,
     TEXT(launch.hosts)},
    {"hosts", "FILE|!COMMAND",
     "hosts that there are: a file, or a command that prints one, asked again and again; lines such as 'a kind=0' "
     "[local nodes]",
     HT_OPT_ELASTIC, TEXT(elastic.hosts)},
    {"state", "DIR", "directory of the supervisor's state, which the first host has to see, too [STORE/elastic]",
     HT_OPT_ELASTIC, TEXT(elastic.state)},
    {"policy", "NAME",
     "choose nodes, and read the state, as this policy does (hetbench list policies); restart runs on --least nodes "
     "[as many nodes as can be, nearest stores]",
     HT_OPT_ELASTIC, TEXT(elastic.policy)},
    {"least", "N", "nodes without which it waits instead of going on [1]", HT_OPT_ELASTIC,
     COUNT(elastic.least, 1, 4096)},
    {"wait", "S", "seconds that it waits for so many nodes [60]", HT_OPT_ELASTIC, COUNT(elastic.wait_s, 0, 1e9)},
    {"quiet", "S", "seconds without a change of the nodes before it takes them [5]", HT_OPT_ELASTIC,
     COUNT(elastic.quiet_s, 0, 1e9)},
    {"ask-every", "S", "seconds from one question for the hosts to the next [10]", HT_OPT_ELASTIC,
     COUNT(elastic.ask_s, 0, 1e9)},
    {"rejoin", "S", "seconds after which a lost node that is still named may come back [300]", HT_OPT_ELASTIC,
     COUNT(elastic.rejoin_s, 0, 1e9)},
    {"restarts", "N", "failures in a row, at one step and with one error, that end it with that error [3]",
     HT_OPT_ELASTIC, COUNT(elastic.restarts, 1, 1e9)},
    {"hang-after", "S", "least seconds without the end of an op after which it is taken for hung [30]", HT_OPT_ELASTIC,
     COUNT(elastic.hang_s, 1, 1e9)},
    {"notice", "FILE", "file of the hosts or numbers of nodes that will be gone soon, one a line", HT_OPT_ELASTIC,
     TEXT(elastic.notice)},
    {"drills", "N", "run N drills with faults drawn from --seed on, each checked, instead of a training",
     HT_OPT_ELASTIC, COUNT(elastic.drills, 1, 1e9)},
    {"seed", "N", "seed of the first drill [1]", HT_OPT_ELASTIC, COUNT(elastic.seed, 0, 0x1p62)},
    {"inject", "KIND:STEP:NUMBER",
     "drill: a fault of this kind at this step (docs/elastic.md); may be repeated, then in this order", HT_OPT_ELASTIC,
     LIST(elastic.faults, HT_MAX_BAD)},
    {"hostfile", "FILE", "the same as a hostfile of Open MPI, with lines such as 'a slots=2'", HT_OPT_LAUNCH,
     TEXT(launch.hostfile)},
    {"start-timeout", "N", "seconds that the start of --hosts' ranks may stand still [10]", HT_OPT_TRAIN,
     COUNT(launch.start_timeout, 1, 86400)},
    {"clock", "run|emu",
     "run: as fast as this machine is; emu: as if on the cluster's hardware, every op held for its modelled time [run]",
     HT_OPT_TRAIN, TEXT(platform.clock)},
    {"emu-scale", "X|auto|none",
     "with --clock emu: factor by which it runs slower than modelled; none: ops are not held, times mean nothing "
     "[auto: "
     "every op's work fits]",
     HT_OPT_TRAIN, TEXT(platform.emu_scale)},
    {"steps", "N", "training steps [50]", HT_OPT_TRAIN, COUNT(training.steps, 1, 1000000000)},
    {"lr", "X", "learning rate [3e-4]", HT_OPT_TRAIN, REAL(training.adamw.lr, 0, 1e6)},
    {"beta1", "X", "AdamW: decay of the momentum [0.9]", HT_OPT_TRAIN, REAL(training.adamw.beta1, 0, 0.999999999)},
    {"beta2", "X", "AdamW: decay of the variance [0.95]", HT_OPT_TRAIN, REAL(training.adamw.beta2, 0, 0.999999999)},
    {"eps", "X", "AdamW: added to the variance's root [1e-8]", HT_OPT_TRAIN, REAL(training.adamw.eps, 1e-300, 1e6)},
    {"weight-decay", "X", "AdamW: decoupled weight decay [0.1]", HT_OPT_TRAIN,
     REAL(training.adamw.weight_decay, 0, 1e6)},
    {"init-seed", "N", "seed of the initial parameters [1234]", HT_OPT_TRAIN, COUNT(training.init_seed, 0, 0x1p62)},
    {"data-seed", "N", "seed of the choice of batches [5678]", HT_OPT_TRAIN, COUNT(training.data_seed, 0, 0x1p62)},
    {"init", "DIR|FILE",
     "begin with these weights, under Hugging Face's names; DIR/config.json says the model [random weights]",
     HT_OPT_TRAIN, TEXT(state.init)},
    {"save", "DIR|FILE", "write weights and config.json after the last step; to FILE.safetensors, the weights alone",
     HT_OPT_TRAIN | HT_OPT_RESHARD, TEXT(state.save)},
    {"save-dtype", "f32|f16|bf16", "type of the weights of --save [that of the numerics' parameters]",
     HT_OPT_TRAIN | HT_OPT_RESHARD, TEXT(state.save_dtype)},
    {"save-shard", "SIZE", "most weights in one file of --save; more become shards with an index [5 GB]",
     HT_OPT_TRAIN | HT_OPT_RESHARD, BYTES(state.save_shard_bytes)},
    {"checkpoint", "DIR", "write checkpoints of the training state there", HT_OPT_TRAIN, TEXT(state.checkpoint)},
    {"store", "DIR", "keep steps in node stores there: each rank writes what it holds into DIR/node-N", HT_OPT_TRAIN,
     TEXT(state.store)},
    {"store-memory", "DIR",
     "directory in memory (tmpfs) that takes a save first; it goes to --store while training goes on [save to --store "
     "at once]",
     HT_OPT_TRAIN, TEXT(state.store_memory)},
    {"replicas", "N", "other nodes that get each file of a save [0; elastic: 1]", HT_OPT_TRAIN,
     COUNT(state.replicas, 0, 4096)},
    {"store-remote", "DIR", "directory that all nodes see; each file is copied there once", HT_OPT_TRAIN,
     TEXT(state.store_remote)},
    {"store-remote-rate", "RATE", "most that a rank writes there, such as '100 MB/s' [no limit]", HT_OPT_TRAIN,
     RATE(state.store_remote_rate)},
    {"load-remote", NULL, "with --resume: read --store-remote alone, not the nodes' stores", HT_OPT_TRAIN,
     FLAG(state.load_remote)},
    {"every", "N", "steps from one checkpoint to the next; the last step always makes one [100]", HT_OPT_TRAIN,
     COUNT(state.every, 1, 1000000000)},
    {"keep", "N", "newest checkpoints that are kept [2]", HT_OPT_TRAIN, COUNT(state.keep, 1, 1000000000)},
    {"resume", NULL, "go on from the newest checkpoint, if there is one; --steps counts from the beginning",
     HT_OPT_TRAIN, FLAG(state.resume)},
    {"to", "DP,TP,PP", "data, tensor and pipeline parallelism of the new layout", HT_OPT_RESHARD, TEXT(reshard.to)},
    {"zero1", NULL, "cut momentum and variance into ranges of the data-parallel ranks", HT_OPT_RESHARD,
     FLAG(reshard.zero1)},
    {"per-node", "N", "ranks of a node of the new layout [all]", HT_OPT_RESHARD, COUNT(reshard.per_node, 1, 4096)},
    {"remote-rate", "RATE", "with --cluster: of the link to the remote store, which all nodes share [none]",
     HT_OPT_RESHARD, RATE(reshard.remote_rate)},
    {"whole-files", NULL, "with --cluster: a rank reads whole files where slices would do", HT_OPT_RESHARD,
     FLAG(reshard.whole_files)},
    {"emulate", "X", "with --cluster: read the files, each copy held for X times its modelled time [only simulate]",
     HT_OPT_RESHARD, REAL(reshard.emulate, 1e-3, 1e9)},
    {"check", NULL, "hold files against their hashes; of reshard, read back what was written and compare every byte",
     HT_OPT_CHECK, FLAG(reshard.check)},
    {"out", "DIR", "directory for the stores of the new layout's nodes [only list what would be read]", HT_OPT_RESHARD,
     TEXT(out)},
    {"trace", "INSTANCE=NAME|FILE,..",
     "when nodes join and are lost, and what they are: p3.2xlarge=oobleck-p3; several are merged (hetbench list "
     "traces)",
     HT_OPT_DAY | HT_OPT_SPOT, TEXT(day.trace)},
    {"draw", "NAME=VALUE,..",
     "a drawn trace in place of --trace: nodes=32,hours=12,rate=0.1 (losses of a node an hour),burst=2 (lost at once),"
     "absent=600 (s until replaced),notice=120 (s ahead),noticed=0.5 (share),seed=1,instance=p3.2xlarge",
     HT_OPT_DAY, TEXT(day.drawn)},
    {"write-trace", "FILE", "write the trace, merged or drawn, and end", HT_OPT_DAY, TEXT(day.write)},
    {"policies", "A,B,..", "what the job does when nodes come and go [autohet,varuna,megatron,restart]",
     HT_OPT_DAY | HT_OPT_SPOT, TEXT(day.policies)},
    {"restart-nodes", "N", "nodes on which policy restart runs [as many as are there at first]",
     HT_OPT_DAY | HT_OPT_SPOT, COUNT(day.keep_nodes, 1, 4096)},
    {"speed", "S", "modelled seconds a second; --emu-scale is then 1/S [100]", HT_OPT_SPOT,
     REAL(replay.speed, 0.001, 1e6)},
    {"changes", "N", "end the day with the Nth change of the local nodes [the whole trace]", HT_OPT_SPOT,
     COUNT(replay.changes, 2, 1000000)},
    {"drill-changes", "N",
     "changes of the drills that measure the parts of recoveries, half before the day and half after it [16]",
     HT_OPT_SPOT, COUNT(replay.drill_changes, 2, 1000)},
    {"check", NULL, "compare the losses with those of the same layouts without kills", HT_OPT_SPOT, FLAG(replay.check)},
    {"seed", "N", "seed of which local nodes are lost; the drills have the next two [1]", HT_OPT_SPOT,
     COUNT(elastic.seed, 0, 0x1p62)},
    {"price", "INSTANCE=USD[:SOURCE],..", "price of a node by the hour [the cluster file's usd_per_hour]", HT_OPT_DAY,
     TEXT(day.price)},
    {"save-every", "S",
     "seconds between saves [Young's interval, or the remote store's time for one if that is longer]", HT_OPT_DAY,
     REAL(day.save_every_s, 0.001, 1e6)},
    {"times", "FILE",
     "detection, planning and relaunch as measured: the output of elastic --drills N --json [assumed ones, below]",
     HT_OPT_DAY, TEXT(day.times)},
    {"detect", "S", "seconds until a lost node is noticed [5]", HT_OPT_DAY, REAL(day.detect_s, 0, 1e5)},
    {"plan-time", "S", "seconds of planning after a loss [1.23]", HT_OPT_DAY, REAL(day.plan_s, 0, 1e5)},
    {"relaunch", "S", "seconds until new processes are connected [30]", HT_OPT_DAY, REAL(day.relaunch_s, 0, 1e5)},
    {"quiet", "S", "seconds after a join in which others are waited for [60]", HT_OPT_DAY, REAL(day.quiet_s, 0, 1e5)},
    {"remote-rate", "RATE", "of the link to the remote store, which all nodes share [no limit]", HT_OPT_SPOT,
     RATE(day.remote_bytes_per_s)},
    {"remote-rate", "RATE", "of the link to the remote store, which all nodes share [1.2 GB/s]", HT_OPT_DAY,
     RATE(day.remote_bytes_per_s)},
    {"speeds", "X,Y,..", "also run the day so many times as fast: break-even rates of preemptions", HT_OPT_DAY,
     TEXT(day.speeds)},
    {"intervals", "S,T,..", "also run it with these seconds between saves: the interval that pays", HT_OPT_DAY,
     TEXT(day.intervals)},
    {"plans", "DIR", "folder in which plans of days are remembered [none]", HT_OPT_DAY | HT_OPT_EXPERIMENT,
     TEXT(day.plans)},
    {"out", "FILE", "write a row for each policy as CSV", HT_OPT_DAY | HT_OPT_SPOT, TEXT(out)},
    {"inject-overflow", "STEP:UNIT[:inf|nan|square]",
     "drill: spoil an element of the unit's gradient in that step; may be repeated", HT_OPT_TRAIN,
     LIST(training.faults, HT_MAX_FAULTS)},
    {"inject-disk", "read|write:eio|short|flip:N",
     "drill: let the Nth request to the disk fail, end early, or bring a wrong bit; may be repeated", HT_OPT_TRAIN,
     LIST(platform.disk_faults, HT_MAX_BAD)},
    {"inject-process", "KIND:RANK:STEP:WHERE",
     "drill: kill or hang a rank as it begins its WHERE-th op of a step, or in a step's save or load, or fill its disk "
     "(full) in a save",
     HT_OPT_TRAIN, TEXT(training.process_fault)},
    {"events", "FILE", "append a line of JSON for each step, save, and other event, for a supervisor", HT_OPT_TRAIN,
     TEXT(training.events)},
    {"losses", "FILE", "write step,loss as CSV at full precision", HT_OPT_TRAIN, TEXT(training.losses)},
    {"trace", "FILE", "write a Chrome/Perfetto trace", HT_OPT_TRACE, TEXT(trace)},
    {"draw", "FILE",
     "draw the plan's pipelines as PNG or SVG: layers, rings, memory; of sim also idle shares and the schedule",
     HT_OPT_DRAW, TEXT(draw)},
    {"plot", "FILE.svg|.png|.html",
     "draw the report, by the name's ending; html of sim and train: an interactive timeline", HT_OPT_PLOT, TEXT(plot)},
    {"ledger", "FILE", "check the claims of this file [the built-in ledgers]", HT_OPT_REPRODUCE, TEXT(compare.ledger)},
    {"out", "FILE", "write the table as CSV", HT_OPT_REPRODUCE, TEXT(out)},
    {"out", "DIR", "folder of results.json and results.csv [results/NAME]", HT_OPT_EXPERIMENT, TEXT(out)},
    {"out", "DIR", "folder for page and figures [DIR]", HT_OPT_REPORT, TEXT(out)},
    {"why", NULL, "say why: reasons, sources, and what the columns are", HT_OPT_WHY, FLAG(why)},
    {"all", NULL, "show what is left out otherwise: ablations of the papers' methods, and rows that are folded",
     HT_OPT_ALL, FLAG(all)},
    {"json", NULL, "machine-readable output on standard output", ANY, FLAG(json)},
    {"help", NULL, "show this help", ANY, FLAG(help)},
};

enum { FIRST_KEY = 256, HELP_KEY = 'h', N_ROWS = HT_COUNT(rows) }; /* a key that is a letter is an option, too: -h */

/* Returns true if a command takes an option. */
static bool is_of(const struct row *row, const struct ht_command *command)
{
    return row->groups == ANY || row->groups & command->groups;
}

struct parse {
    const struct ht_command *command;
    struct ht_options *options;
    struct ht_error *err;
    const char *stopped_at; /* the word at which getopt stopped */
};

static enum ht_status read_real(const struct row *row, const char *flag, const char *arg, struct ht_error *err,
                                double *out)
{
    double value = 0;
    struct ht_error why;
    if (ht_parse_real(HT_REAL, arg, strlen(arg), &why, &value) != HT_OK)
        return ht_fail(err, HT_BAD_INPUT, "%s: %.900s", flag, why.text);
    if (!isfinite(value) || value < row->min || value > row->max)
        return ht_fail(err, HT_BAD_INPUT, "%s: %s is out of range; expected %.9g to %.9g", flag, arg, row->min,
                       row->max);
    *out = value;
    return HT_OK;
}

/* A list's number is the field behind it. */
#define IS_LIST(theme, list)                                                                                           \
    _Static_assert(AT(theme.n_##list) == AT(theme.list) + sizeof(((struct ht_options *)0)->theme.list), #list)
IS_LIST(plan, set);
IS_LIST(plan, profiles);
IS_LIST(sim, bad);
IS_LIST(platform, disk_faults);
IS_LIST(training, faults);
IS_LIST(elastic, faults);

static enum ht_status add_to_list(const struct row *row, const char *flag, const char *arg, struct ht_error *err,
                                  const char **list)
{
    int64_t *n = (int64_t *)(void *)(list + (size_t)row->max);
    if (*n == (int64_t)row->max) return ht_fail(err, HT_BAD_INPUT, "%s: given more than %.0f times", flag, row->max);
    list[(*n)++] = arg;
    return HT_OK;
}

static enum ht_status read_value(const struct row *row, const char *arg, struct parse *p)
{
    char flag[40];
    snprintf(flag, sizeof(flag), "--%s", row->name);
    void *field = (char *)p->options + row->offset;
    struct ht_options *o = p->options;
    if (o->n_given == HT_MAX_GIVEN)
        return ht_fail(p->err, HT_BAD_INPUT, "%s: more than %d options", flag, HT_MAX_GIVEN);
    o->given[o->n_given++] = (struct ht_given_option){row->name, row->value == VALUE_FLAG ? NULL : arg, row->groups};
    switch (row->value) {
    case VALUE_TEXT:
        if (!*arg) return ht_fail(p->err, HT_BAD_INPUT, "%s: the value is empty; expected %s", flag, row->arg);
        *(const char **)field = arg;
        return HT_OK;
    case VALUE_BYTES:
        return ht_flag_bytes(flag, arg, p->err, field);
    case VALUE_RATE:
        return ht_flag_rate(flag, arg, p->err, field);
    case VALUE_COUNT:
        return ht_flag_count(flag, arg, (int64_t)row->min, (int64_t)row->max, p->err, field);
    case VALUE_REAL:
        return read_real(row, flag, arg, p->err, field);
    case VALUE_LIST:
        return add_to_list(row, flag, arg, p->err, field);
    case VALUE_FLAG:
        *(bool *)field = true;
        return HT_OK;
    }
    return HT_OK;
}

static error_t on_key(int key, char *arg, struct argp_state *state)
{
    struct parse *p = state->input;
    if (key == HELP_KEY) {
        p->options->help = true;
        return 0;
    }
    if (key >= FIRST_KEY && key < FIRST_KEY + N_ROWS)
        return read_value(&rows[key - FIRST_KEY], arg, p) == HT_OK ? 0 : EINVAL;
    if (key == ARGP_KEY_ARG) {
        if (p->options->n_words == p->command->max_words) {
            if (p->command->max_words)
                ht_fail(p->err, HT_BAD_INPUT, "%s: unexpected word '%s'; expected %s and options", p->command->name,
                        arg, p->command->args);
            else
                ht_fail(p->err, HT_BAD_INPUT, "%s: unexpected word '%s'; expected options only", p->command->name, arg);
            return EINVAL;
        }
        p->options->words[p->options->n_words++] = arg;
        return 0;
    }
    if (key == ARGP_KEY_ERROR && state->next >= 1 && state->next <= state->argc)
        p->stopped_at = state->argv[state->next - 1];
    return ARGP_ERR_UNKNOWN;
}

/* Names, in one line, the word that argp does not know, or that lacks its value. */
static enum ht_status unknown(const struct parse *p)
{
    const char *command = p->command->name, *word = p->stopped_at ? p->stopped_at : "";
    const char *bare = word + strspn(word, "-");
    char name[64];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(bare, "="), bare);
    const char *names[N_ROWS];
    size_t n = 0;
    int starts_with = 0;
    for (size_t i = 0; i < N_ROWS; i++) {
        if (!is_of(&rows[i], p->command)) continue;
        if (!strcmp(rows[i].name, name)) {
            if (rows[i].arg)
                return ht_fail(p->err, HT_BAD_INPUT, "%s: --%s needs a value: %s", command, name, rows[i].arg);
            return ht_fail(p->err, HT_BAD_INPUT, "%s: --%s takes no value", command, name);
        }
        starts_with += !strncmp(rows[i].name, name, strlen(name));
        names[n++] = rows[i].name;
    }
    if (*name && starts_with > 1)
        return ht_fail(p->err, HT_BAD_INPUT, "%s: option '%s' is short for several; write it out", command, word);
    const char *near = *name ? ht_nearest(name, names, n) : NULL;
    if (near) return ht_fail(p->err, HT_BAD_INPUT, "%s: unknown option '%s'; expected --%s?", command, word, near);
    return ht_fail(p->err, HT_BAD_INPUT, "%s: unknown option '%s'; hetbench %s --help lists those there are", command,
                   word, command);
}

bool ht_option_next(const struct ht_command *command, size_t *at, struct ht_option *out)
{
    while (*at < N_ROWS && !is_of(&rows[*at], command)) ++*at;
    if (*at == N_ROWS) return false;
    const struct row *row = &rows[(*at)++];
    *out = (struct ht_option){row->name, row->arg, row->help, row->groups};
    return true;
}

/* Makes the command's rows of the table for argp. */
static void options_of(const struct ht_command *command, struct argp_option *out)
{
    size_t n = 0;
    for (size_t i = 0; i < N_ROWS; i++)
        if (is_of(&rows[i], command))
            out[n++] = (struct argp_option){.name = rows[i].name,
                                            .key = rows[i].offset == AT(help) ? HELP_KEY : FIRST_KEY + (int)i,
                                            .arg = rows[i].arg};
    out[n] = (struct argp_option){0};
}

/* Sets what an option's 0 means where the field's own 0 is its default. */
static void take_zeros(struct ht_options *o)
{
    for (int64_t i = 0; i < o->n_given; i++)
        if (!strcmp(o->given[i].name, "ssds") && o->request.ssds == 0) o->request.ssds = HT_NO_SSDS;
}

/* Joins the parts of a cluster to the list that stands for its name. */
static enum ht_status take_parts(const struct ht_command *command, struct ht_error *err, struct ht_options *o)
{
    const struct ht_parts_options *p = &o->parts;
    const struct {
        const char *key, *value;
    } parts[] = {{"gpus", p->gpus},     {"ram", p->ram}, {"cpu", p->cpu}, {"link", p->link},
                 {"nvlink", p->nvlink}, {"nic", p->nic}, {"ssd", p->ssd}};
    size_t used = 0;
    bool given = o->request.cluster && !o->request.training;
    for (size_t i = 0; i < HT_COUNT(parts); i++) {
        if (!parts[i].value) continue;
        if (!p->gpus)
            return ht_fail(err, HT_BAD_INPUT, "%s: --%s is for clusters that --gpus lists; expected --gpus beside it",
                           command->name, parts[i].key);
        if (given) return ht_fail(err, HT_BAD_INPUT, "%s: expected --cluster or --gpus, not both", command->name);
        int n = snprintf(o->parts.list + used, sizeof(o->parts.list) - used, "%s%s=%s", used ? ";" : "", parts[i].key,
                         parts[i].value);
        used += (size_t)n;
        if (used >= sizeof(o->parts.list))
            return ht_fail(err, HT_BAD_INPUT, "%s: the parts of the cluster are too long", command->name);
    }
    if (used) o->request.cluster = o->parts.list;
    return HT_OK;
}

enum ht_status ht_options_parse(const struct ht_command *command, int argc, char **argv, struct ht_error *err,
                                struct ht_options *out)
{
    *out = ht_options_default();
    out->request.training = command->groups & HT_OPT_TRAIN;
    if (out->request.training) out->request.cluster = "local";
    struct argp_option options[N_ROWS + 1];
    options_of(command, options);
    struct argp argp = {.options = options, .parser = on_key};
    struct parse p = {.command = command, .options = out, .err = err};
    err->text[0] = '\0';
    err->status = HT_OK;
    /* argp expects the program's name where argv[1], the command, is. */
    error_t failed = argp_parse(&argp, argc - 1, argv + 1, ARGP_NO_ERRS | ARGP_NO_HELP | ARGP_NO_EXIT, NULL, &p);
    if (out->help) {
        ht_help_print(command);
        return HT_OK;
    }
    if (failed) return err->status != HT_OK ? err->status : unknown(&p);
    take_zeros(out);
    enum ht_status status = take_parts(command, err, out);
    if (status != HT_OK) return status;
    if (out->n_words < command->min_words && !out->plan.load)
        return ht_fail(err, HT_BAD_INPUT, "%s: expected %s; hetbench %s --help says more", command->name, command->args,
                       command->name);
    if (out->plan.load && out->n_words)
        return ht_fail(err, HT_BAD_INPUT, "%s: --load stands for a system; expected no '%s' beside it", command->name,
                       out->words[0]);
    return HT_OK;
}
