"""What the session asks of a model, and the record that answers for a model without rules of its own."""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from antiphon.events.audio import SampleRef
from antiphon.events.config import Capabilities, JsonText, Sampling, SessionConfig
from antiphon.events.items import AudioPart, Item, Message, Part

from ..refusal import refuse
from .extras import INVALID, PARAM, read, refuse_private

OPENAI_VOICES = (
    "alloy",
    "ash",
    "ballad",
    "cedar",
    "coral",
    "echo",
    "fable",
    "marin",
    "nova",
    "onyx",
    "sage",
    "shimmer",
    "verse",
)
"""Names that clients of the field ask for; a model with one voice answers to all of them."""

RefAudio = Literal["unsupported", "refused", "optional", "required"]
"""A voice from a recording; `refused` is `unsupported` by another code (N41)."""

PRIVATE_KEYS = frozenset(
    {
        "cache_path",
        "file_path",
        "kv_handle",
        "kv_transfer_params",
        "model_path",
        "prompt_token_ids",
        "ref_audio_path",
        "request_id",
        "request_ids",
        "session_dir",
        "stage0_window",
    }
)
"""Options that no client may set, whatever the model: internal state, handles, paths (WIRE 4.6)."""


class Baked(Struct, frozen=True):
    """A value that stands in a resident model's memory, and how a change of it is refused (L8).

    `fixed` True: it may not change once the session had any input, even before a stage accepted some.
    """

    name: str
    value: str
    code: str
    param: str
    fixed: bool = False


class SamplingExtras(Struct, frozen=True, kw_only=True):
    """The sampling options that every language stage knows (WIRE 4.6)."""

    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None
    seed: int | None = None


