"""What the benches share: the machine's description, statistics, results, plots, servers, clients, prompts.

SPDX-License-Identifier: Apache-2.0
"""
