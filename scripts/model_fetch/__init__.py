"""The parts of scripts/fetch_model: catalogue, cache, and one module for each kind of source.

SPDX-License-Identifier: Apache-2.0
"""