class SessionPlugin(Protocol):
    """A model, as the session sees it: pure, constant for the process, shared by all its sessions.

    Its name and version stand in the log; replay needs the same ones. What runs in the stage host (prompts,
    tokenisers, projection of outputs) is another object.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of its stages, first to last."""
        ...

    @property
    def defaults(self) -> tuple[Sampling, ...]:
        """How each stage chooses its tokens when nobody says otherwise (N2)."""
        ...

    @property
    def ref_audio(self) -> RefAudio:
        """Whether it takes a voice from a recording."""
        ...

    @property
    def private_keys(self) -> frozenset[str]:
        """Options refused at opening and at updates, dropped in `response.create` (N1, N4, L12)."""
        ...

    @property
    def unit(self) -> int:
        """Samples of one unit of input at the model's rate; 0: no units, a turn is taken as a whole."""
        ...

    @property
    def continuation_samples(self) -> int:
        """Samples of the silence that stands for one continuation (N1)."""
        ...

    @property
    def priming_units(self) -> int:
        """Units of silence offered so that a seeded text turn can start (G7)."""
        ...

    @property
    def max_tools(self) -> int | None:
        """How many tools may be defined; None: any number."""
        ...

    @property
    def tool_batches(self) -> int:
        """How many batches of function outputs may be pending (J12); 0: outputs are ordinary items."""
        ...

    @property
    def warmup_units(self) -> int:
        """Units of silence that a freshly loaded model is given before clients (B27, N51)."""
        ...

    @property
    def max_sessions(self) -> int | None:
        """How many sessions one engine of it holds unless it is deployed otherwise; None: the operator's choice."""
        ...

    @property
    def promises_audio(self) -> bool:
        """Whether all that it writes of a spoken answer is also spoken: else the answer has failed (N25)."""
        ...

    def deployed(self, max_sessions: int) -> Capabilities:
        """Return what the model can do where so many sessions are admitted (N3)."""
        ...

    def continuations(self, *, auto: bool) -> int:
        """Return how many continuations in a row one owner may have (G25)."""
        ...

    def settled(self, config: SessionConfig) -> SessionConfig:
        """Return the configuration with the model's own defaults and spellings resolved. Idempotent.

        Raises:
            Refusal: an option has a value that means nothing.
        """
        ...

    def check(self, config: SessionConfig) -> None:
        """Accept a settled configuration at opening, at every update, and with a response's overrides (N4, N6).

        Raises:
            Refusal: by the contract's code.
        """
        ...

    def check_update(
        self, current: SessionConfig, candidate: SessionConfig, *, locked: bool, started: bool
    ) -> None:
        """Accept a change (N6, L8). `locked`: a resident stage has accepted input; `started`: there was input.

        Raises:
            Refusal: the candidate is not accepted, or changes what can no longer change.
        """
        ...

    def check_append(self, config: SessionConfig, *, samples: int, frames: int, speech: bool) -> None:
        """Accept one append beside what the modalities say (E6).

        Raises:
            Refusal: the model cannot take it.
        """
        ...

    def check_commit(self, config: SessionConfig, *, samples: int) -> None:
        """Accept a commit by the client; `samples` were not yet given to the model.

        Raises:
            Refusal: the model cannot take that many at once.
        """
        ...

    def baked(self, config: SessionConfig) -> tuple[Baked, ...]:
        """Return what is rendered into the model's memory, always in the same order and number (L8)."""
        ...

    def sampling(self, config: SessionConfig) -> tuple[Sampling, ...]:
        """Return one sampling set for each stage; works for an empty configuration (N2)."""
        ...

    def prompt(self, config: SessionConfig, items: Sequence[Item]) -> tuple[Item, ...]:
        """Return the part of the heard conversation that the model is given (N9), with all bytes that it names."""
        ...

    def rebuild(self, history: Sequence[Item]) -> tuple[Item, ...] | None:
        """Return what the request of a resident model begins with, so that it knows a conversation again (N66).

        `history` is all of it, as it was heard. None: its memory cannot be rendered again, or not of such a
        conversation; a session that loses it ends (K15). The capability `supports_reencode_context` is exactly that
        there is something for an empty history.
        """
        ...

    def pictures(self, groups: Sequence[tuple[SampleRef, ...]]) -> tuple[SampleRef, ...]:
        """Return the pictures of a turn that the model is given; a group came with one append each."""
        ...

    def budget(self, config: SessionConfig, *, samples: int, frames: int, first: bool) -> int:
        """Return the scheduler tokens that a unit needs at most (N10); 0: the stage knows by itself."""
        ...

    def only_listens(self, config: SessionConfig, turn_seq: int) -> bool:
        """Return whether the unit that is number `turn_seq` (1, 2, …) of its turn is heard in silence (N36)."""
        ...

    def opens_gate(self, stage: int) -> bool:
        """Return whether the next turn may begin when this stage has said all of its turn (N16, H2)."""
        ...

    @property
    def draining(self) -> frozenset[int]:
        """The stages that may still finish an earlier turn while the next one runs (N17).

        Without any, an answer is complete when the next turn begins beside it.
        """
        ...


