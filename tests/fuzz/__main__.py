"""`python -m tests.fuzz [TARGET ...] --seconds N --seed S --mutations N [--coverage]`: mutate until time or count is up.

What fails is made as small a list of inputs as still fails, and kept in finds/TARGET, which `test_fuzz.py` plays from then on.
--coverage: libFuzzer follows the coverage instead (atheris; the extra `fuzz`). Exit code 1: something failed.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.mutate import batches, grown
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS, Target

FINDS = Path(__file__).parent / "finds"
PER_MIB = 10.0
"""Seconds of processor time that a MiB of input may take, beside what each input may."""
GROWTH = 256 << 20
"""Bytes by which the process may grow while it plays."""
SHORTEN = 60.0
"""Seconds that a find is made smaller for."""
GROWN_EVERY = 2.0
"""Seconds between two inputs of 256 KiB."""


class TooSlowError(AssertionError):
    """Input that takes more time than its size allows."""


def play(target: Target, inputs: Sequence[bytes]) -> None:
    """Runs inputs within their time."""
    before = time.process_time()
    target.check(inputs)
    took = time.process_time() - before
    allowed = 0.5 + len(inputs) * target.each / 1000 + sum(map(len, inputs)) / (1 << 20) * PER_MIB
    if took > allowed:
        raise TooSlowError(
            f"{took:.1f} s for {len(inputs)} inputs of {sum(map(len, inputs)):,} bytes; {allowed:.1f} s are allowed"
        )


def failure(target: Target, inputs: Sequence[bytes]) -> str | None:
    """The traceback of what came out, or None."""
    try:
        play(target, inputs)
    except Exception:
        return traceback.format_exc(limit=-4)
    return None


def smallest(target: Target, inputs: list[bytes]) -> list[bytes]:
    """A part of `inputs` that still fails: a part of one of them where that is enough."""
    for data in inputs:
        if failure(target, [data]):
            left = shorter(
                [data[i : i + 1] for i in range(len(data))], lambda part: failure(target, [b"".join(part)]) is not None
            )
            return [b"".join(left)]
    return shorter(inputs, lambda part: failure(target, part) is not None)


def shorter(items: list[bytes], fails: Callable[[list[bytes]], bool]) -> list[bytes]:
    """As few of the items as still fail, after a minute at most."""
    until = time.monotonic() + SHORTEN
    step = max(len(items) // 2, 1)
    while step:
        at = 0
        while at < len(items) and time.monotonic() < until:
            rest = items[:at] + items[at + step :]
            if fails(rest):
                items = rest
            else:
                at += step
        step //= 2
    return items


def keep(target: Target, inputs: list[bytes]) -> Path:
    """Writes a find: a file for one input, a folder for several that fail together only."""
    name = sha256(b"|".join(inputs)).hexdigest()[:12]
    place = FINDS / target.name / name
    files = [(place, inputs[0])] if len(inputs) == 1 else [(place / f"{n:04d}", data) for n, data in enumerate(inputs)]
    for path, data in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return place


def mutate(target: Target, found: list[bytes], seconds: float, count: int | None, seed: int) -> tuple[int, float, int]:
    """Plays mutants; (how many, in how many seconds, finds)."""
    rng = random.Random(seed)
    start = time.monotonic()
    played = finds = 0
    next_grown = start
    target.check(found)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for inputs in batches(target.name, found, target.batch, seed):
        if time.monotonic() >= next_grown:
            next_grown = time.monotonic() + GROWN_EVERY
            finds += report(target, [grown(rng, found)])
            played += 1
        finds += report(target, inputs)
        played += len(inputs)
        if finds >= 5 or time.monotonic() - start >= seconds or (count is not None and played >= count):
            break
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) * 1024
    if growth > GROWTH:
        print(f"{target.name}: the process grew by {growth >> 20} MiB; {GROWTH >> 20} are allowed")
        finds += 1
    return played, time.monotonic() - start, finds


def report(target: Target, inputs: list[bytes]) -> int:
    why = failure(target, inputs)
    if why is None:
        return 0
    print(f"{target.name}: {keep(target, smallest(target, inputs))}\n{why}", flush=True)
    return 1


# --- by coverage ---------------------------------------------------------------------------------------------------------

GUIDED = """
import sys
import atheris
with atheris.instrument_imports(include=["store_core"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS
target = TARGETS[sys.argv.pop(1)]
atheris.Setup(sys.argv, lambda data: target.one(data))
atheris.Fuzz()
"""


def guided(name: str, found: list[bytes], seconds: int, seed: int) -> tuple[int, float, int]:
    """libFuzzer in a process of its own; (inputs, seconds, finds)."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as corpus:
        for n, data in enumerate(found):
            (Path(corpus) / f"seed-{n:04d}").write_bytes(data)
        folder = FINDS / name
        folder.mkdir(parents=True, exist_ok=True)
        options = [f"-max_total_time={seconds}", f"-seed={seed}", f"-artifact_prefix={folder}/", "-print_final_stats=1"]
        options += ["-timeout=20", "-rss_limit_mb=2048", "-max_len=16384", "-verbosity=0"]
        # with the same hashes each time a seed gives the same inputs each time
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        run = subprocess.run(
            [sys.executable, "-c", GUIDED, name, *options, corpus], capture_output=True, text=True, env=environment
        )
    stats = dict(line.split(":", 3)[2:] for line in run.stderr.splitlines() if line.startswith("stat::"))
    played = int(stats.get("number_of_executed_units", 0))
    if not any(folder.iterdir()):
        folder.rmdir()
    if run.returncode:
        print(f"{name}: exit code {run.returncode}\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}", flush=True)
    return played, time.monotonic() - start, int(run.returncode != 0)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)} (all)")
    parser.add_argument("--seconds", type=float, default=60, help="for each target (60)")
    parser.add_argument("--mutations", type=int, help="stop a target after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--coverage", action="store_true", help="guided by coverage, where atheris is installed")
    args = parser.parse_args(argv)
    if unknown := set(args.targets) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    by_coverage = args.coverage and find_spec("atheris") is not None
    if args.coverage and not by_coverage:
        print("atheris is not installed: no coverage, only mutations")
    total = finds = 0
    with tempfile.TemporaryDirectory() as folder:
        start = seeds(Path(folder))
        for name in args.targets or TARGETS:
            if by_coverage:
                played, took, found = guided(name, start[name], int(args.seconds), args.seed)
            else:
                played, took, found = mutate(TARGETS[name], start[name], args.seconds, args.mutations, args.seed)
            print(f"{name:<15} {played:>11,} inputs in {took:6.1f} s, {found} finds", flush=True)
            total, finds = total + played, finds + found
    print(f"{'all':<15} {total:>11,} inputs, {finds} finds")
    return 1 if finds else 0


if __name__ == "__main__":
    raise SystemExit(main())
