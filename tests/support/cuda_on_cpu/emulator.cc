/* Implements the fibers, barriers and launches of cuda_runtime.h. */
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <vector>

#include "common/base/rng.h"
#include "cuda_runtime.h"
#include "emulated_ptx.h"

struct ht_emulator ht_emulator;
__thread int ht_emulated_last_error;

enum { MAX_THREADS = 1024, STACK_BYTES = 256 * 1024, WARP = 32 };
enum state { READY, AT_WARP, AT_BLOCK, DONE };

struct copy {
    void *to;
    const void *from;
    int bytes;
    bool valid;
};

typedef void *place[5]; /* of __builtin_setjmp */

struct fiber {
    place stopped;
    bool begun;
    enum state state;
    dim3 thread;
    int exchanges; /* so far; the parity selects the buffer */
    std::vector<struct copy> open;
    std::vector<std::vector<struct copy>> groups; /* committed, oldest first */
};

static struct fiber *fibers; /* created once and kept, with their stacks */
static char *stacks;
static int n_threads, current;
static const std::function<void()> *kernel;
static const char *kernel_name;
static uint64_t drawn; /* numbers so far */
static std::vector<struct ht_emulated_site> sites;
static uint64_t exchanged[MAX_THREADS / WARP][2][WARP];

static void fail(const char *what)
{
    fprintf(stderr, "CUDA on the CPU: block (%u,%u,%u): %s\n", ht_emulator.block.x, ht_emulator.block.y,
            ht_emulator.block.z, what);
    abort();
}

static void enter(void);

static place scheduler;

/* Begins a fiber on its stack, which it keeps for all launches. */
static void begin(struct fiber *f)
{
    ucontext_t context;
    f->begun = true;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks + (size_t)(f - fibers) * STACK_BYTES;
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, enter, 0);
    setcontext(&context);
}

/* Between the scheduler and fibers. Takes the compiler's own jumps, where AddressSanitizer does not look: it takes longjmp for an
   unwinding, and at swapcontext forgets what it knows of the whole stack. Both ask more of the processor as well. */
#define SWITCHES __attribute__((noipa, no_sanitize("address")))

/* Jumps in a function of its own: where one both sets and jumps, gcc takes what follows for unreachable. */
SWITCHES static void jump(place to)
{
    __builtin_longjmp(to, 1);
}

SWITCHES static void resume(struct fiber *f)
{
    if (__builtin_setjmp(scheduler)) return;
    if (f->begun) jump(f->stopped);
    begin(f);
}

SWITCHES static void leave(struct fiber *f)
{
    if (!__builtin_setjmp(f->stopped)) jump(scheduler);
}

static void wait_as(enum state state)
{
    struct fiber *f = &fibers[current];
    f->state = state;
    leave(f);
    ht_emulator.thread = f->thread;
}

static bool same_site(const struct ht_emulated_site &a, const char *file, int line)
{
    return a.line == line && !strcmp(a.file, file) && !strcmp(a.kernel, kernel_name);
}

static void record(const char *file, int line)
{
    for (const struct ht_emulated_site &s : sites)
        if (same_site(s, file, line)) return;
    sites.push_back({kernel_name, file, line});
}

int ht_emulated_sites(struct ht_emulated_site *out, int most)
{
    int n = (int)sites.size() < most ? (int)sites.size() : most;
    for (int i = 0; i < n; i++) out[i] = sites[(size_t)i];
    sites.clear();
    return n;
}

bool ht_emulated_omits(const char *file, int line)
{
    if (ht_emulator.recording && current == 0) record(file, line);
    return ht_emulator.omitted && same_site(*ht_emulator.omitted, file, line);
}

void ht_emulated_block_barrier(const char *file, int line)
{
    if (!file || !ht_emulated_omits(file, line)) wait_as(AT_BLOCK);
}

/* Returns a number below 2^bits. */
static unsigned draw(int bits)
{
    return (unsigned)(ht_random(ht_emulator.seed, drawn++) >> (64 - bits));
}

int ht_emulated_lane(void)
{
    return current % WARP;
}

const uint64_t *ht_emulated_exchange(uint64_t mine)
{
    uint64_t *slot = exchanged[current / WARP][fibers[current].exchanges++ & 1];
    slot[current % WARP] = mine;
    wait_as(AT_WARP);
    return slot;
}

static void make(const struct copy &c)
{
    if (c.valid)
        memcpy(c.to, c.from, (size_t)c.bytes);
    else
        memset(c.to, 0, (size_t)c.bytes);
}

void ht_emulated_copy(void *to, const void *from, int bytes, bool valid)
{
    if (((uintptr_t)to | (uintptr_t)from) % (unsigned)bytes != 0) fail("a copy is not aligned to its size");
    struct copy c = {to, from, bytes, valid};
    if (ht_emulator.order == HT_REVERSE || (ht_emulator.order == HT_RANDOM && draw(1)))
        make(c);
    else
        fibers[current].open.push_back(c);
}

void ht_emulated_copy_commit(void)
{
    fibers[current].groups.push_back(fibers[current].open);
    fibers[current].open.clear();
}

