"""What the benches share: statistics, turns, result files, plots, requests. No server is started.

SPDX-License-Identifier: Apache-2.0
"""

import collections
import importlib.machinery
import importlib.util
import json
import pathlib
import random
import sys
import xml.etree.ElementTree

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/bench"))
from common import plot, prompts, results, stats, workload  # noqa: E402


def test_a_median_is_the_middle_value_or_the_mean_of_two():
    assert stats.median([3, 1, 2]) == 2
    assert stats.median([4, 1, 3, 2]) == 2.5
    assert stats.median([7]) == 7


def test_a_percentile_is_the_smallest_value_that_the_share_does_not_exceed():
    hundred = list(range(1, 101))
    random.Random(1).shuffle(hundred)
    assert stats.percentile(hundred, 0.99) == 99
    assert stats.percentile(hundred, 0.5) == 50
    assert stats.percentile(hundred, 1) == 100
    assert stats.percentile(hundred, 0) == 1
    assert stats.percentile([5, 9], 0.99) == 9


@pytest.mark.parametrize("values", [[], [1.0, float("nan")]])
@pytest.mark.parametrize("statistic", [stats.median, lambda values: stats.percentile(values, 0.99)])
def test_no_statistic_comes_out_of_nothing_or_of_what_is_no_number(statistic, values):
    with pytest.raises(ValueError):
        statistic(values)


def test_a_ratio_is_that_of_medians():
    assert stats.ratio_of_medians([10, 20, 1000], [5, 4, 1]) == 5


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_side_has_one_turn_a_round_and_none_always_follows_the_same_other(count):
    sides = list("abcd"[:count])
    order = list(stats.turns(sides, 2 * count))
    rounds = collections.defaultdict(list)
    for number, side in order:
        rounds[number].append(side)
    assert all(sorted(each) == sides for each in rounds.values())
    assert collections.Counter(each[0] for each in rounds.values()) == {side: 2 for side in sides}
    assert [number for number, _ in order] == sorted(number for number, _ in order)


def test_two_sides_alternate_in_pairs():
    assert [side for _, side in stats.turns(["a", "b"], 4)] == ["a", "b", "b", "a", "a", "b", "b", "a"]


def test_a_part_that_is_measured_anew_replaces_its_rows_alone(tmp_path):
    first = results.Results("bench", ["model", "length"], tmp_path)
    first.add({"model": "m", "length": 60, "ms": 5})
    first.add({"model": "m", "length": 300, "ms": 25})
    again = results.Results("bench", ["model", "length"], tmp_path)
    again.add({"model": "m", "length": 60, "ms": 4})
    again.add({"model": "n", "length": 60, "ms": 9})
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert [(row["model"], row["length"], row["ms"]) for row in rows] == [("m", 60, 4), ("m", 300, 25), ("n", 60, 9)]
    assert all("cores" in row["machine"] for row in rows)
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


