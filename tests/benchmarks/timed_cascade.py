"""The voice server of a benchmark: the shipped pipeline, whose cascade also tells when its first clause was there.

Run by `bench_voice.py` as a process of its own: python timed_cascade.py DATA ASR
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from antiphon.events.commands import StageCost, StageFinished
from antiphon.stages.base import AnyReport, Report
from antiphon.stages.cascade import CascadeSettings, CascadeStage
from antiphon.stages.turn import Models
from antiphon.transport import serve as serving
from antiphon.transport.pipelines import load
from antiphon.transport.serve import ServeSettings, Told, run


class TimedCascade(CascadeStage):
    """Adds a cost `clause`: since the turn's recognition ended, and the voice since its first words."""

    def __init__(self, asr: str) -> None:
        super().__init__(CascadeSettings(asr=asr))

    def begin(self, models: Models, report: Report) -> None:
        """Watch the voice and what is reported; turns of this benchmark do not overlap."""
        heard: dict[str, float] = {}
        voice: Any = models.voice
        speak = voice.speak

        def watched(text: str, **options: Any) -> Any:
            heard.setdefault("clause", time.perf_counter())
            return speak(text, **options)

        def told(said: AnyReport, sound: bytes) -> None:
            if sound:
                heard.setdefault("sound", time.perf_counter())
            if isinstance(said, StageFinished):
                if "sound" in heard:
                    ms = (heard["sound"] - heard["clause"]) * 1e3
                    extra = StageCost(stage="voice", first_output_ms=round(ms, 1))
                    said = msgspec.structs.replace(said, costs=(*said.costs, extra))
                heard.clear()
            report(said, sound)

        voice.speak = watched
        super().begin(models, told)


def main() -> None:
    """Serve until a signal comes."""
    data, asr = sys.argv[1:]
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # the stage's own process imports this file too
    pipeline = msgspec.structs.replace(
        load("voice"),
        stage=msgspec.structs.replace(
            load("voice").stage, factory="timed_cascade:TimedCascade", arguments={"asr": asr}
        ),
    )
    # `serve` looks its pipeline up by name; there is no other way to hand it one that is not shipped.
    serving.load = lambda _name: pipeline  # type: ignore[assignment]

    def listening(address: str) -> None:
        sys.stdout.write(f"listening on {address}\n")
        sys.stdout.flush()

    told = Told(listening=listening, ready=lambda: None, unavailable=sys.exit)
    run(ServeSettings(pipeline="voice", port=0, data=Path(data)), told)


if __name__ == "__main__":
    main()
