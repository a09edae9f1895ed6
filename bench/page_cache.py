#!/usr/bin/env python3
"""What one thread moves through the page cache, with one request a tensor, as Colossal-AI's library for disks does it.

    /usr/bin/python3 bench/page_cache.py DIR [ROUNDS]

TensorNVMe opens its file without O_DIRECT (csrc/offload.cpp), hands over a tensor as one request, frees the tensor's
memory after its write and allocates it again for its read (tensornvme/offload.py). So a read of cached states is a copy
into memory that has not been touched yet. Here a tensor is 400 MiB, one FP32 state of a 5120 x 20480 weight, and a file
has four, all of them cached. Reference: the same read into memory that is in use. Rounds are interleaved; the first
one warms up. What was written is read back and compared.
"""

import mmap
import os
import statistics
import sys
import tempfile
import time

BYTES, TENSORS = 400 << 20, 4


def timed(transfer):
    start = time.perf_counter()
    moved = transfer()
    seconds = time.perf_counter() - start
    if moved != BYTES:
        sys.exit(f"a transfer moved {moved} of {BYTES} bytes; expected one request to move all")
    return BYTES / seconds / 1e9


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    rounds = int(sys.argv[2]) if len(sys.argv) == 3 else 7
    rates = {"read, memory in use": [], "read, fresh memory": [], "write": []}
    used = mmap.mmap(-1, BYTES)
    with tempfile.TemporaryFile(dir=sys.argv[1]) as file:
        fd = file.fileno()
        for k in range(rounds + 1):
            for i in range(TENSORS):
                used[:] = bytes([k + i]) * BYTES
                round_rates = {"write": timed(lambda: os.pwrite(fd, used, i * BYTES))}
                fresh = mmap.mmap(-1, BYTES)
                round_rates["read, fresh memory"] = timed(lambda: os.preadv(fd, [fresh], i * BYTES))
                round_rates["read, memory in use"] = timed(lambda: os.preadv(fd, [used], i * BYTES))
                if fresh[:] != bytes([k + i]) * BYTES or fresh[:] != used[:]:
                    sys.exit("what was read is not what was written")
                fresh.close()
                for name, rate in round_rates.items():
                    if k > 0:
                        rates[name].append(rate)
    reference = statistics.median(rates["read, memory in use"])
    for name, values in rates.items():
        median = statistics.median(values)
        spread = f"{min(values):.2f} to {max(values):.2f}"
        print(f"{name:20} {median:6.2f} GB/s ({spread}), {median / reference:.2f} of the reference, n = {len(values)}")


if __name__ == "__main__":
    main()
