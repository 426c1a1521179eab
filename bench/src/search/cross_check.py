"""Asks the package MLRsearch. Input and output: one JSON object. See tests.rs, which runs this."""

import json
import sys

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal
from MLRsearch.discrete_result import DiscreteResult
from MLRsearch.load_rounding import LoadRounding
from MLRsearch.discrete_load import DiscreteLoad
from MLRsearch.target_spec import TargetSpec
from MLRsearch.target_stat import TargetStat


class Simulated(AbstractMeasurer):
    """Forwards so many frames a second."""

    def __init__(self, capacity):
        self.capacity = capacity

    def measure(self, intended_duration, intended_load):
        sent = round(intended_load * intended_duration)
        received = min(int(self.capacity * intended_duration), sent)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=sent,
            forwarding_count=received,
        )


def classify(case):
    """What the package's rules say of the trials of one load."""
    goal = case["goal"]
    target = TargetSpec(
        loss_ratio=goal["loss_ratio"],
        exceed_ratio=goal["exceed_ratio"],
        discrete_width=None,
        trial_duration=goal["final_trial_duration"],
        duration_sum=goal["duration_sum"],
        expansion_coefficient=2,
        fail_fast=False,
        preceding=None,
    )
    stat = TargetStat(target)
    for load, duration, sent, received in case["trials"]:
        stat.add(
            MeasurementResult(
                intended_duration=duration, intended_load=load, offered_count=sent, forwarding_count=received
            )
        )
    optimistic, pessimistic = stat.estimates()
    return {"optimistic": optimistic, "pessimistic": pessimistic, "loss_ratio": stat.pessimistic_loss_ratio}


def search(case):
    """What the package finds on the simulated device."""
    config = Config()
    config.goals = [SearchGoal(**goal) for goal in case["goals"]]
    config.max_load = case["max_load"]
    config.min_load = case["min_load"]
    config.search_duration_max = 1e9
    results = MultipleLossRatioSearch(config=config).search(
        measurer=Simulated(case["capacity"]), debug=lambda text: None
    )
    return [
        {
            "lower": float(results[goal].relevant_lower_bound),
            "upper": float(results[goal].relevant_upper_bound),
            "throughput": float(results[goal].conditional_throughput),
        }
        for goal in config.goals
    ]


request = json.load(sys.stdin)
if "classify" in request:
    answer = [classify(case) for case in request["classify"]]
else:
    answer = search(request["search"])
json.dump(answer, sys.stdout)