class TurnModel(Struct, frozen=True, kw_only=True):
    """A model that needs no rules of its own: everything follows from its record."""

    name: str
    version: str
    capabilities: Capabilities
    stages: tuple[str, ...] = ("answer",)
    defaults: tuple[Sampling, ...] = (Sampling(),)
    language_stage: int = 0
    """The stage that the client's sampling options are for."""
    own_keys: frozenset[str] = frozenset()
    continuation: int | None = None
    priming_units: int = 0
    max_tools: int | None = None
    tool_batches: int = 0
    ref_audio: RefAudio = "unsupported"
    warmup_units: int = 0
    max_sessions: int | None = None
    gate: int | None = None
    """The stage whose end lets the next turn begin; None: one turn at a time."""
    draining: frozenset[int] = frozenset()
    promises_audio: bool = False

    @property
    def private_keys(self) -> frozenset[str]:
        """The keys of every model and its own."""
        return PRIVATE_KEYS | self.own_keys

    @property
    def unit(self) -> int:
        """The chunk period in samples."""
        period = self.capabilities.chunk_period_ms
        return 0 if period is None else self.capabilities.input_format.rate * period // 1000

    @property
    def continuation_samples(self) -> int:
        """The unit of a frame-locked model; else a second at 16 kHz (N1)."""
        return 16_000 if self.continuation is None else self.continuation

    def deployed(self, max_sessions: int) -> Capabilities:
        """Return the capabilities, with the flags for several sessions and for a memory that can be rebuilt."""
        return msgspec.structs.replace(
            self.capabilities,
            multi_session=max_sessions > 1,
            supports_reencode_context=self.rebuild(()) is not None,
        )

    def continuations(self, *, auto: bool) -> int:
        """Return 64 for a session that listens all the time, 8 for one of turns (G25, N40)."""
        return 64 if auto else 8

    def settled(self, config: SessionConfig) -> SessionConfig:
        """Return the configuration as it is."""
        return config

    def check(self, config: SessionConfig) -> None:
        """Refuse private options, wrong sampling options, too many tools, an unknown voice, a foreign recording."""
        refuse_private(config.extras, self.private_keys)
        read(config.extras, SamplingExtras)
        self.check_tools(config)
        self.check_voice(config)
        if config.ref_audio is not None:
            check_recording(self)

    def check_tools(self, config: SessionConfig) -> None:
        """Refuse more tools than the model takes."""
        most = self.max_tools
        if most is None or len(tools(config)) <= most:
            return
        text = f"This model takes at most {most} tools." if most else "This model calls no functions."
        refuse(INVALID, f"{text} Leave the others out.", "session.tools", "value")

    def check_voice(self, config: SessionConfig) -> None:
        """Refuse a voice that the model does not have."""
        voices = self.capabilities.voices
        if config.voice not in voices and config.voice not in OPENAI_VOICES:
            refuse(
                "bad_event",
                f"There is no voice {config.voice[:64]!r}; there are: {', '.join(voices)}.",
                "session.audio.output.voice",
                "value",
            )

    def check_update(
        self, current: SessionConfig, candidate: SessionConfig, *, locked: bool, started: bool
    ) -> None:
        """Check the candidate, then what of it can no longer change; the same value is fine."""
        self.check(candidate)
        pairs = zip(
            (*_create_only(current), *self.baked(current)),
            (*_create_only(candidate), *self.baked(candidate)),
            strict=True,
        )
        for before, after in pairs:
            if before.value != after.value and (locked or (started and after.fixed)):
                refuse(
                    after.code,
                    f"The model has already heard its {after.name}: open a new session to change it.",
                    after.param,
                )

    def check_append(self, config: SessionConfig, *, samples: int, frames: int, speech: bool) -> None:
        """Accept it."""

    def check_commit(self, config: SessionConfig, *, samples: int) -> None:
        """Accept it."""

    def baked(self, config: SessionConfig) -> tuple[Baked, ...]:
        """A model that is prompted anew for every turn remembers nothing (L8)."""
        return ()

    def sampling(self, config: SessionConfig) -> tuple[Sampling, ...]:
        """Return the defaults; the client's options are for the language stage, its seed for every stage."""
        extra = read(config.extras, SamplingExtras)
        sets: list[Sampling] = []
        for stage, chosen in enumerate(self.defaults):
            if stage == self.language_stage:
                chosen = _over(chosen, config, extra)
                if self.unit == 0 and config.max_output_tokens is not None:
                    # The bound of a resident model is that of a unit, no answer's.
                    chosen = msgspec.structs.replace(chosen, max_tokens=config.max_output_tokens)
            if extra.seed is not None:
                chosen = msgspec.structs.replace(chosen, seed=extra.seed)
            sets.append(chosen)
        return tuple(sets)

    def prompt(self, config: SessionConfig, items: Sequence[Item]) -> tuple[Item, ...]:
        """Return the whole conversation; where the words of sound are known, they stand for it."""
        return tuple(worded(item) for item in items)

    def rebuild(self, history: Sequence[Item]) -> tuple[Item, ...] | None:
        """Return the whole conversation, if the record says that the model reads it."""
        return tuple(history) if self.capabilities.supports_reencode_context else None

    def pictures(self, groups: Sequence[tuple[SampleRef, ...]]) -> tuple[SampleRef, ...]:
        """Return all of them, in the order in which they came."""
        return tuple(ref for group in groups for ref in group)

    def budget(self, config: SessionConfig, *, samples: int, frames: int, first: bool) -> int:
        """Leave it to the stage."""
        return 0

    def only_listens(self, config: SessionConfig, turn_seq: int) -> bool:
        """Leave it to the model."""
        return False

    def opens_gate(self, stage: int) -> bool:
        """Return whether it is the one stage that does."""
        return stage == self.gate


