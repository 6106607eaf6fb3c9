"""The few statistics that the benches print, and the order in which two sides take turns.

SPDX-License-Identifier: Apache-2.0
"""

import math


def percentile(values, share):
    """The smallest value that at least `share` (0 … 1) of the values do not exceed: one that was measured, never a mean."""
    if not values:
        raise ValueError("no values")
    if any(math.isnan(value) for value in values):
        raise ValueError("a value is no number")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values):
    """The middle one, or the mean of the two in the middle."""
    if not values:
        raise ValueError("no values")
    if any(math.isnan(value) for value in values):
        raise ValueError("a value is no number")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def summary(values):
    return {"median": median(values), "p99": percentile(values, 0.99), "min": min(values), "samples": len(values)}


def ratio_of_medians(over, under):
    return median(over) / median(under)


def turns(sides, rounds):
    """(round, side) in the order in which they are measured: every side once a round, beginning with the next one each time,
    so that none always follows the same other and a machine that gets slower slows all of them alike."""
    for number in range(rounds):
        first = number % len(sides)
        for side in sides[first:] + sides[:first]:
            yield number, side
