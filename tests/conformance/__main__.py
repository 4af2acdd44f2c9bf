"""Clients of the field against a server of ours: `python -m tests.conformance` (what `make conformance` runs).

The server runs here; each client, unmodified, in an environment of its own (`--clients`), since they fix other
versions than ours.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from .clients.scenarios import SCENARIOS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CLIENTS = {
    "openai-python": "openai",
    "Agents SDK": "agents_sdk",
    "LiveKit": "livekit_openai",
    "Pipecat": "pipecat_openai",
    "DuplexClient": "duplex_client",
}
PACKAGES = {
    "openai-python": "openai",
    "Agents SDK": "openai-agents",
    "LiveKit": "livekit-plugins-openai",
    "Pipecat": "pipecat-ai",
    "DuplexClient": "vllm-omni",
}
OPENAI = {
    "open": "clearing_the_buffer_and_closing",
    "text turn": "a_text_turn",
    "server VAD": "a_voice_turn_with_server_vad",
    "push-to-talk": "push_to_talk",
    "tool call": "a_tool_call",
    "barge-in": "speaking_over_an_answer",
    "truncate": "speaking_over_an_answer",
    "close": "clearing_the_buffer_and_closing",
    "reconnect": "a_lost_connection_loses_nothing",
}
"""Which test of `test_openai_realtime.py` a scenario is."""

LIMIT_S = 300
MARKS = {"passed": "[green]passed[/]", "failed": "[red]FAILED[/]", "cannot": "[yellow]cannot[/]", "": "-"}


class Played(Struct, frozen=True):
    """How a scenario ended for a client."""

    scenario: str
    outcome: str
    why: str = ""


def main(words: list[str] | None = None) -> int:
    """Carry the command line out; return its exit status: 1 if a client failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--clients", type=Path, default=ROOT / ".venv-conformance", metavar="FOLDER")
    parser.add_argument("--only", choices=CLIENTS, action="append", help="this client; may be repeated")
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="this scenario; may be repeated")
    asked = parser.parse_args(words)
    console = Console()
    played: dict[str, dict[str, Played]] = {}
    scenarios = tuple(asked.scenario or SCENARIOS)
    for client in asked.only or CLIENTS:
        with console.status(client):
            if client == "openai-python":
                played[client] = _ours(scenarios)
            else:
                with serving() as address:
                    played[client] = _theirs(asked.clients, client, address, scenarios)
    _show(played, asked.clients, scenarios, console)
    return 1 if any(each.outcome == "failed" for by in played.values() for each in by.values()) else 0


@contextmanager
def serving() -> Iterator[str]:
    """Run `antiphon serve` on a free port; give its address."""
    with tempfile.TemporaryDirectory() as data:
        command = [
            *(sys.executable, "-m", "antiphon.transport.cli", "serve", "--port", "0", "--data", data),
            *("--pipeline", str(HERE / "speaker.toml")),
        ]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if found := re.search(r"(?:http|ws)://([\d.]+:\d+)", line):
                    break
            else:
                raise RuntimeError("the server does not start")
            yield found[1]
        finally:
            server.terminate()
            server.wait(20)


def _theirs(environment: Path, client: str, address: str, scenarios: tuple[str, ...]) -> dict[str, Played]:
    python = environment / "bin" / "python"
    if not python.exists():
        return {
            name: Played(name, "cannot", f"{environment.name} is not there: make conformance") for name in scenarios
        }
    script = HERE / "clients" / f"{CLIENTS[client]}.py"
    log = Path(tempfile.gettempdir()) / f"antiphon-conformance-{CLIENTS[client]}.log"
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    plain |= {"OPENAI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    with log.open("w") as errors:
        done = subprocess.run(
            [str(python), str(script), address, *scenarios],
            env=plain,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"scenario"')]
    heard = {each.scenario: each for each in (msgspec.json.decode(line, type=Played) for line in lines)}
    missing = f"the client ended with {done.returncode}: {log}"
    return {name: heard.get(name, Played(name, "failed", missing)) for name in scenarios}


def _ours(scenarios: tuple[str, ...]) -> dict[str, Played]:
    """Run the tests that drive the client which is installed here."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "--no-header", str(HERE / "test_openai_realtime.py")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    passed = set(re.findall(r"^PASSED .*::test_(\w+)", done.stdout, re.MULTILINE))
    found: dict[str, Played] = {}
    for name in scenarios:
        test = OPENAI.get(name)
        if test is None:
            found[name] = Played(name, "", "no test of it")
        else:
            found[name] = Played(name, "passed" if test in passed else "failed", "" if test in passed else test)
    return found


def _version(environment: Path, client: str) -> str:
    python = sys.executable if client == "openai-python" else str(environment / "bin" / "python")
    if not Path(python).exists():
        return ""
    code = f"from importlib.metadata import version; print(version({PACKAGES[client]!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


def _show(
    played: dict[str, dict[str, Played]], environment: Path, scenarios: tuple[str, ...], console: Console
) -> None:
    table = Table("scenario", *(f"{client}\n{_version(environment, client)}" for client in played))
    for name in scenarios:
        table.add_row(name, *(MARKS[by[name].outcome] for by in played.values()))
    console.print(table)
    for client, by in played.items():
        for each in by.values():
            if each.why:
                console.print(f"{client}, {each.scenario}: {each.why}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
