"""How many threads of a kernel a multiprocessor holds at once, by the rules of CUDA's own cuda_occupancy.h.

Blocks a multiprocessor = the smallest of
  registers   ⌊65536 / 4 / (registers of a warp, rounded up to 256)⌋ warps for each of its 4 parts; blocks = warps / warps a block
  threads     64 warps / warps a block
  shared      its shared memory / (the block's static + dynamic + 1024 that the driver takes, rounded up to 128)
  blocks      32
and occupancy = blocks · warps a block / 64. The limits of each architecture are those of the CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability"; a test compares the results with cuda_occupancy.h where a toolkit is installed.

SPDX-License-Identifier: Apache-2.0
"""

# Bytes of shared memory of a multiprocessor. The rest is alike in all three.
SHARED = {80: 164 * 1024, 90: 228 * 1024, 100: 228 * 1024}
WARPS, BLOCKS, REGISTERS, PARTS = 64, 32, 65536, 4
_REGISTER_STEP, _SHARED_STEP, _DRIVERS_SHARED = 256, 128, 1024


def _up(value, step):
    return -(-value // step) * step


def blocks(arch, threads, registers, shared):
    """Of a kernel with `threads` a block, `registers` a thread and `shared` bytes a block, static and dynamic; 0: too large."""
    warps = -(-threads // 32)
    of_warp = _up(registers * 32, _REGISTER_STEP)
    if of_warp * _up(warps, PARTS) > REGISTERS:
        return 0
    by_registers = REGISTERS // PARTS // of_warp * PARTS // warps
    by_shared = SHARED[arch] // _up(shared + _DRIVERS_SHARED, _SHARED_STEP)
    return min(by_registers, WARPS // warps, by_shared, BLOCKS)


def occupancy(arch, threads, registers, shared):
    return blocks(arch, threads, registers, shared) * -(-threads // 32) / WARPS