def worded(item: Item) -> Item:
    """Return an item without the places of sound whose words are known."""
    if not isinstance(item, Message) or not any(_is_worded(part) for part in item.content):
        return item
    content = tuple(msgspec.structs.replace(part, ref=None) if _is_worded(part) else part for part in item.content)
    return msgspec.structs.replace(item, content=content)


def _is_worded(part: Part) -> bool:
    return isinstance(part, AudioPart) and part.transcript is not None and part.ref is not None


def _over(base: Sampling, config: SessionConfig, extra: SamplingExtras) -> Sampling:
    return msgspec.structs.replace(
        base,
        temperature=base.temperature if config.temperature is None else config.temperature,
        top_p=base.top_p if extra.top_p is None else extra.top_p,
        top_k=base.top_k if extra.top_k is None else extra.top_k,
        repetition_penalty=base.repetition_penalty
        if extra.repetition_penalty is None
        else extra.repetition_penalty,
    )


def check_recording(plugin: SessionPlugin) -> None:
    """Accept a recording for the voice of a model, whatever is in it (N41).

    Raises:
        Refusal: the model takes none.
    """
    if plugin.ref_audio in ("unsupported", "refused"):
        code = INVALID if plugin.ref_audio == "refused" else "unsupported"
        refuse(code, "This model takes no reference audio.", "session.ref_audio", "value")


def tools(config: SessionConfig) -> list[msgspec.Raw]:
    """Return the definitions of the session's tools, each as JSON."""
    return msgspec.json.decode(config.tools.encode(), type=list[msgspec.Raw])


def tool_names(config: SessionConfig) -> list[str]:
    """Return the names of the session's tools; empty for one that has none."""
    return [tool.name for tool in msgspec.json.decode(config.tools.encode(), type=list[_Named])]


class _Named(Struct):
    name: str = ""


def _create_only(config: SessionConfig) -> tuple[Baked, ...]:
    """Return what any session is told before its first input, or never (WIRE 4.7)."""
    voice = "" if config.ref_audio is None else f"{config.ref_audio.ref.size}:{config.ref_audio.crc}"
    seeded = _canonical(config.echo.get("initial_user_text", "null"))
    return (
        Baked("reference audio", voice, "ref_audio_update_unsupported", "session.ref_audio", fixed=True),
        Baked("opening text", seeded, "bad_event", "session.initial_user_text", fixed=True),
    )


def locked_instructions(config: SessionConfig) -> Baked:
    """Return the instructions as a part of a model's memory."""
    return Baked("instructions", config.instructions, "instructions_update_unsupported", "session.instructions")


def locked_tools(config: SessionConfig) -> Baked:
    """Return the tools as a part of a model's memory (J15); the code is the one that names its context."""
    return Baked("tools", _canonical(config.tools), "instructions_update_unsupported", "session.tools")


def locked_extra(config: SessionConfig, key: str, name: str, code: str, *, fixed: bool = False) -> Baked:
    """Return an option as a part of a model's memory."""
    text = config.extras.get(key, "null")
    return Baked(name, _canonical(text), code, f"{PARAM}.{key}", fixed)


def _canonical(text: JsonText) -> str:
    """Return JSON text so written that equal values are equal texts."""
    return msgspec.json.encode(msgspec.json.decode(text.encode()), order="deterministic").decode()