void ht_emulated_copy_wait(int pending, const char *file, int line)
{
    if (ht_emulated_omits(file, line)) return;
    std::vector<std::vector<struct copy>> &groups = fibers[current].groups;
    while ((int)groups.size() > pending) {
        for (const struct copy &c : groups.front()) make(c);
        groups.erase(groups.begin());
    }
}

static void enter(void)
{
    for (;;) {
        (*kernel)();
        struct fiber *f = &fibers[current];
        f->state = DONE;
        if (!f->groups.empty() || !f->open.empty()) fail("a thread ends before its copies do");
        leave(f);
    }
}

static void start(int i)
{
    struct fiber *f = &fibers[i];
    dim3 d = ht_emulator.block_dim;
    f->state = READY;
    f->exchanges = 0;
    f->thread = dim3((unsigned)i % d.x, (unsigned)i / d.x % d.y, (unsigned)i / (d.x * d.y));
}

/* Runs the lanes of a warp until they wait. Returns true when they waited for one another: the warp can go on. */
static bool run_lanes(int first)
{
    int end = first + WARP < n_threads ? first + WARP : n_threads, at_warp = 0;
    unsigned swap = ht_emulator.order == HT_REVERSE ? WARP - 1 : ht_emulator.order == HT_RANDOM ? draw(5) : 0;
    for (int i = 0; i < WARP; i++) {
        current = first + (i ^ (int)swap);
        if (current >= end || fibers[current].state != READY) continue;
        ht_emulator.thread = fibers[current].thread;
        resume(&fibers[current]);
    }
    for (int i = first; i < end; i++) at_warp += fibers[i].state == AT_WARP;
    if (at_warp == 0) return false;
    if (at_warp != WARP) fail("lanes of a warp wait for lanes that do not come");
    for (int i = first; i < end; i++) fibers[i].state = READY;
    return true;
}

/* Runs all warps until all their lanes wait for the block or have returned. */
static void run_warps(void)
{
    int n_warps = (n_threads + WARP - 1) / WARP;
    bool in_turns = ht_emulator.order == HT_LOCKSTEP || ht_emulator.order == HT_RANDOM;
    static bool idle[MAX_THREADS / WARP]; /* waits for the block */
    for (int w = 0; w < n_warps; w++) idle[w] = false;
    for (bool any = true; any;) {
        any = false;
        unsigned swap = ht_emulator.order == HT_REVERSE  ? MAX_THREADS / WARP - 1
                        : ht_emulator.order == HT_RANDOM ? draw(5)
                                                         : 0;
        for (int i = 0; i < MAX_THREADS / WARP; i++) {
            int w = i ^ (int)swap;
            if (w >= n_warps || idle[w]) continue;
            any = true;
            if (ht_emulator.order == HT_RANDOM && draw(1)) continue; /* this one falls behind */
            bool more = run_lanes(w * WARP);
            while (more && !in_turns) more = run_lanes(w * WARP);
            idle[w] = !more;
        }
    }
}

static void run_block(void)
{
    for (int i = 0; i < n_threads; i++) start(i);
    for (;;) {
        run_warps();
        int waiting = 0;
        for (int i = 0; i < n_threads; i++) waiting += fibers[i].state == AT_BLOCK;
        if (waiting == 0) return;
        if (waiting != n_threads) fail("threads of the block wait for threads that do not come");
        for (int i = 0; i < n_threads; i++) fibers[i].state = READY;
    }
}

void ht_emulated_on(cudaStream_t stream, const char *what)
{
    if (stream && (!ht_emulator.stream || stream == ht_emulator.stream)) return;
    fprintf(stderr, "CUDA on the CPU: %s on %s, expected the context's stream\n", what,
            stream ? "another stream" : "the default stream");
    abort();
}

void ht_emulated_launch(const char *name, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                        const std::function<void()> &body)
{
    ht_emulated_on(stream, "a kernel");
    if (!fibers) {
        fibers = new struct fiber[MAX_THREADS]();
        stacks = (char *)mmap(NULL, (size_t)MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) fail("no memory for stacks");
    }
    n_threads = (int)(block.x * block.y * block.z);
    if (n_threads < 1 || n_threads > MAX_THREADS) fail("a block of no or too many threads");
    if (grid.y > 65535 || grid.z > 65535) fail("a grid that is too high or deep");
    if (shared_bytes > HT_EMULATED_SHARED_BYTES) fail("more shared memory than sm_86 and sm_89 have");
    size_t rounded = (shared_bytes + 127) / 128 * 128;
    char *shared = rounded ? (char *)aligned_alloc(128, rounded) : NULL;
    kernel = &body;
    kernel_name = name;
    ht_emulator.launches++;
    ht_emulator.block_dim = block;
    ht_emulator.grid_dim = grid;
    ht_emulator.shared = shared;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                ht_emulator.block = dim3(x, y, z);
                if (rounded) memset(shared, ht_emulator.clear ? 0 : 0xff, rounded);
                run_block();
            }
    free(shared);
}
