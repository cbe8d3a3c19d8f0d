"""Times that runs would have had with the machine for themselves: images ÷ the speed that training_speed.py found.

Long runs may go on beside other work, for accuracies do not depend on it; the times that passed say nothing then.
"""

import json
from dataclasses import replace
from pathlib import Path

from cruciform.train.race import Finish

SPEEDS = Path(__file__).parents[1] / "results" / "training-speed.json"


def at_quiet_speed(finish: Finish) -> Finish:
    """Returns a run with the times of a quiet machine, without those of evaluations, where its speed is known."""
    speeds = json.loads(SPEEDS.read_text("utf-8"))["summary"] if SPEEDS.is_file() else {}
    speed = speeds.get(f"{finish.name}_images_per_second")
    if speed is None:
        return finish
    curve = [{**point, "seconds": round(point["epoch"] * finish.samples / speed, 1)} for point in finish.curve]
    return replace(finish, curve=curve)
