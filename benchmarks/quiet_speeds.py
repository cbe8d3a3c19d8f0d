"""Times that runs would have had with the machine for themselves: images ÷ the speed that training_speed.py found.

Long runs may go on beside other work, for accuracies do not depend on it; the times that passed say nothing then.
"""

import json
from dataclasses import replace
from pathlib import Path

from cruciform.training.experiments.race import Finish

SPEEDS = Path(__file__).parents[1] / "results" / "training-speed.json"


def speed_name(network: str, precision: str, norm: str = "none") -> str:
    """Returns how the speed of a network is recorded: bfloat16, what the recipes ask for, goes without saying."""
    named = network if norm == "none" else f"{network}_norm"
    return named if precision == "bf16" else f"{named}_{precision}"


def at_quiet_speed(finish: Finish) -> Finish:
    """Returns a run with the times of a quiet machine, without those of evaluations.

    Where its speed is not known yet, with those that passed, and says so.
    """
    speeds = json.loads(SPEEDS.read_text("utf-8"))["summary"] if SPEEDS.is_file() else {}
    model = finish.recipe["model"]
    name = speed_name(model["name"], finish.recipe["precision"], model["options"].get("norm", "none"))
    speed = speeds.get(f"{name}_images_per_second")
    if speed is None:
        print(f"{name}: {SPEEDS.name} has no speed of it; its times are those that passed, beside whatever else ran")
        return finish
    curve = [{**point, "seconds": round(point["epoch"] * finish.samples / speed, 1)} for point in finish.curve]
    return replace(finish, curve=curve)