def texts(svg):
    return [element.text for element in xml.etree.ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_line_plot_names_its_series_and_places_larger_values_higher():
    svg = plot.lines("A < B", "tokens", "ms", {"ours": [(60, 10), (300, 40)], "theirs & others": [(60, 30), (300, 200)]})
    assert {"A < B", "tokens", "ms", "ours", "theirs & others", "60", "300"} <= set(texts(svg))
    circles = [c for c in xml.etree.ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}circle")]
    heights = [float(circle.get("cy")) for circle in circles]
    assert len(heights) == 4
    assert heights[0] > heights[2] > heights[1] > heights[3]  # of 10, 30, 40, 200; y grows downwards


def test_bars_stand_for_values_and_a_missing_one_leaves_a_gap():
    svg = plot.bars("Title", "ms", {"small": [1, 2], "large": [10, None]}, ["ours", "theirs"])
    bars = [r for r in xml.etree.ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect") if float(r.get("height")) != 12]
    heights = [float(bar.get("height")) for bar in bars]
    assert len(heights) == 3
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.16)  # each is rounded by up to 0.05
    assert heights[2] == pytest.approx(10 * heights[0], abs=0.5)


@pytest.mark.parametrize("series", [{}, {"a": []}, {"a": [(1, 0)]}])
def test_a_logarithmic_plot_refuses_what_it_cannot_show(series):
    with pytest.raises(ValueError):
        plot.lines("t", "x", "y", series)


def test_requests_are_the_same_for_the_same_seed():
    assert workload.mixed(3, 40) == workload.mixed(3, 40)
    assert workload.mixed(3, 40) != workload.mixed(4, 40)


def test_the_mix_has_the_shares_that_it_promises():
    bodies = workload.mixed(1, 200, 128)
    kinds = collections.Counter()
    for body in bodies:
        asked, length = list(body["questions"].values()), len(body["state"].split())
        options = max(len(question.get("criteria", {})) for question in asked)
        if len(asked) == 30:
            kinds["ranking"] += 1
        elif 64 <= options <= 128:
            kinds["options"] += 1
        elif length > 1900:
            kinds["long"] += 1
        elif length > 300:
            kinds["medium"] += 1
        elif 3 <= len(asked) <= 5:
            kinds["short"] += 1
    assert kinds == {"short": 100, "medium": 50, "long": 20, "ranking": 20, "options": 10}
    long_states = {body["state"] for body in bodies if len(body["state"].split()) > 1900}
    assert len(long_states) <= 4  # so they were asked before


def test_a_prompt_is_fitted_to_a_number_of_tokens_or_refused():
    def tokens_of(body):
        return 40 + len(body["state"].split())

    count = workload.fitted(tokens_of, 300)
    assert tokens_of(workload.single(random.Random(0), count)) == 300
    with pytest.raises(ValueError):
        workload.fitted(tokens_of, 10)


def test_the_clients_of_a_service_ask_one_question_over_states_of_their_own():
    rng = random.Random(1)
    bodies = [workload.same_question(rng, 10) for _ in range(1000)]
    assert len({json.dumps(body["questions"]) for body in bodies}) == 1
    assert len({body["state"] for body in bodies}) == 1000
    assert {len(body["state"].split()) for body in bodies} == {11}


def test_every_mix_asks_again_about_the_same_long_states():
    known = set(workload.asked_before())
    for seed in (1, 2):
        states = [body["state"] for body in workload.mixed(seed, 10 * workload.MIX)]
        long_ones = {state for state in states if len(state.split()) > 1900}
        assert long_ones and long_ones <= known


def test_what_llama_server_is_asked_holds_every_prompt_and_as_many_probabilities_as_labels():
    assert prompts.completion([[1, 2]], 2)["prompt"] == [1, 2]
    body = prompts.completion([[1, 2], [3]], 64)
    assert body["prompt"] == [[1, 2], [3]]
    assert (body["n_predict"], body["n_probs"]) == (1, 64)


def script(name):
    path = pathlib.Path(__file__).resolve().parents[2] / "scripts/bench" / name
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def test_the_page_of_measurements_is_what_the_result_files_say():
    tables = script("tables")
    page = tables.PAGE.read_text(encoding="utf-8")
    assert tables.filled(page, results.FOLDER) == page, "run scripts/bench/tables"


def test_a_table_is_made_from_a_result_file_and_the_rest_of_the_page_is_left_alone(tmp_path):
    kept = results.Results("pass", ["model", "length"], tmp_path)
    kept.add({"model": "smollm2-135m", "dtype": "int8", "length": 60, "threads": 2, "ours_ms": {"median": 21.04, "p99": 22.5},
              "onednn_ms": {"int8": 66.1}, "over_floor": 0.3183, "share_of_peak": 0.791, "integer_peak": "vpmaddwd"})
    page = "before\n<!-- bench:pass:begin -->\nold\n<!-- bench:pass:end -->\nafter\n<!-- bench:peers:begin -->\nold\n<!-- bench:peers:end -->\n"
    made = script("tables").filled(page, tmp_path)
    assert "| smollm2-135m | int8 | 60 | 21.0 | 22.5 | 66.1 | – | 0.32 | 79 % |" in made
    assert made.startswith("before\n") and "\nafter\n" in made and "old" not in made
    assert made.endswith("<!-- bench:peers:begin -->\nNot measured yet.\n<!-- bench:peers:end -->\n")


def test_the_table_of_many_clients_shows_what_was_lost_on_either_side():
    counts = {"requests": 80, "errors": 1, "unanswered": 2, "reconnects": 3}
    row = {"model": "smollm2-135m", "workload": "short", "clients": 8, "dtype": "int8", "format": "q4_0", "way": "completion -np 8", "ratio": 2.5,
           "sysone": {"answers_per_s": 50.0, "p50_ms": 160.0, "p99_ms": 320.0, **dict.fromkeys(counts, 0)},
           "llama": {"answers_per_s": 20.0, "p50_ms": 400.0, "p99_ms": 2000.0, **counts}}
    ours, theirs = [[cell.strip() for cell in line.split("|")[1:-1]] for line in script("tables").clients_table([row]).splitlines()[2:]]
    assert ours[3:] == ["sysone int8", "50.0", "", "160.0", "320.0", "2.0", "0", "0", "0", "0"]
    assert theirs[3:] == ["llama-server q4_0, completion -np 8", "20.0", "2.50", "400.0", "2000", "5.0", "80", "1", "2", "3"]
