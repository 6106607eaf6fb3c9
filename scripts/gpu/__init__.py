"""What gpu_resources, gpu_check and bench/gpu_roofline share. Nothing beyond Python's own library.

SPDX-License-Identifier: Apache-2.0
"""
