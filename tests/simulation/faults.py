"""What may happen to a world as a whole: to its process, its disk, its stage, its clocks."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from antiphon.engine.errors import Refused

from .script import Step
from .stage import MOODS

if TYPE_CHECKING:
    from .process import Process
    from .world import World

Fault = Callable[["World", Step], None]
FAULTS: dict[str, Fault] = {}
"""By the word that a step has for it."""


def _fault(happens: Fault) -> Fault:
    FAULTS[happens.__name__] = happens
    return happens


# -- the disk ------------------------------------------------------------------------------------------------


@_fault
def stall(world: "World", step: Step) -> None:
    """The disk stands still."""
    world.process.log.stall((20_000, 200_000, 3_000_000, 12_000_000)[step.a % 4])
    world.fault("disk stalls")


@_fault
def refuse(world: "World", step: Step) -> None:
    """The disk refuses the next records."""
    world.process.log.refusals += 1 + step.a % 3
    world.fault("disk refuses")


# -- the process ---------------------------------------------------------------------------------------------


@_fault
def crash_in_append(world: "World", step: Step) -> None:
    """The process is lost at one of its next appends."""
    process = world.process

    def crash() -> None:
        if process.alive:
            world.fault("process lost in an append")
            process.kill(step.b)
            world.begin_again(process, (0, 1, 500, 20_000)[step.c % 4])

    if process.alive:
        process.log.crash, process.log.crash_after = crash, 1 + step.a % 12


@_fault
def kill(world: "World", step: Step) -> None:
    """The process is lost."""
    process = world.process
    if process.alive:
        world.fault("process killed")
        process.kill(step.b)
        world.begin_again(process, (0, 1, 500, 20_000)[step.c % 4])


@_fault
def shut_down(world: "World", step: Step) -> None:
    """The server stops in order, and comes back."""
    process = world.process
    if process.alive and not process.stopping.is_set():
        world.fault("server shut down")
        process.stopping.set()
        world.begin_again(process, (0, 1, 500, 20_000)[step.c % 4])


@_fault
def rival(world: "World", step: Step) -> None:
    """A second process takes over, while the first one still believes that it serves."""
    process = world.process
    if not process.alive or not process.hub.ready.is_set():
        return
    world.fault("a rival process")
    for line in process.lines:
        if step.a % 2 and not line.ended:
            line.vanish()
    process.log.stall((0, 5_000, 1_000_000)[step.b % 3])
    world.begin()

    async def retire() -> None:
        await world.wait((100, 3_000, 30_000)[step.c % 3])
        process.kill(step.b)

    world.group.start_soon(retire)


# -- time ----------------------------------------------------------------------------------------------------


@_fault
def wait(world: "World", step: Step) -> None:
    """The event loop stands still: what falls due meanwhile comes late, and all at once."""
    world.loop.take_time((500_000, 2_000_000, 6_000_000, 15_000_000)[step.a % 4])
    world.fault("the loop stands still")


@_fault
def wall(world: "World", step: Step) -> None:
    """The wall clock is set."""
    world.clock.jump_wall((-3_600_000_000, -1_000_000, 1_000_000, 86_400_000_000)[step.a % 4])
    world.fault("wall clock set")


# -- the stage and the detector ------------------------------------------------------------------------------


@_fault
def mood(world: "World", step: Step) -> None:
    """The stage changes its mood."""
    world.process.stage.mood = MOODS[step.a % len(MOODS)]


@_fault
def let_go(world: "World", _step: Step) -> None:
    """The stage is well again."""
    world.process.stage.mood = "well"


@_fault
def lose_stage(world: "World", _step: Step) -> None:
    """The stage's process is lost."""
    world.fault("stage lost")
    world.process.stage.lose_all()


@_fault
def deaf(world: "World", step: Step) -> None:
    """The detector fails for a while."""
    world.process.scoring.deaf = 1 + step.a % 3
    world.fault("detector fails")


# -- the operator --------------------------------------------------------------------------------------------


@_fault
def operator_detach(world: "World", step: Step) -> None:
    """An operator takes a session from its connection."""
    _operate(world, step, lambda process, name, control: process.hub.detach(name, control))


@_fault
def operator_close(world: "World", step: Step) -> None:
    """An operator ends a session."""
    _operate(world, step, lambda process, name, control: process.hub.close(name, control))


def _operate(world: "World", step: Step, control: Callable[["Process", str, str], Awaitable[object]]) -> None:
    names, process = world.disk.names, world.process
    if not names or not process.alive:
        return
    name, control_id = names[step.a % len(names)], f"operator {step.b % 5}"
    world.fault("operator acts")

    async def act() -> None:
        with suppress(Refused):
            await control(process, name, control_id)

    world.spawn(act, step)
